"""How the workers' time passed: a few steps one after another, and the whole training in parts."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from landbalance.report.speed import counted_steps, divided

_STEPS = 6
"""Steps of the stretch that is shown."""
_PARTS = 40
"""Most parts that the training is cut into."""
ACTIVITIES = ("other", "compute", "wait", "communicate")
"""What a worker does in a step, in the order in which it is drawn; the clocks keep sums, not the order."""


@dataclass(frozen=True)
class Stretch:
    """A few steps from the middle of the training.

    Parameters
    ----------
    epoch : int
        Counted from 1, as in the history.
    steps : tuple of int
        First and last step of the epoch that is shown, counted from 1.
    starts : list of float
        When each step begins, in seconds from the first one's begin; then when the last one ends.
    rows : DataFrame
        A row per step and worker: start, rank, and the seconds of each of `ACTIVITIES`.
    """

    epoch: int
    steps: tuple[int, int]
    starts: list[float]
    rows: pd.DataFrame


def stretch(timing: pd.DataFrame, batch_size: int) -> Stretch:
    """Return usual steps from the middle of the training, one after another; no rows where no step was timed.

    Parameters
    ----------
    timing : DataFrame
        ``timing.parquet``: epochs and steps counted from 0.
    """
    if timing.empty:
        return Stretch(0, (0, 0), [0.0], pd.DataFrame(columns=["start", "rank", *ACTIVITIES]))
    rows = _with_activities(counted_steps(timing, batch_size))
    epochs = rows["epoch"].unique()
    rows = rows[rows["epoch"] == epochs[len(epochs) // 2]]
    numbers = rows["step"].unique()
    first = max(0, (len(numbers) - _STEPS) // 2)
    rows = rows[rows["step"].isin(numbers[first : first + _STEPS])]
    lengths = rows.groupby("step")["step_seconds"].max()
    ends = lengths.cumsum()
    starts = dict(zip(lengths.index, ends - lengths, strict=True))
    rows = rows.assign(start=rows["step"].map(starts))
    return Stretch(
        epoch=int(rows["epoch"].iloc[0]) + 1,
        steps=(int(lengths.index[0]) + 1, int(lengths.index[-1]) + 1),
        starts=[*starts.values(), float(ends.iloc[-1])],
        rows=rows[["start", "rank", *ACTIVITIES]].reset_index(drop=True),
    )


def over_time(timing: pd.DataFrame, batch_size: int) -> pd.DataFrame:
    """Return how shares and times went on: a row per worker and part of the training.

    Returns
    -------
    DataFrame
        progress (epochs done at the part's middle), rank, share (of the part's samples), and the
        median seconds of each of `ACTIVITIES`.
    """
    if timing.empty:
        return pd.DataFrame(columns=["progress", "rank", "share", *ACTIVITIES])
    rows = _with_activities(counted_steps(timing, batch_size))
    steps = rows[["epoch", "step"]].drop_duplicates().sort_values(["epoch", "step"], ignore_index=True)
    per_epoch = int(timing["step"].max()) + 1
    steps["progress"] = steps["epoch"] + (steps["step"] + 0.5) / per_epoch
    steps["part"] = np.arange(len(steps)) * min(_PARTS, len(steps)) // len(steps)
    steps["progress"] = steps.groupby("part")["progress"].transform("mean")
    rows = rows.merge(steps, on=["epoch", "step"])
    grouped = rows.groupby(["part", "progress", "rank"])
    table = grouped[list(ACTIVITIES)].median().assign(samples=grouped["samples"].sum()).reset_index()
    table["share"] = table["samples"] / table.groupby("part")["samples"].transform("sum")
    return table[["progress", "rank", "share", *ACTIVITIES]]


def _with_activities(rows: pd.DataFrame) -> pd.DataFrame:
    rows = divided(rows)
    known = ["compute_seconds", "wait_seconds", "communicate_seconds"]
    other = (rows["step_seconds"] - rows[known].sum(axis=1)).clip(lower=0)
    return rows.rename(columns={name: name.removesuffix("_seconds") for name in known}).assign(other=other)
