"""What labelled points say of a map: accuracy and areas with confidence intervals."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.errors import UserError
from landbalance.files import write_json
from landbalance.sample.estimates import Estimate, Estimates, estimates
from landbalance.sample.maps import Population, open_population
from landbalance.sample.points import REFERENCE, Points, Stratum, read_points
from landbalance.table import aligned

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Labelled:
    """Labelled points: code of stratum, class on the ground and class on the map of each; shape (n,)."""

    strata: tuple[Stratum, ...]
    stratum: NDArray[np.int64]
    reference: NDArray[np.int64]
    mapped: NDArray[np.int64]

    @property
    def of_map(self) -> bool:
        """Return whether the strata are the classes of the map, at all points."""
        return bool((self.stratum == self.mapped).all())


def assess(maps: Sequence[Path], points: Path, level: float, target: Path) -> str:
    """Judge `maps` by labelled points, write the result to `target` (JSON) and return it as a table.

    Parameters
    ----------
    points : Path
        What `design` wrote, labelled; or any points with a field `reference` that are a random sample of each class
        of this map.
    level : float
        Confidence level of the intervals.

    Raises
    ------
    UserError
        When a label is no class of the map, a class has too few labelled points, or files do not fit each other.
    """
    if not 0 < level < 1:
        raise UserError(f"--level: {level:g} is not between 0 and 1; 0.95 is usual.")
    population = open_population(maps)
    labelled = _labelled(read_points(points, population.crs), population, points)
    codes = list(population.names)
    counts = _tally(labelled, codes)
    _require_two_points(labelled, counts, points)
    found = estimates(counts, np.array([item.pixels for item in labelled.strata]))
    warnings = _warnings(population, counts, found)
    for warning in warnings:
        _log.warning("%s", warning)
    result = _as_json(population, labelled, counts, found, level)
    write_json(target, {**result, "points": str(points), "warnings": warnings})
    _log.info("%s: written", target)
    return _as_text(result)


def _labelled(points: Points, population: Population, path: Path) -> _Labelled:
    """Return the points that have a label."""
    code_of = {name: code for code, name in population.names.items()}
    code_of.update({str(code): code for code in population.names})
    allowed = ", ".join(f"{name} ({code})" for code, name in population.names.items())
    if strange := sorted({label for label in points.references if label is not None and label not in code_of}):
        raise UserError(
            f"{path}: the field `{REFERENCE}` holds {', '.join(strange)}, no class of the map; allowed: {allowed}."
        )
    there = np.array([label is not None for label in points.references], np.bool_)
    if not there.any():
        raise UserError(f"{path}: no point is labelled. Fill in the field `{REFERENCE}`; allowed: {allowed}.")
    if not there.all():
        _log.warning(
            "%s: %d of %d points have no label and are left out. That is harmless if they were not looked at; points "
            "left out because they were hard to tell make the map look better than it is",
            path,
            np.count_nonzero(~there),
            len(there),
        )
    reference = np.array([code_of[label] for label in points.references if label is not None], np.int64)
    mapped = population.codes_at(points.places[there])
    if (lost := np.count_nonzero(mapped < 0)) > 0:
        raise UserError(
            f"{path}: {lost} labelled points lie where {', '.join(map(str, population.paths))} has no class. Give all "
            "maps of the area that the sample was drawn from."
        )
    if points.strata is None or points.drawn is None:
        _log.info("%s does not say how it was drawn: taken for a random sample of each class of this map", path)
        return _Labelled(population.strata, mapped, reference, mapped)
    return _Labelled(points.strata, points.drawn[there], reference, mapped)


def _tally(labelled: _Labelled, codes: Sequence[int]) -> NDArray[np.int64]:
    """Return the points of each stratum by class, shape (strata, classes, classes): rows = reference."""
    counts = np.zeros((len(labelled.strata), len(codes), len(codes)), np.int64)
    place = np.array([item.code for item in labelled.strata])
    order = np.argsort(place)
    stratum = order[np.searchsorted(place, labelled.stratum, sorter=order)]
    row, column = np.searchsorted(codes, labelled.reference), np.searchsorted(codes, labelled.mapped)
    np.add.at(counts, (stratum, row, column), 1)
    return counts


def _require_two_points(labelled: _Labelled, counts: NDArray[np.int64], path: Path) -> None:
    for item, count in zip(labelled.strata, counts.sum(axis=(1, 2)).tolist(), strict=True):
        if count < min(2, item.pixels):
            raise UserError(
                f"{path}: {item.name} ({item.pixels:,} pixels) has {count} labelled point(s); at least two are needed, "
                "or nothing is known of this part of the map. Label more of its points."
            )


def _warnings(population: Population, counts: NDArray[np.int64], found: Estimates) -> list[str]:
    """Return what a reader must know about single classes."""
    total = counts.sum(axis=0)
    warnings = []
    for number, (code, name) in enumerate(population.names.items()):
        on_ground, on_map = int(total[number].sum()), int(total[:, number].sum())
        if on_map and not on_ground:
            warnings.append(f"{name}: on the map, but at no point on the ground: its producer's accuracy is n/a")
        elif on_ground and not on_map:
            mapped = "no point of the sample has it on the map" if code in population.pixels else "it is never mapped"
            warnings.append(f"{name}: {mapped}: its producer's accuracy is 0, its user's accuracy n/a")
        user = found.users[number]
        if user is not None and user.value == 1:
            warnings.append(
                f"{name}: all {on_map} points are right, so the interval seems to have no width; with so many points "
                f"an error of up to {1 - 0.05 ** (1 / on_map):.1%} could go unseen (95 %)"
            )
    return warnings


def _as_json(
    population: Population, labelled: _Labelled, counts: NDArray[np.int64], found: Estimates, level: float
) -> dict[str, Any]:
    codes, total = list(population.names), counts.sum(axis=0)
    hectares = sum(item.hectares for item in labelled.strata)

    def told(estimate: Estimate | None, scale: float = 1.0) -> dict[str, Any] | None:
        if estimate is None:
            return None
        return {
            "estimate": estimate.value * scale,
            "standard_error": estimate.standard_error * scale,
            "half_width": estimate.half_width(level) * scale,
            "interval": [limit * scale for limit in estimate.interval(level)],
        }

    return {
        "maps": [str(path) for path in population.paths],
        "estimator": "Olofsson et al. 2014" if labelled.of_map else "Stehman 2014",
        "level": level,
        "labelled_points": int(counts.sum()),
        "hectares": hectares,
        "overall_accuracy": told(found.overall),
        "classes": [
            {
                "name": population.names[code],
                "code": code,
                "points_on_map": int(total[:, number].sum()),
                "points_on_ground": int(total[number].sum()),
                "mapped_hectares": population.pixels.get(code, 0) * population.hectares,
                "hectares": told(found.areas[number], hectares),
                "users_accuracy": told(found.users[number]),
                "producers_accuracy": told(found.producers[number]),
            }
            for number, code in enumerate(codes)
        ],
        "strata": [
            {"name": item.name, "code": item.code, "pixels": item.pixels, "points": int(count)}
            for item, count in zip(labelled.strata, counts.sum(axis=(1, 2)), strict=True)
        ],
        "confusion": total.tolist(),
        "proportions": found.proportions.tolist(),
    }


def _as_text(result: dict[str, Any]) -> str:
    """Return a table with a row per class: areas and accuracies, each with half its interval."""

    def shown(estimate: dict[str, Any] | None, digits: int) -> str:
        if estimate is None:
            return "n/a"
        return f"{estimate['estimate']:,.{digits}f} ± {estimate['half_width']:,.{digits}f}"

    rows = [["class", "mapped ha", "area ha", "user's", "producer's", "points"]]
    rows += [
        [
            item["name"],
            f"{item['mapped_hectares']:,.1f}",
            shown(item["hectares"], 1),
            shown(item["users_accuracy"], 3),
            shown(item["producers_accuracy"], 3),
            str(item["points_on_map"]),
        ]
        for item in result["classes"]
    ]
    head = (
        f"overall accuracy {shown(result['overall_accuracy'], 4)} ({100 * result['level']:g} % intervals, "
        f"{result['labelled_points']:,} points, {result['hectares']:,.1f} ha; {result['estimator']})"
    )
    return f"{head}\n{aligned(rows)}"
