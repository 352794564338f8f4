"""How many points a sample needs, and how many of them each class of the map gets."""

import math

import numpy as np
from numpy.typing import NDArray


def sample_size(pixels: NDArray[np.int64], accuracies: NDArray[np.float64], standard_error: float) -> int:
    """Return how many points give overall accuracy the wanted standard error.

    Cochran (1977), Sampling techniques, eq. 5.25, as in Olofsson et al. (2014), eq. 13, for points shared out by area.

    Parameters
    ----------
    pixels : ndarray of int64, shape (strata,)
    accuracies : ndarray of float64, shape (strata,)
        User's accuracy that is expected of each stratum.
    standard_error : float
        Wanted for overall accuracy, e.g. 0.01.
    """
    weights = pixels / pixels.sum()
    variances = accuracies * (1 - accuracies)
    spread = float((weights * np.sqrt(variances)).sum())
    points = spread**2 / (standard_error**2 + float((weights * variances).sum()) / int(pixels.sum()))
    return max(math.ceil(points - 1e-9), 1)


def allocated(pixels: NDArray[np.int64], total: int, fewest: int) -> NDArray[np.int64]:
    """Return the points of each stratum: shared out by area, but at least `fewest` for each.

    Strata whose share would be smaller are raised to `fewest` (or to all their pixels, if they have fewer), and the
    others share what is left by area, so that a rare class is judged too (Olofsson et al. 2014, section 5.1.2). Where
    `total` is too small for that, each gets `fewest`, and the sum is larger than `total`.

    Returns
    -------
    ndarray of int64, shape (strata,)
    """
    floor = np.minimum(pixels, fewest)
    raised = np.zeros(len(pixels), np.bool_)
    while True:
        left = total - int(floor[raised].sum())
        others = np.where(raised, 0, pixels)
        if left <= 0 or not others.any():
            return floor
        shares = left * others / others.sum()
        low = ~raised & (shares < floor)
        if not low.any():
            break
        raised |= low
    points = np.floor(shares + 1e-9).astype(np.int64)
    for place in np.argsort(points - shares, kind="stable")[: left - int(points.sum())]:
        points[place] += 1
    return np.where(raised, floor, np.minimum(points, pixels))


def expected_error(
    pixels: NDArray[np.int64], points: NDArray[np.int64], accuracies: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the standard errors to expect of overall accuracy, and of the user's accuracy of each stratum.

    Olofsson et al. (2014), eqs. 5 and 6, with the expected user's accuracies.
    """
    weights = pixels / pixels.sum()
    of_users = np.sqrt(accuracies * (1 - accuracies) / np.maximum(points - 1, 1))
    return float(np.sqrt((weights**2 * of_users**2).sum())), of_users
