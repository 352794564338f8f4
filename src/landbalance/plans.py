"""The plan file: who trains with which share of the global batch, and what that promises."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from landbalance.config.base import Positive, Settings
from landbalance.config.checks import checked
from landbalance.config.learning import Arm
from landbalance.curves import TimeCurve
from landbalance.files import read_json


class PlannedCurve(Settings):
    """Seconds of computing by batch size, as `landbalance.curves.TimeCurve` has them."""

    samples: list[float] = Field(description="Batch sizes of the knots, ascending from 1.")
    seconds: list[float] = Field(description="Seconds at the knots.")
    slope: float = Field(description="Seconds per sample beyond the last knot.")
    cap: Positive | None = Field(description="The most samples computed at once; None: no limit.")
    measured: Positive = Field(description="The largest batch size that was timed.")


class PlannedWorker(Settings):
    """One process of the training job, or one that is better left out of it."""

    rank: int | None = Field(description="Rank in the training job; None when left out.")
    node: str = Field(description="Kind of node.")
    node_index: int = Field(description="Which node of that kind, from 0.")
    local_index: int = Field(description="Which worker of that node, from 0.")
    title: str = Field(description="Name for tables; says `emulated` where the worker is.")
    device: Literal["cpu", "cuda"]
    threads: Positive
    slowdown: float
    emulated: bool
    share: Annotated[int, Field(ge=0)] = Field(description="Samples of the global batch.")
    micro_batch: Positive | None = Field(
        description="The most samples computed at once; a larger share is accumulated. None: no limit."
    )
    speed: float = Field(description="Samples per second at its share, or at an equal share when left out.")
    predicted_seconds: float = Field(description="Predicted computation of one step.")
    curve: int | None = Field(None, description="Which of the plan's curves is this worker's; None: not known.")
    left_out: str | None = Field(description="Why the worker is not used; None when it is.")


class Prediction(Settings):
    """What the profiles promise; speed-ups always stand beside their limits."""

    step_seconds: float
    step_seconds_low: float | None = Field(
        None, description="Lower end of the 95 % interval of the step's median time; None when it is not known."
    )
    step_seconds_high: float | None = Field(None, description="Upper end of that interval.")
    communication_seconds: float = Field(description="Part of the step that is spent in communication.")
    epoch_seconds: float
    epoch_joules: float | None = Field(
        None, description="Energy of all nodes in use during an epoch; None where one of them did not count it."
    )
    equal_step_seconds: float = Field(description="Step time if all workers had equal shares.")
    fastest_alone_step_seconds: float = Field(description="Step time of the fastest worker on the whole batch.")
    speedup_over_equal: float = Field(description="S: equal_step_seconds / step_seconds.")
    speedup_over_equal_limit: float = Field(description="S_max = Σs / (p · min s).")
    speedup_over_fastest: float = Field(description="G: fastest_alone_step_seconds / step_seconds.")
    speedup_over_fastest_limit: float = Field(description="G_max = Σs / max s.")
    fraction_of_total_speed: float = Field(description="Samples per second reached, over Σs.")


class BatchPoint(Settings):
    """What a global batch size gives when it is shared as well as can be."""

    batch_size: Positive
    workers: Positive = Field(description="Workers that take part.")
    step_seconds: float
    samples_per_second: float
    fraction_of_best: float = Field(description="Samples per second, over the highest of all these sizes.")
    extrapolated: bool = Field(description="Whether a share is larger than any that was timed on its worker.")
    recommended: bool = Field(description="Whether the platform is used well, and no share is extrapolated.")


class Plan(Settings):
    """Shares of one experiment's global batch."""

    format: Literal[1] = 1
    experiment: str
    arm: Arm
    batch_size: Positive
    workers: list[PlannedWorker] = Field(description="Used workers by rank, then those left out.")
    predicted: Prediction
    batch_sizes: list[BatchPoint] = Field(
        default_factory=list,
        description="The plan's global batch size and others, ascending. Which one is taken stays with the user: it "
        "changes what is learned.",
    )
    notes: list[str] = Field(default_factory=list, description="What the figures do not show, a sentence each.")
    curves: list[PlannedCurve] = Field(
        default_factory=list, description="Step times by batch size, so that shares can move while training."
    )

    @property
    def used(self) -> list[PlannedWorker]:
        """Return the workers that train, by rank."""
        return [worker for worker in self.workers if worker.rank is not None]


def gpu_number(workers: Sequence[PlannedWorker], worker: PlannedWorker) -> int | None:
    """Return which of its node's GPUs a worker was profiled on, from 0; None if it computes on the CPU.

    GPUs of a node are given out in the order of its `workers`, those left out of the plan included.
    """
    if worker.device == "cpu":
        return None
    return sum(
        other.device == "cuda"
        and (other.node, other.node_index) == (worker.node, worker.node_index)
        and other.local_index < worker.local_index
        for other in workers
    )


def planned_curve(curve: TimeCurve) -> PlannedCurve:
    """Return a curve as the plan file holds it."""
    return PlannedCurve(
        samples=curve.sizes.tolist(),
        seconds=curve.times.tolist(),
        slope=curve.slope,
        cap=curve.cap,
        measured=curve.measured,
    )


def time_curve_of(plan: Plan, worker: PlannedWorker) -> TimeCurve | None:
    """Return the curve of a worker, or None where the plan does not hold it."""
    if worker.curve is None:
        return None
    curve = plan.curves[worker.curve]
    return TimeCurve(np.array(curve.samples), np.array(curve.seconds), curve.slope, curve.cap, curve.measured)


def read_plan(path: Path) -> Plan:
    """Return the plan in `path`; a missing or unfitting file is a `UserError`."""
    return checked(Plan, read_json(path), str(path))
