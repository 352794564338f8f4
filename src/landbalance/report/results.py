"""What the report reads of other stages' JSON files; keys that it does not show are passed over."""

from typing import Any

from pydantic import ConfigDict, Field

from landbalance.config.base import Settings
from landbalance.config.learning import Arm


class _Result(Settings):
    """A result file: its own stage decides which further keys it holds."""

    model_config = ConfigDict(extra="ignore")


class Scores(_Result):
    """Accuracies of one class; None where a score is not defined."""

    name: str
    producers_accuracy: float | None
    users_accuracy: float | None
    f1: float | None
    iou: float | None
    support: int = Field(description="Test samples (pixels or tiles) of the class in the reference.")
    predicted: int = Field(description="Test samples that were predicted as the class.")


class Means(_Result):
    """Means over the classes for which a score is defined."""

    producers_accuracy: float | None
    users_accuracy: float | None
    f1: float | None
    iou: float | None


class Baseline(_Result):
    """A plain classifier judged on the same test split."""

    name: str
    overall_accuracy: float | None
    kappa: float | None
    train_pixels: int | None = None
    seconds: float | None = None


class Metrics(_Result):
    """``metrics.json`` of the evaluate stage."""

    classes: list[str]
    confusion: list[list[int]] = Field(description="Rows are the reference, columns the prediction.")
    overall_accuracy: float | None
    kappa: float | None
    majority_share: float | None
    per_class: list[Scores]
    macro: Means
    baseline: Baseline | None


class Run(_Result):
    """``run.json`` of the train stage."""

    arm: Arm
    started: str
    finished: str
    seconds: float
    resumed: int
    versions: dict[str, Any]
    commit: str | None
    settings: dict[str, Any]


class SourceFile(_Result):
    """A file of a source."""

    path: str
    bytes: int
    sha256: str


class FetchedSource(_Result):
    """A source as it was fetched."""

    source: str
    sha256: str | None
    bytes: int
    licence: str
    attribution: str | None
    retrieved: str
    files: list[SourceFile]


class Manifest(_Result):
    """``manifest.json`` of the download stage."""

    sources: list[FetchedSource]
