"""All that ``metrics.json`` says, and the same for the log."""

import csv
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from landbalance.comparison import Comparison
from landbalance.evaluate import table
from landbalance.evaluate.accuracy import Matrix, Scores, majority_confusion, scores

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Baseline:
    """How the random forest did, and how the network compares with it."""

    confusion: Matrix
    intervals: dict[str, Any]
    comparison: Comparison
    samples: int
    seconds: float


@dataclass(frozen=True)
class Metrics:
    """What was found about an experiment on the test split.

    Parameters
    ----------
    name, network : str
        The experiment and its architecture.
    confusion : ndarray of int64, shape (classes, classes)
        Rows = reference, columns = predicted.
    intervals, calibration, distance, random_split : dict
        As ``metrics.json`` has them; None where there is no such thing, or it was not asked for.
    """

    name: str
    network: str
    classes: Sequence[str]
    confusion: Matrix
    intervals: dict[str, Any]
    calibration: dict[str, Any]
    distance: dict[str, Any] | None
    baseline: Baseline | None
    random_split: dict[str, Any] | None

    @property
    def scores(self) -> Scores:
        """Return all measures of the network."""
        return scores(self.confusion, self.classes)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "experiment": self.name,
            "split": "test",
            "classes": list(self.classes),
            "confusion": self.confusion.tolist(),
            **self.scores.as_json(),
            "intervals": self.intervals,
            "calibration": self.calibration,
            "distance": self.distance,
            "baseline": None if self.baseline is None else _baseline(self.baseline, self.classes),
            "random_split": self.random_split,
        }

    def as_csv(self) -> str:
        """Return the confusion matrix as text."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["reference \\ predicted", *self.classes])
        writer.writerows([name, *row] for name, row in zip(self.classes, self.confusion.tolist(), strict=True))
        return text.getvalue()


def _baseline(baseline: Baseline, classes: Sequence[str]) -> dict[str, Any]:
    judged = scores(baseline.confusion, classes)
    return {
        "name": "random forest",
        "overall_accuracy": judged.overall_accuracy,
        "kappa": judged.kappa,
        "macro": judged.macro,
        "intervals": {name: baseline.intervals[name] for name in ("overall_accuracy", "kappa", "macro")},
        "comparison": baseline.comparison.as_json(),
        "confusion": baseline.confusion.tolist(),
        "train_pixels": baseline.samples,
        "seconds": round(baseline.seconds, 3),
    }


def log(metrics: Metrics) -> None:
    """Log what was found, as tables and sentences."""
    name, result = metrics.name, metrics.scores
    rows = {metrics.network: result}
    if metrics.baseline is not None:
        rows["random forest"] = scores(metrics.baseline.confusion, metrics.classes)
    largest = metrics.classes[int(metrics.confusion.sum(axis=1).argmax())]
    rows[f"always {largest}"] = scores(majority_confusion(metrics.confusion), metrics.classes)
    _log.info("%s, test split, %d samples:\n%s", name, metrics.confusion.sum(), table.comparison(rows))
    _log.info("%s, by class (n/a: undefined, left out of averages):\n%s", name, table.by_class(result))
    _log_missing(name, result)
    _log_intervals(name, metrics.intervals)
    if metrics.baseline is not None:
        _log_comparison(metrics.network, metrics.baseline.comparison)
    _log.info("%s: expected calibration error %s", name, table.shown(metrics.calibration["expected_error"]))
    if metrics.distance is not None:
        _log_distance(name, metrics.distance)
    if metrics.random_split is not None:
        _log.info(
            "a random forest scores %.3f if pixels are split at random: %+.3f, for having seen their neighbours",
            metrics.random_split["overall_accuracy"],
            metrics.random_split["optimism"],
        )


def _log_missing(name: str, result: Scores) -> None:
    for item in result.per_class:
        if not item.support:
            _log.warning("%s: %s does not occur in the test split: its producer's accuracy is n/a", name, item.name)
        elif not item.predicted:
            _log.warning("%s: %s is never predicted: its user's accuracy is n/a", name, item.name)


def _log_intervals(name: str, intervals: dict[str, Any]) -> None:
    limits = intervals["overall_accuracy"]
    if limits is None:
        _log.warning(
            "%s: all test samples lie in one %s, so there are no intervals. Make split.size smaller or split.test "
            "larger.",
            name,
            intervals["unit"],
        )
        return
    _log.info(
        "%s: overall accuracy %.3f to %.3f (%g %% interval from %d %ss, resampled whole)",
        name,
        *limits,
        100 * intervals["level"],
        intervals["units"],
        intervals["unit"],
    )


def _log_comparison(network: str, comparison: Comparison) -> None:
    between = "" if comparison.interval is None else ", interval {:+.3f} to {:+.3f}".format(*comparison.interval)
    _log.info(
        "%s less random forest: %+.3f%s; p = %.3g by %s (randomisation test), %.3g by sample (McNemar, too small where "
        "samples are neighbours)",
        network,
        comparison.difference,
        between,
        comparison.p_value_by_unit,
        comparison.unit,
        comparison.p_value,
    )


def _log_distance(name: str, distance: dict[str, Any]) -> None:
    quantiles = distance["quantiles"]
    if distance["samples"]:
        _log.info(
            "%s: test samples lie %.0f to %.0f pixels from the nearest training pixel (median %.0f)",
            name,
            *(quantiles[share] for share in ("0", "1", "0.5")),
        )
    if distance["elsewhere"]:
        _log.info("%s: %d test samples lie where no training pixel is near", name, distance["elsewhere"])
