"""Draws the points of a stratified random sample of a map for a person to label."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landbalance.errors import UserError
from landbalance.files import digest
from landbalance.sample.allocation import allocated, expected_error, sample_size
from landbalance.sample.maps import open_population
from landbalance.sample.points import REFERENCE, Stratum, write_points
from landbalance.table import aligned

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What the sample is to be.

    Parameters
    ----------
    standard_error : float
        Of overall accuracy, which decides the number of points unless `points` does.
    points : int or None
        Points in all.
    fewest : int
        Points that each class gets at least.
    expected : float or None
        User's accuracy of a class of which nothing is known; None is the most cautious guess, 0.5.
    seed : int
    """

    standard_error: float = 0.02
    points: int | None = None
    fewest: int = 50
    expected: float | None = None
    seed: int = 0


def design(maps: Sequence[Path], accuracies: Mapping[str, float], wanted: Wanted, target: Path) -> None:
    """Draw a sample stratified by the classes of `maps` and write it to `target`, a GeoPackage.

    Parameters
    ----------
    maps : sequence of Path
        Class maps that together cover the area.
    accuracies : mapping of str to float
        User's accuracy to expect of each class, by its name, as far as known.

    Raises
    ------
    UserError
        When `target` is there already (it may hold a person's work), or the maps do not fit.
    """
    if target.exists():
        raise UserError(f"{target}: is there already and may hold labels. Rename or delete it, or give another --out.")
    if not 0 < wanted.standard_error < 0.5:
        raise UserError(f"--standard-error: {wanted.standard_error:g} is not between 0 and 0.5; 0.02 is usual.")
    unknown = 0.5 if wanted.expected is None else wanted.expected
    if not 0 <= unknown <= 1:
        raise UserError(f"--expected: {unknown:g} is not between 0 and 1.")
    if wanted.fewest < 2 or (wanted.points is not None and wanted.points < 2):
        raise UserError("--fewest, --points: at least 2 points are needed, or nothing is known of their spread.")
    if wanted.seed < 0:
        raise UserError(f"--seed: {wanted.seed} is negative; 0 or above is wanted.")
    population = open_population(maps)
    strata = population.strata
    pixels = np.array([item.pixels for item in strata])
    expected = np.array([accuracies.get(item.name, unknown) for item in strata])
    total = wanted.points or sample_size(pixels, expected, wanted.standard_error)
    points = allocated(pixels, total, wanted.fewest)
    _log_design(strata, expected, points, total)
    ranks = {
        item.code: np.sort(
            np.random.default_rng((wanted.seed, item.code)).choice(item.pixels, count, replace=False, shuffle=False)
        )
        for item, count in zip(strata, points.tolist(), strict=True)
    }
    found = population.places(ranks)
    places, drawn = np.concatenate(list(found.values())), np.repeat([item.code for item in strata], points)
    # In random order: neighbours in the list say nothing of each other, and who stops early has a smaller sample.
    order = np.random.default_rng(wanted.seed).permutation(len(places))
    about = {
        "maps": "; ".join(str(path) for path in maps),
        "sha256": "; ".join(digest(path) for path in maps),
        "rule": f"by area, at least {wanted.fewest} for each class",
        "wanted": f"{wanted.points} points" if wanted.points else f"standard error {wanted.standard_error:g}",
        "expected user's accuracies": ", ".join(
            f"{s.name} {value:.3g}" for s, value in zip(strata, expected, strict=True)
        ),
        "seed": str(wanted.seed),
    }
    write_points(target, places[order], drawn[order], population.crs, strata, about)
    _log.info("%s: %d points; fill in the field `%s` of each, by name or code", target, len(places), REFERENCE)


def _log_design(
    strata: Sequence[Stratum], expected: NDArray[np.float64], points: NDArray[np.int64], total: int
) -> None:
    pixels = np.array([item.pixels for item in strata])
    of_overall, of_users = expected_error(pixels, points, expected)
    rows = [["class", "mapped ha", "share", "user's accuracy", "points", "its standard error"]]
    rows += [
        [item.name, f"{item.hectares:,.1f}", f"{share:.1%}", f"{accuracy:.2f}", str(count), f"{error:.3f}"]
        for item, share, accuracy, count, error in zip(
            strata, pixels / pixels.sum(), expected, points, of_users, strict=True
        )
    ]
    _log.info("the sample, if the map is as accurate as expected:\n%s", aligned(rows))
    _log.info("%d points, standard error of overall accuracy to expect: %.3f", points.sum(), of_overall)
    if points.sum() != total:
        _log.info(
            "%d points were wanted; the least or most that single classes can have made it %d", total, points.sum()
        )
