"""The profile file: how long a training step takes on each worker of a node, by batch size."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from landbalance.config.base import Positive, Settings
from landbalance.config.checks import checked
from landbalance.files import read_json

Seconds = Annotated[float, Field(ge=0)]


class Machine(Settings):
    """Where the timings were taken."""

    processor: str
    cores: int
    memory_bytes: int
    python: str
    torch: str
    driver: str | None = Field(None, description="Version of the GPU driver; None without a GPU.")
    clock_policy: str | None = Field(None, description="Frequency governor of the processor; None when not told.")
    libraries: dict[str, str] = Field(default_factory=dict, description="What computes: library and version.")


class Memory(Settings):
    """How much memory a step takes on one worker, as a straight line through measured peaks."""

    bytes_per_sample: float
    limit_bytes: int = Field(description="What this worker may take for its samples, the reserve taken off.")
    batch_sizes: list[Positive] = Field(description="Batch sizes whose steps were watched, ascending.")
    peak_bytes: list[int] = Field(description="Growth of the peak over what stood before the first step, at each size.")


class Curve(Settings):
    """Timings of one kind of worker, taken while all workers of the node computed."""

    title: str = Field(description="Name for tables; says `emulated` where the worker is.")
    device: Literal["cpu", "cuda"]
    device_name: str = Field(description="What the system calls the device.")
    count: Positive = Field(description="Workers of this kind on a node.")
    emulated: bool
    batch_sizes: list[Positive] = Field(min_length=1, description="Measured batch sizes, ascending.")
    seconds: list[list[Seconds]] = Field(
        description="Raw times of computing at each batch size: forward, backward and update, no loading, no waiting."
    )
    largest_batch: Positive | None = Field(description="The most samples that fit in memory; None when not known.")
    threads: Positive | None = Field(None, description="CPU threads that the worker really used.")
    memory: Memory | None = Field(None, description="What `largest_batch` follows from.")


class Round(Settings):
    """Training steps that all workers of the node took together at given shares."""

    samples: list[Annotated[int, Field(ge=0)]] = Field(description="Share of each worker, by its place on the node.")
    step_seconds: list[Seconds] = Field(description="Raw times of whole steps, the slowest worker's.")
    apart_seconds: list[Seconds] = Field(
        description="Raw times of the same shares without any communication, the slowest worker's; empty when not "
        "measured."
    )


class AllReduce(Settings):
    """Time to sum this model's gradient over the node's workers."""

    backend: str
    world_size: Positive
    gradient_bytes: Positive
    seconds: list[Seconds] = Field(description="Raw times of summing all of the gradient in one group of workers.")
    way: str = Field("flat", description="How steps summed it: one of the ways of landbalance.distributed.reduction.")
    way_seconds: list[Seconds] = Field(
        default_factory=list, description="Raw times of summing all of it this way; empty when that is `flat`."
    )
    latency_seconds: list[Seconds] = Field(description="Raw times of summing a single number.")
    collectives_per_step: int = Field(
        description="Small collectives that a step waits for besides the gradient: of batch norms, and of weights."
    )
    bytes: list[Positive] = Field(default_factory=list, description="Sizes of the sums that were timed.")
    timings: list[list[Seconds]] = Field(default_factory=list, description="Raw times of each of these sizes.")
    latency: float | None = Field(None, description="Fitted seconds of an empty sum.")
    bytes_per_second: float | None = Field(None, description="Fitted bandwidth; None when size made no difference.")
    hidden: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="Share of the time for summing the gradient by itself that does not lengthen a step, as measured "
        "by steps with and without communication; None when not measured.",
    )

    def seconds_by(self, ways: Collection[str]) -> list[float]:
        """Return the raw times of summing all of the gradient: by `way`, or flat if that is not of `ways`."""
        return self.way_seconds if self.way_seconds and self.way in ways else self.seconds


class NodeProfile(Settings):
    """The profile of one kind of node for one model on one dataset's tiles."""

    format: Literal[1] = 1
    dataset: str
    model: str
    node: str
    measured: str = Field(description="When, as ISO 8601.")
    machine: Machine
    bands: Positive
    tile_size: Positive
    curves: list[Curve] = Field(description="One per entry of the node's `workers`, in that order.")
    rounds: list[Round] = Field(default_factory=list, description="Steps that the workers took together.")
    allreduce: AllReduce | None = Field(description="None when the node has a single worker.")
    watts: float | None = Field(
        None,
        description="Mean power of the node's processors and of its workers' GPUs while steps were timed; None where "
        "they do not count their energy.",
    )
    depends_on: dict[str, str] = Field(
        default_factory=dict, description="What the timings depend on: measured again when any of it changes."
    )


def read_profile(path: Path) -> NodeProfile:
    """Return the profile in `path`; a missing or unfitting file is a `UserError`."""
    return checked(NodeProfile, read_json(path), str(path))


@dataclass(frozen=True)
class Typical:
    """What raw timings say.

    Attributes
    ----------
    median : float
        The location estimate, in seconds.
    low, high : float
        Its 95 % confidence interval; 0 and infinity where there are too few timings for one.
    outliers : tuple of float
        Timings that were left out of both.
    """

    median: float
    low: float
    high: float
    outliers: tuple[float, ...]

    @property
    def half_width(self) -> float:
        """Return half the width of the interval as a fraction of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else math.inf


def typical(timings: Sequence[float]) -> Typical:
    """Return the location of raw timings and how sure it is.

    An outlier is a timing more than three interquartile ranges above the upper or below the lower
    quartile ("far out" of Tukey, Exploratory Data Analysis, 1977, section 2D); so at most half of
    the timings can be outliers. The location is the median of the others. Its interval lies between two
    order statistics, with ranks by the binomial distribution (Hahn and Meeker, Statistical Intervals, 1991,
    section 5.2): it holds for any distribution, and needs six timings.

    Parameters
    ----------
    timings : sequence of float
        At least one.
    """
    values = sorted(timings)
    lower, upper = _quantile(values, 0.25), _quantile(values, 0.75)
    reach = 3 * (upper - lower)
    kept = [value for value in values if lower - reach <= value <= upper + reach]
    outliers = tuple(value for value in values if not lower - reach <= value <= upper + reach)
    rank = _interval_rank(len(kept))
    low, high = (kept[rank - 1], kept[-rank]) if rank else (0.0, math.inf)
    return Typical(_quantile(kept, 0.5), low, high, outliers)


def _quantile(values: Sequence[float], fraction: float) -> float:
    """Return a quantile of sorted values, linear between neighbours."""
    place = fraction * (len(values) - 1)
    index = min(int(place), len(values) - 2) if len(values) > 1 else 0
    above = values[min(index + 1, len(values) - 1)]
    return values[index] + (place - index) * (above - values[index])


def _interval_rank(count: int) -> int:
    """Return the largest r with P(Binomial(count, 1/2) < r) ≤ 2.5 %: 0 when there is none."""
    if count > 1000:  # the normal approximation; exact sums grow with the count
        return int((count - 1.96 * math.sqrt(count)) / 2)
    rank, below = 0, 0.0
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    return rank
