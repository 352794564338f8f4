"""How fast the training really was, beside what the plan promised."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from landbalance.plans import Plan


@dataclass(frozen=True)
class WorkerTime:
    """Medians over the counted steps of one worker, in seconds.

    `communicate` is the exchange with the others, `wait` is for those that are not there yet (see `divided`);
    `other` is loading and what no clock covers.
    """

    compute: float
    wait: float
    communicate: float
    other: float

    @property
    def total(self) -> float:
        """Return the length of the worker's bar."""
        return self.compute + self.wait + self.communicate + self.other


@dataclass(frozen=True)
class StepTimes:
    """Measured step times: median and quartiles over the counted steps, in seconds."""

    counted: int
    steps: int
    median: float | None
    low: float | None
    high: float | None
    workers: dict[int, WorkerTime]


def step_times(timing: pd.DataFrame, batch_size: int) -> StepTimes:
    """Return the step times in a run's ``timing.parquet``.

    The first step of each epoch, which starts its loading, and steps on fewer than `batch_size`
    samples (the last of an epoch) are left out, unless nothing would be left; ``run.json`` counts
    the same steps. A step lasts as long as its slowest worker.

    Parameters
    ----------
    timing : DataFrame
        A row per step and worker: epoch, step, rank, samples, compute_seconds, wait_seconds, step_seconds.
    """
    if timing.empty:
        return StepTimes(0, 0, None, None, None, {})
    rows = counted_steps(timing, batch_size)
    seconds = rows.groupby(["epoch", "step"])["step_seconds"].max()
    low, median, high = (float(value) for value in np.percentile(seconds, [25, 50, 75]))
    workers = {int(str(rank)): _worker_time(part) for rank, part in divided(rows).groupby("rank")}
    steps = timing.groupby(["epoch", "step"]).ngroups
    return StepTimes(len(seconds), steps, median, low, high, workers)


def counted_steps(timing: pd.DataFrame, batch_size: int) -> pd.DataFrame:
    """Return the rows of ``timing.parquet`` that stand for usual steps; see `step_times`."""
    steps = timing.groupby(["epoch", "step"], sort=True).agg({"samples": "sum"})
    whole = steps[steps["samples"] >= batch_size]
    later = whole[whole.index.get_level_values("step") > 0]
    counted = next((kept for kept in (later, whole) if not kept.empty), steps)
    return timing.set_index(["epoch", "step"]).loc[counted.index].reset_index()


def divided(timing: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with ``wait_seconds`` divided: what is left of it, and ``communicate_seconds``.

    A worker's clock counts all time in collectives as waiting. The worker that waits least in a step comes last to
    its collectives and waits for nobody: its time there is the exchange itself, which all others spend too.
    """
    exchange = timing.groupby(["epoch", "step"])["wait_seconds"].transform("min")
    return timing.assign(communicate_seconds=exchange, wait_seconds=timing["wait_seconds"] - exchange)


def _worker_time(rows: pd.DataFrame) -> WorkerTime:
    known = ["compute_seconds", "wait_seconds", "communicate_seconds"]
    rest = rows["step_seconds"] - rows[known].sum(axis=1)
    compute, wait, communicate = (float(rows[name].median()) for name in known)
    return WorkerTime(compute, wait, communicate, max(0.0, float(rest.median())))


def epoch_seconds(history: pd.DataFrame) -> float | None:
    """Return the median time of an epoch with its validation, in seconds; None without epochs.

    Parameters
    ----------
    history : DataFrame
        A row per epoch, in order; ``seconds`` counts from the start of training.
    """
    return float(np.median(np.diff(history["seconds"], prepend=0.0))) if len(history) else None


@dataclass(frozen=True)
class EqualRun:
    """The run with equal shares that a run is compared with, or why there is none."""

    experiment: str | None
    step_seconds: float | None
    reason: str | None


@dataclass(frozen=True)
class Speed:
    """Measured figures in the terms of the plan's prediction; None where they cannot be known."""

    over_equal: float | None
    over_fastest: float | None
    fraction_of_total_speed: float | None
    samples_per_second: float | None
    slower_than_predicted: float | None


def measured_speed(plan: Plan, times: StepTimes, equal: EqualRun) -> Speed:
    """Return speed-ups from the measured step time.

    `over_fastest` divides the profiled step time of the fastest worker alone, which is not run for
    an experiment. The total speed Σs is the plan's: samples per second promised, over its fraction.
    """
    if not times.median:
        return Speed(None, None, None, None, None)
    predicted = plan.predicted
    longer = times.median / predicted.step_seconds
    return Speed(
        over_equal=equal.step_seconds / times.median if equal.step_seconds else None,
        over_fastest=predicted.fastest_alone_step_seconds / times.median,
        fraction_of_total_speed=predicted.fraction_of_total_speed / longer,
        samples_per_second=plan.batch_size / times.median,
        slower_than_predicted=longer - 1,
    )


def team(plan: Plan) -> list[tuple[Any, ...]]:
    """Return what the plan's workers are, whatever their shares: two runs on equal teams compare."""
    return sorted((worker.node, worker.node_index, worker.local_index, worker.title) for worker in plan.workers)
