"""Accuracy and areas from a stratified random sample, by the estimators of Stehman (2014).

Stehman (2014), Estimating area and map accuracy for stratified random sampling when the strata are different from the
map classes, International Journal of Remote Sensing 35, 4923–4939. Where the strata are the map's classes they are
those of Olofsson et al. (2014), Good practices for estimating area and assessing accuracy of land change, Remote
Sensing of Environment 148, 42–57, eqs. 4–11. A stratum of N_h pixels, n_h of them labelled, stands for N_h / n_h
pixels with each label.

The finite population correction is left out, as in Olofsson et al.: intervals are a trifle too wide. But a stratum
of which every pixel is labelled has no sampling error.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Estimate:
    """An estimated share, from 0 to 1, and its standard error."""

    value: float
    standard_error: float

    def half_width(self, level: float) -> float:
        """Return half the width of the confidence interval by the normal distribution."""
        return NormalDist().inv_cdf((1 + level) / 2) * self.standard_error

    def interval(self, level: float) -> tuple[float, float]:
        """Return the confidence interval, cut off at 0 and 1."""
        half = self.half_width(level)
        return max(0.0, self.value - half), min(1.0, self.value + half)


@dataclass(frozen=True)
class Estimates:
    """What a sample says of a map; None where undefined.

    Parameters
    ----------
    proportions : ndarray of float64, shape (classes, classes)
        Estimated share of the area by class: rows = reference, columns = map.
    overall : Estimate
        Overall accuracy: the share of the area that the map has right.
    users, producers : tuple
        Of each class.
    areas : tuple of Estimate
        Each class's share of the area, by the reference and not by the map.
    """

    proportions: NDArray[np.float64]
    overall: Estimate
    users: tuple[Estimate | None, ...]
    producers: tuple[Estimate | None, ...]
    areas: tuple[Estimate, ...]


def estimates(counts: NDArray[np.int64], pixels: NDArray[np.int64]) -> Estimates:
    """Return accuracy and areas.

    Parameters
    ----------
    counts : ndarray of int64, shape (strata, classes, classes)
        Labelled points of each stratum by class: rows = reference, columns = map.
    pixels : ndarray of int64, shape (strata,)
        Pixels of each stratum.

    Raises
    ------
    ValueError
        When a stratum has fewer than two points, and not all its pixels are labelled.
    """
    points = counts.sum(axis=(1, 2))
    if ((points < 2) & (points < pixels)).any():
        raise ValueError("a stratum has fewer than two points")
    sample = _Sample(points, pixels)
    right = np.trace(counts, axis1=1, axis2=2)
    hits = np.diagonal(counts, axis1=1, axis2=2)
    reference, mapped = counts.sum(axis=2), counts.sum(axis=1)
    classes = range(counts.shape[1])
    return Estimates(
        proportions=(counts / points[:, None, None] * (pixels / pixels.sum())[:, None, None]).sum(axis=0),
        overall=sample.mean(right),
        users=tuple(sample.ratio(hits[:, item], mapped[:, item]) for item in classes),
        producers=tuple(sample.ratio(hits[:, item], reference[:, item]) for item in classes),
        areas=tuple(sample.mean(reference[:, item]) for item in classes),
    )


@dataclass(frozen=True)
class _Sample:
    """Points and pixels of each stratum, shape (strata,)."""

    points: NDArray[np.int64]
    pixels: NDArray[np.int64]

    def mean(self, count: NDArray[np.int64]) -> Estimate:
        """Return the share of all pixels that are like the counted points (Stehman 2014, eqs. 3 and 25)."""
        share = count / self.points
        value = float((self.pixels * share).sum() / self.pixels.sum())
        return Estimate(value, self._standard_error(share - share**2, int(self.pixels.sum())))

    def ratio(self, part: NDArray[np.int64], whole: NDArray[np.int64]) -> Estimate | None:
        """Return which share of the pixels like `whole` is like `part`, points of it (Stehman 2014, eqs. 27 and 28).

        None where no point is like `whole`. The variance is that of y - R x, y and x being 1 for points of
        `part` and of `whole`.
        """
        of_part, of_whole = part / self.points, whole / self.points
        denominator = float((self.pixels * of_whole).sum())
        if not denominator:
            return None
        ratio = float((self.pixels * of_part).sum() / denominator)
        squares = of_part * (1 - 2 * ratio) + ratio**2 * of_whole
        variances = squares - (of_part - ratio * of_whole) ** 2
        return Estimate(ratio, self._standard_error(variances, denominator))

    def _standard_error(self, variances: NDArray[np.float64], whole: float) -> float:
        """Return the standard error of a total over `whole`, from the population variances of the points."""
        few = np.maximum(self.points - 1, 1)  # n / (n - 1) makes it the sample's variance, 1 / n that of the mean
        terms = np.where(self.points < self.pixels, self.pixels.astype(np.float64) ** 2 * variances / few, 0)
        return math.sqrt(max(float(terms.sum()), 0.0)) / whole
