"""Measures as text: aligned tables for the log."""

from collections.abc import Mapping

from landbalance.evaluate.accuracy import Scores
from landbalance.table import aligned


def comparison(rows: Mapping[str, Scores]) -> str:
    """Return a table of overall measures with a row per classifier."""
    head = ["", "overall accuracy", "kappa", "macro F1", "macro IoU"]
    body = [
        [name, shown(item.overall_accuracy), shown(item.kappa), shown(item.macro["f1"]), shown(item.macro["iou"])]
        for name, item in rows.items()
    ]
    return aligned([head, *body])


def by_class(item: Scores) -> str:
    """Return a table of measures with a row per class and one for the macro averages."""
    head = ["class", "producer's", "user's", "F1", "IoU", "reference", "predicted"]
    body = [
        [
            row.name,
            *(shown(value) for value in (row.producers_accuracy, row.users_accuracy, row.f1, row.iou)),
            f"{row.support:,}",
            f"{row.predicted:,}",
        ]
        for row in item.per_class
    ]
    mean = ["macro average", *(shown(value) for value in item.macro.values()), "", ""]
    return aligned([head, *body, mean])


def shown(value: float | None) -> str:
    """Return a measure with three decimals, ``n/a`` where it is undefined."""
    return "n/a" if value is None else f"{value:.3f}"
