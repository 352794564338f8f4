"""Statistics of bands, gathered tile by tile in memory that does not grow with the data."""

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (1, 2, 5, 25, 50, 75, 95, 98, 99)

_SAMPLE = 1 << 18
"""Pixels kept, at least half of them, to estimate percentiles of types too wide to count every value."""


class BandStatistics:
    """Mean, standard deviation and percentiles of each band over the pixels added.

    Mean and deviation are exact to float64 rounding: each tile's are merged into the whole by the
    formula of Chan, Golub and LeVeque (1983). Percentiles are exact for integers of up to 16 bits;
    of other types they come from an evenly thinned sample of at least 131,072 pixels.

    Parameters
    ----------
    bands : int
    dtype : numpy.dtype
        Of the pixels.
    """

    def __init__(self, bands: int, dtype: np.dtype[np.generic]) -> None:
        self.count = 0
        self._mean = np.zeros(bands)
        self._squares = np.zeros(bands)
        self._counts: NDArray[np.int64] | None = None
        self._offset = 0
        if dtype.kind in "ui" and dtype.itemsize <= 2:
            limits = np.iinfo(dtype.str)
            self._offset = int(limits.min)
            self._counts = np.zeros((bands, int(limits.max) - self._offset + 1), np.int64)
        self._sample: list[NDArray[np.generic]] = []
        self._kept, self._step = 0, 1

    def add(self, pixels: NDArray[np.generic]) -> None:
        """Add pixels of shape (bands, n)."""
        count = pixels.shape[1]
        if count == 0:
            return
        values = pixels.astype(np.float64)
        mean = values.mean(axis=1)
        squares = np.square(values - mean[:, None]).sum(axis=1)
        total = self.count + count
        shift = mean - self._mean
        self._mean += shift * (count / total)
        self._squares += squares + np.square(shift) * (self.count * count / total)
        self._add_to_distribution(pixels)
        self.count = total

    def _add_to_distribution(self, pixels: NDArray[np.generic]) -> None:
        if self._counts is not None:
            for counts, band in zip(self._counts, pixels.astype(np.int64) - self._offset, strict=True):
                found = np.bincount(band)
                counts[: len(found)] += found
            return
        thinned = pixels[:, -self.count % self._step :: self._step]
        self._sample.append(thinned)
        self._kept += thinned.shape[1]
        while self._kept > _SAMPLE:
            self._step *= 2
            self._sample = [np.concatenate(self._sample, axis=1)[:, ::2]]
            self._kept = self._sample[0].shape[1]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return the mean of each band."""
        return self._mean.copy()

    @property
    def std(self) -> NDArray[np.float64]:
        """Return the (population) standard deviation of each band."""
        deviation: NDArray[np.float64] = np.sqrt(self._squares / max(self.count, 1))
        return deviation

    def percentiles(self) -> dict[str, list[float]]:
        """Return the `PERCENTILES` of each band, interpolated linearly between neighbouring values."""
        if self._counts is None:
            sample = np.concatenate(self._sample, axis=1).astype(np.float64)
            return {str(q): np.percentile(sample, q, axis=1).tolist() for q in PERCENTILES}
        below = self._counts.cumsum(axis=1)
        return {str(q): [self._percentile(counts, q) for counts in below] for q in PERCENTILES}

    def _percentile(self, below: NDArray[np.int64], q: float) -> float:
        place = q / 100 * (self.count - 1)
        low, high = np.searchsorted(below, [int(place), min(int(place) + 1, self.count - 1)], side="right").tolist()
        return float(self._offset + low + (high - low) * (place - int(place)))
