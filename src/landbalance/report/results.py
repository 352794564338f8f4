"""What the report reads of other stages' JSON files; keys that it does not show are passed over."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from landbalance.config.base import Settings
from landbalance.config.learning import Arm

Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
"""Lower and upper limit."""


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


class ClassIntervals(_Result):
    """Intervals of one class's accuracies; None where too few units tell of it."""

    producers_accuracy: Interval | None
    users_accuracy: Interval | None
    f1: Interval | None
    iou: Interval | None


class Intervals(_Result):
    """Confidence intervals of all measures, by resampling whole units."""

    level: float = Field(description="Share of the resamples that lies inside.")
    unit: Literal["block", "tile"]
    units: int
    resamples: int
    overall_accuracy: Interval | None
    kappa: Interval | None
    macro: ClassIntervals
    weighted: ClassIntervals
    per_class: list[ClassIntervals]


class Bin(_Result):
    """Test samples of about the same confidence; None where there are none."""

    low: float
    high: float
    samples: int
    confidence: float | None = Field(description="Mean confidence.")
    accuracy: float | None = Field(description="Share that is right.")


class Calibration(_Result):
    """How sure the network is, and how often it is right."""

    expected_error: float | None
    bins: list[Bin]


class Distance(_Result):
    """Distances from test samples to the nearest training pixel."""

    pixel: float | None = Field(description="Size of a pixel in units of the CRS.")
    quantiles: dict[str, float | None] = Field(description="In pixels, by share of the samples.")
    samples: int
    elsewhere: int = Field(description="Test samples in places where no training pixel is.")


class BaselineIntervals(_Result):
    """Intervals of the baseline's measures, as far as the report shows them."""

    overall_accuracy: Interval | None


class Difference(_Result):
    """The network's accuracy less the baseline's, on the same samples."""

    difference: float
    interval: Interval | None
    p_value: float = Field(description="McNemar's, by sample.")
    p_value_by_unit: float = Field(description="Of a randomisation test by unit.")
    unit: Literal["block", "tile"]
    units: int


class Baseline(_Result):
    """A plain classifier judged on the same test split."""

    name: str
    overall_accuracy: float | None
    kappa: float | None
    intervals: BaselineIntervals
    comparison: Difference
    train_pixels: int | None = None
    seconds: float | None = None


class RandomSplit(_Result):
    """How the baseline would score if samples had been split at random."""

    overall_accuracy: float | None
    optimism: float | None = Field(description="By how much that is more than with the split in use.")


class Metrics(_Result):
    """``metrics.json`` of the evaluate stage."""

    classes: list[str]
    confusion: list[list[int]] = Field(description="Rows are the reference, columns the prediction.")
    overall_accuracy: float | None
    kappa: float | None
    majority_share: float | None
    per_class: list[Scores]
    macro: Means
    weighted: Means
    baseline: Baseline | None
    intervals: Intervals
    calibration: Calibration
    distance: Distance | None
    random_split: RandomSplit | None


class Estimate(_Result):
    """A figure from a sample, with its confidence interval."""

    estimate: float
    interval: Interval


class AssessedClass(_Result):
    """What a sample says of one class."""

    name: str
    points_on_map: int
    mapped_hectares: float
    hectares: Estimate
    users_accuracy: Estimate | None
    producers_accuracy: Estimate | None


class Assessment(_Result):
    """Accuracy and areas by the points of a sample that a person labelled."""

    estimator: str
    level: float
    labelled_points: int
    overall_accuracy: Estimate
    classes: list[AssessedClass]
    warnings: list[str]


class ChangedShares(_Result):
    """Shares that moved while training."""

    step: int
    shares: list[int]
    reason: str


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
    changes: list[ChangedShares] = Field(default_factory=list)


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
