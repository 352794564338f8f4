"""Measures of accuracy, all from one confusion matrix of integers (rows = reference, columns = predicted).

Definitions follow Congalton (1991), A review of assessing the accuracy of classifications of remotely sensed
data, Remote Sensing of Environment 37, 35–46; kappa follows Cohen (1960), A coefficient of agreement for nominal
scales, Educational and Psychological Measurement 20, 37–46. A measure whose denominator is 0 is undefined: None.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.tiles import IGNORED

Matrix = NDArray[np.int64]

MEASURES = ("producers_accuracy", "users_accuracy", "f1", "iou")
"""Measures of single classes, of which there are means."""


@dataclass(frozen=True)
class ClassScores:
    """Measures of one class; None where undefined."""

    name: str
    producers_accuracy: float | None
    users_accuracy: float | None
    f1: float | None
    iou: float | None
    support: int
    predicted: int


@dataclass(frozen=True)
class Scores:
    """Measures of a classification over all classes, and of each class.

    Means leave out classes for which a measure is undefined. `macro` counts each class alike, `weighted` by
    its share of the reference (so the weighted producer's accuracy is the overall accuracy).
    """

    overall_accuracy: float | None
    kappa: float | None
    majority_share: float | None
    per_class: tuple[ClassScores, ...]
    macro: dict[str, float | None]
    weighted: dict[str, float | None]

    def as_json(self) -> dict[str, Any]:
        """Return plain values, in the order in which ``metrics.json`` has them."""
        return {**asdict(self), "per_class": [asdict(item) for item in self.per_class]}


def confusions(reference: NDArray[np.uint8], predicted: NDArray[np.uint8], classes: int) -> Matrix:
    """Return a confusion matrix for each tile.

    Parameters
    ----------
    reference, predicted : ndarray of uint8, shape (n, …)
        Class codes of n tiles; where `reference` is 255 the pixel does not count.
    classes : int
        Number of classes; codes are 0 … classes - 1.

    Returns
    -------
    ndarray of int64, shape (n, classes, classes)
        Rows = reference, columns = predicted.

    Raises
    ------
    ValueError
        When a code is outside the classes.
    """
    tiles = len(reference)
    counted = reference != IGNORED
    rows, columns = reference[counted].astype(np.int64), predicted[counted].astype(np.int64)
    if max(rows.max(initial=0), columns.max(initial=0)) >= classes:
        raise ValueError(f"a class code is not below {classes}")
    tile = np.repeat(np.arange(tiles, dtype=np.int64), counted.reshape(tiles, -1).sum(axis=1))
    cells = np.bincount((tile * classes + rows) * classes + columns, minlength=tiles * classes**2)
    return cells.reshape(tiles, classes, classes).astype(np.int64)


def scores(confusion: Matrix, names: Sequence[str]) -> Scores:
    """Return all measures of a confusion matrix.

    F1 and IoU are taken from the counts (F1 = 2·hits / (reference + predicted)), so they are 0, not undefined, for
    a class that is never predicted although it occurs: a model must not gain by giving a class up.

    Parameters
    ----------
    confusion : ndarray of int64, shape (classes, classes)
        Rows = reference, columns = predicted.
    names : sequence of str
        Class names, in that order.
    """
    hits, support, predicted = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    per_class = tuple(
        ClassScores(
            name=name,
            producers_accuracy=_ratio(hit, total),
            users_accuracy=_ratio(hit, called),
            f1=_ratio(2 * hit, total + called),
            iou=_ratio(hit, total + called - hit),
            support=total,
            predicted=called,
        )
        for name, hit, total, called in zip(names, hits.tolist(), support.tolist(), predicted.tolist(), strict=True)
    )
    columns = {measure: [getattr(item, measure) for item in per_class] for measure in MEASURES}
    return Scores(
        overall_accuracy=_ratio(int(hits.sum()), int(confusion.sum())),
        kappa=kappa(confusion),
        majority_share=_ratio(int(support.max()), int(confusion.sum())),
        per_class=per_class,
        macro={measure: _mean(column, [1] * len(per_class)) for measure, column in columns.items()},
        weighted={measure: _mean(column, support.tolist()) for measure, column in columns.items()},
    )


def kappa(confusion: Matrix) -> float | None:
    """Return Cohen's kappa, (p_o - p_e) / (1 - p_e); None where chance alone would agree always.

    Both terms are multiplied by the squared total and summed as whole numbers, so nothing is rounded before the
    division.
    """
    total, hits = int(confusion.sum()), int(np.trace(confusion))
    chance = sum(
        row * column for row, column in zip(confusion.sum(axis=1).tolist(), confusion.sum(axis=0).tolist(), strict=True)
    )
    return _ratio(total * hits - chance, total**2 - chance)


def majority_confusion(confusion: Matrix) -> Matrix:
    """Return the confusion matrix of a map that says the largest reference class everywhere."""
    support = confusion.sum(axis=1)
    result = np.zeros_like(confusion)
    result[:, int(support.argmax())] = support
    return result


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    defined = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    whole = sum(weight for _, weight in defined)
    return sum(value * weight for value, weight in defined) / whole if whole else None
