"""Intervals by resampling whole units: blocks of ground, or images where there is no ground.

Neighbouring pixels are not independent: they share a field, a label polygon, a cloud. An interval that takes each
pixel for an observation is too narrow, often by an order of magnitude. So what is drawn again is the unit by which
train and test were split.

A draw takes one unit less than there are, with replacement (Rao and Wu 1988, Resampling inference with complex survey
data, Journal of the American Statistical Association 83, 231–241): with as many as there are, the variance would come
out too small by the factor (n - 1) / n, which counts where units are few. Intervals are the percentiles of the
resamples (Efron and Tibshirani 1993, An introduction to the bootstrap, chapter 13).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FEWEST_UNITS = 2
"""With one unit nothing is known of how much units differ."""

_SEED = 0
_AT_ONCE = 1 << 21

Interval = tuple[float, float]


def resampled(units: NDArray[np.float64], resamples: int) -> Iterator[NDArray[np.float64]]:
    """Yield sums over resampled units, some resamples at a time; the same sums each time it is called.

    Parameters
    ----------
    units : ndarray of float64, shape (units, columns)
        What is summed for each unit, counts for instance; at least two units.
    resamples : int
        How many sums there are in all.

    Yields
    ------
    ndarray of float64, shape (some, columns)
    """
    count, columns = units.shape
    generator = np.random.default_rng(_SEED)
    at_once = max(1, _AT_ONCE // max(count, columns))
    for first in range(0, resamples, at_once):
        times = generator.multinomial(count - 1, np.full(count, 1 / count), min(at_once, resamples - first))
        yield times.astype(np.float64) @ units


def interval(values: NDArray[np.float64], level: float) -> Interval | None:
    """Return the percentiles between which the share `level` of the resampled values lies.

    Resamples in which the measure is undefined (NaN) are left out; None where it is undefined in all.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
