"""Step time of one kind of worker as a function of its batch size, from raw timings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from landbalance.profiles import typical

_WIDE = 0.75
"""The slope beyond the largest size is that from the last size up to this part of it."""


@dataclass(frozen=True)
class TimeCurve:
    """Seconds of computing by batch size: linear between knots, non-decreasing.

    Attributes
    ----------
    sizes : NDArray[np.float64]
        Batch sizes of the knots, ascending from 1; shape (n,).
    times : NDArray[np.float64]
        Seconds at the knots, non-decreasing, above 0; shape (n,).
    slope : float
        Seconds per sample beyond the last knot.
    cap : int or None
        The most samples computed at once; a larger batch is computed in rounds. None: no limit.
    measured : int
        The largest batch size that was timed; beyond it `slope` speaks.
    """

    sizes: NDArray[np.float64]
    times: NDArray[np.float64]
    slope: float
    cap: int | None
    measured: int

    def seconds(self, batch: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds that `batch` samples (whole numbers, any shape) take; 0 for none.

        Above `cap` the batch is computed in full rounds of `cap` samples and a round of the rest
        (gradient accumulation).
        """
        samples = np.asarray(batch, dtype=np.int64)
        if self.cap is None:
            return self._at_once(samples)
        rounds, rest = np.divmod(samples, self.cap)
        return np.asarray(rounds * self._at_once(np.array(self.cap)) + self._at_once(rest), dtype=np.float64)

    def _at_once(self, samples: NDArray[np.int64]) -> NDArray[np.float64]:
        beyond = np.maximum(samples - self.sizes[-1], 0.0)
        times = np.interp(samples, self.sizes, self.times) + self.slope * beyond
        return np.asarray(np.where(samples > 0, times, 0.0), dtype=np.float64)


def time_curve(batch_sizes: Sequence[int], seconds: Sequence[Sequence[float]], cap: int | None) -> TimeCurve:
    """Return the curve through the typical values of raw timings (`landbalance.profiles.typical`).

    The median is the centre: a timing is late now and then, never early, so a mean would be drawn up.
    Medians that fall with the batch size are noise (more samples are never less work) and are
    pooled, each weighted by its number of timings (isotonic regression). A running maximum would be
    monotone too, but one slow outlier at a small batch would lift everything after it.

    Outside of what was measured the curve promises no more than was seen:

    - Beyond the largest size it goes on at the slope of the last stretch, but never below the mean
      time per sample at the largest size: pooling or noise can make that segment flat, and a flat
      line would promise any speed. So no speed above the last measured one is assumed.
    - Below the smallest size it follows the first segment down (a step has a fixed part), kept
      between a constant time and a time in proportion to the samples. A single size gives the latter.

    Parameters
    ----------
    batch_sizes : sequence of int
        Measured sizes, strictly ascending, each at least 1.
    seconds : sequence of sequences of float
        The raw timings of each size, none of them empty, medians above 0.
    cap : int or None
        The most samples that fit in memory.
    """
    return curve_through(batch_sizes, [typical(timings).median for timings in seconds], list(map(len, seconds)), cap)


def curve_through(
    batch_sizes: Sequence[int], medians: Sequence[float], weights: Sequence[float], cap: int | None
) -> TimeCurve:
    """Return the curve through one time per batch size, each with a weight; see `time_curve`."""
    sizes = np.asarray(batch_sizes, dtype=np.float64)
    times = isotonic(np.asarray(medians, dtype=np.float64), np.asarray(weights, dtype=np.float64))
    if sizes[0] > 1:
        first = (times[1] - times[0]) / (sizes[1] - sizes[0]) if len(sizes) > 1 else np.inf
        single = np.clip(times[0] - first * (sizes[0] - 1), times[0] / sizes[0], times[0])
        sizes, times = np.append(1.0, sizes), np.append(single, times)
    slope = times[-1] / sizes[-1]
    if len(sizes) > 1:
        # Two sizes side by side (31 and 32) would say more of noise than of the slope.
        before = max(int(np.searchsorted(sizes, _WIDE * sizes[-1], side="right")) - 1, 0)
        slope = max(slope, (times[-1] - times[before]) / (sizes[-1] - sizes[before]))
    return TimeCurve(sizes, times, float(slope), cap, max(batch_sizes))


def isotonic(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the non-decreasing sequence nearest to `values` in weighted least squares.

    Pool adjacent violators (Ayer et al. 1955): as long as a block's mean is below that of the block
    before, the two become one. Both arrays have shape (n,).
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, mass, length = blocks.pop()
            total = mass + block[1]
            block = ((mean * mass + block[0] * block[1]) / total, total, length + block[2])
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])
