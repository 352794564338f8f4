"""Confidence intervals of all measures, by resampling the confusion matrices of whole units (see `bootstrap`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.bootstrap import FEWEST_UNITS, Interval, interval, resampled
from landbalance.comparison import Unit
from landbalance.evaluate.accuracy import MEASURES, Matrix


def intervals(by_unit: Matrix, names: Sequence[str], unit: Unit, resamples: int, level: float) -> dict[str, Any]:
    """Return an interval for each measure, in the places that the measures have in ``metrics.json``.

    A class has an interval only where at least two units tell of it: samples of one block would always be
    drawn together, and the interval would seem to have no width.

    Parameters
    ----------
    by_unit : ndarray of int64, shape (units, classes, classes)
        Confusion matrix of each unit; rows = reference, columns = predicted.
    names : sequence of str
        Class names.
    unit : str
        What a unit is.
    resamples : int
    level : float
        Share of the resamples that lies inside.
    """
    told = by_unit[by_unit.any(axis=(1, 2))]
    units, classes = len(told), len(names)
    found: dict[str, NDArray[np.float64]] = {}
    if units >= FEWEST_UNITS:
        parts = [
            measures(sums.reshape(-1, classes, classes))
            for sums in resampled(told.reshape(units, -1).astype(np.float64), resamples)
        ]
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def of(name: str, column: int | None = None) -> Interval | None:
        if name not in found:
            return None
        return interval(found[name] if column is None else found[name][:, column], level)

    telling = _units_that_tell(told)
    per_class = [
        {
            "name": name,
            "units": int(telling["producers_accuracy"][number]),
            **{item: of(item, number) if telling[item][number] >= FEWEST_UNITS else None for item in MEASURES},
        }
        for number, name in enumerate(names)
    ]
    return {
        "level": level,
        "unit": unit,
        "units": units,
        "resamples": resamples,
        "overall_accuracy": of("overall_accuracy"),
        "kappa": of("kappa"),
        "macro": {item: of(f"macro {item}") for item in MEASURES},
        "weighted": {item: of(f"weighted {item}") for item in MEASURES},
        "per_class": per_class,
    }


def measures(matrices: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return all measures of many confusion matrices at once; NaN where undefined (see `accuracy.scores`).

    Parameters
    ----------
    matrices : ndarray of float64, shape (n, classes, classes)

    Returns
    -------
    dict
        Overall accuracy, kappa, means as ``macro f1`` or ``weighted iou``, each of shape (n,); and the measures of
        each class, shape (n, classes).
    """
    hits = np.diagonal(matrices, axis1=1, axis2=2)
    reference, predicted = matrices.sum(axis=2), matrices.sum(axis=1)
    total, right = matrices.sum(axis=(1, 2)), hits.sum(axis=1)
    chance = (reference * predicted).sum(axis=1)
    of_class = {
        "producers_accuracy": _ratio(hits, reference),
        "users_accuracy": _ratio(hits, predicted),
        "f1": _ratio(2 * hits, reference + predicted),
        "iou": _ratio(hits, reference + predicted - hits),
    }
    means = {}
    for name, values in of_class.items():
        there = ~np.isnan(values)
        sums = np.where(there, values, 0)
        means[f"macro {name}"] = _ratio(sums.sum(axis=1), there.sum(axis=1))
        means[f"weighted {name}"] = _ratio((sums * reference).sum(axis=1), (there * reference).sum(axis=1))
    return {
        "overall_accuracy": _ratio(right, total),
        "kappa": _ratio(total * right - chance, total**2 - chance),
        **means,
        **of_class,
    }


def _units_that_tell(by_unit: Matrix) -> dict[str, NDArray[np.int64]]:
    """Return how many units have samples in the denominator of each class's measures."""
    reference, predicted = by_unit.any(axis=2), by_unit.any(axis=1)
    either = (reference | predicted).sum(axis=0)
    return {
        "producers_accuracy": reference.sum(axis=0),
        "users_accuracy": predicted.sum(axis=0),
        "f1": either,
        "iou": either,
    }


def _ratio(part: NDArray[np.float64], whole: NDArray[np.generic]) -> NDArray[np.float64]:
    result = np.full(part.shape, np.nan)
    np.divide(part, whole, out=result, where=whole != 0)
    return result
