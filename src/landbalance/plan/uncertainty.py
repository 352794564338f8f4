"""How well the timings of a profile fix the predicted step time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from landbalance.plan.communication import seconds_of
from landbalance.plan.curves import time_curve
from landbalance.plan.workers import Workers
from landbalance.profiles import AllReduce, Curve

_REPLICATES = 200
_LEVELS = (2.5, 97.5)


def step_interval(workers: Workers, shares: NDArray[np.int64]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median step time with these shares, in seconds.

    A percentile bootstrap (Efron 1979): the medians of all timings are drawn anew, each from its own raw timings,
    curves are fitted to them as the plan's are, and the step is predicted again. It covers the noise of the profile; a
    machine that is busier in training than it was in the profile is not covered.

    Parameters
    ----------
    workers : Workers
        All workers of the cluster.
    shares : NDArray[np.int64]
        Samples of each worker, 0 for one that is left out; shape (workers,).

    Returns
    -------
    tuple of float, or None
        The lower and the upper end; None when a worker in use comes without raw timings.
    """
    random = np.random.default_rng(0)
    computing = np.zeros(_REPLICATES)
    for index in np.unique(workers.kind[shares > 0]).tolist():
        timings = workers.kinds[index].timings
        if timings is None:
            return None
        samples = np.unique(shares[(workers.kind == index) & (shares > 0)])
        computing = np.maximum(computing, _slowest(timings, samples, random))
    used = int(np.count_nonzero(shares))
    steps = computing + _communication(workers.allreduce, used, random)
    low, high = np.percentile(steps, _LEVELS)
    # The maximum over noisy curves lies above the curves' own maximum; the prediction itself is always in the interval.
    predicted = float(workers.seconds(shares).max() + workers.communication[used])
    return min(float(low), predicted), max(float(high), predicted)


def _slowest(timings: Curve, samples: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float64]:
    """Return in each replicate the seconds of the largest of `samples`; shape (replicates,)."""
    medians = np.stack([_medians(values, random) for values in timings.seconds], axis=1)
    curves = (
        time_curve(timings.batch_sizes, [[value] for value in row], timings.largest_batch) for row in medians.tolist()
    )
    return np.array([float(curve.seconds(samples).max()) for curve in curves])


def _communication(measured: Sequence[AllReduce], workers: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return in each replicate the seconds of communication of so many workers; shape (replicates,)."""
    slowest = np.zeros(_REPLICATES)
    for timings in measured:
        whole, latency = _medians(timings.seconds, random), _medians(timings.latency_seconds or [0.0], random)
        slowest = np.maximum(slowest, seconds_of(timings, workers, whole, latency))
    return slowest


def _medians(values: Sequence[float], random: np.random.Generator) -> NDArray[np.float64]:
    """Return medians of resamples of `values`; shape (replicates,).

    The median of n draws with replacement is an order statistic whose place follows the Beta distribution of the median
    of n uniform numbers (Maritz and Jarrett 1978), so it can be drawn at once, however many values there are.
    """
    half = (len(values) + 1) / 2
    places = random.beta(half, half, _REPLICATES) * (len(values) - 1)
    return np.interp(places, np.arange(len(values)), np.sort(values))
