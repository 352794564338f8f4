"""Charts of the workers: shares, how their time passed, and speed as predicted and as measured."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from landbalance.plans import Plan, PlannedWorker
from landbalance.report.charts import COLOURS, FAINT, FIRST, INK, SECOND, THIRD, percent_labels
from landbalance.report.speed import Speed, StepTimes, WorkerTime
from landbalance.report.timeline import ACTIVITIES, Stretch
from landbalance.report.units import duration, factor, percent

_LANES = 16
"""Most workers that a chart has a lane for."""
_NAMES = {
    "compute": "computing",
    "wait": "waiting for others",
    "communicate": "communication (estimated)",
    "other": "loading and other",
}
_LINES = ("-", "--", "-.", ":", (0, (1, 3)))


def lanes(workers: list[PlannedWorker]) -> list[PlannedWorker]:
    """Return the workers that the charts show: all of a small team; of a large one some of each kind, by rank."""
    if len(workers) <= _LANES:
        return workers
    kinds: dict[str, list[PlannedWorker]] = {}
    for worker in workers:
        kinds.setdefault(f"{worker.node} {worker.title}", []).append(worker)
    each = max(1, _LANES // len(kinds))
    shown = [worker for kind in kinds.values() for worker in kind[:each]][:_LANES]
    return sorted(shown, key=lambda worker: worker.rank or 0)


def workers_figure(workers: list[PlannedWorker], times: StepTimes, narrow: bool) -> Figure:
    """Return two bars per worker: its share of the batch, and how its median step passed."""
    total = max(sum(worker.share for worker in workers), 1)
    workers = lanes(workers)
    height = 0.62 * len(workers) + 1.2
    figure = Figure(figsize=(4.6, 2 * height + 0.4) if narrow else (9.0, height), layout="constrained")
    if narrow:
        shares, passed = figure.subplots(2, 1)
    else:
        shares, passed = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    _share_bars(shares, workers, total)
    _time_bars(passed, workers, times)
    for axes in (shares, passed):
        _lanes(axes, workers)
    if not narrow:
        passed.tick_params(axis="y", labelleft=False)
    _legend(figure, narrow, _present(times.workers.values()))
    return figure


def _lanes(axes: Axes, workers: list[PlannedWorker]) -> None:
    axes.set_yticks(range(len(workers)), [_label(worker) for worker in workers])
    axes.set_ylim(len(workers) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _label(worker: PlannedWorker) -> str:
    return f"{worker.rank} · {worker.node}\n" + worker.title.replace(", emulated", ",\nemulated")


def _look(activity: str) -> dict[str, Any]:
    """Return how an activity is drawn: told by colour and by hatching."""
    looks: dict[str, dict[str, Any]] = {
        "compute": {"facecolor": FIRST},
        "wait": {"facecolor": SECOND, "alpha": 0.55, "hatch": "///"},
        "communicate": {"facecolor": THIRD, "hatch": "\\\\\\\\"},
        "other": {"facecolor": FAINT},
    }
    return {**looks[activity], "linewidth": 0}


def _present(times: Any) -> list[str]:
    """Return the activities that take more than 1 % of some worker's step: less could not be seen."""
    rows = list(times)
    longest = max((row.total for row in rows), default=0.0)
    return [name for name in _NAMES if max((getattr(row, name) for row in rows), default=0.0) > 0.01 * longest]


def _legend(figure: Figure, narrow: bool, activities: Sequence[str]) -> None:
    handles = [Patch(label=_NAMES[name], **_look(name)) for name in activities]
    if handles:
        figure.legend(handles=handles, frameon=False, loc="outside lower right", ncols=1 if narrow else 4)


def _share_bars(axes: Axes, workers: list[PlannedWorker], total: int) -> None:
    bars = axes.barh(range(len(workers)), [worker.share for worker in workers], 0.6, color=FIRST)
    labels = [f"{worker.share} ({percent(worker.share / total)})" for worker in workers]
    axes.bar_label(bars, labels, padding=4)
    axes.margins(x=0.45)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set(title="Share of the batch", xlabel="samples per step")


def _time_bars(axes: Axes, workers: list[PlannedWorker], times: StepTimes) -> None:
    nothing = WorkerTime(0.0, 0.0, 0.0, 0.0)
    rows = [times.workers.get(worker.rank if worker.rank is not None else -1, nothing) for worker in workers]
    scale, unit = _unit(max((row.total for row in rows), default=0.0))
    left = np.zeros(len(rows))
    for name in _present(rows):
        values = scale * np.array([getattr(row, name) for row in rows])
        axes.barh(range(len(workers)), values, 0.6, left=left, **_look(name))
        left += values
    axes.set(title="A step, as it passed", xlabel=f"{unit} (median)")


def _unit(longest: float) -> tuple[float, str]:
    return (1e3, "milliseconds") if longest < 1 else (1.0, "seconds")


def workers_text(workers: list[PlannedWorker], times: StepTimes) -> str:
    """Return in words what the bars of the workers show."""
    parts = []
    for worker in lanes(workers):
        row = times.workers.get(worker.rank if worker.rank is not None else -1)
        told = (
            f"computes {duration(row.compute)}, waits {duration(row.wait)} and communicates {duration(row.communicate)}"
            if row
            else "has no timings"
        )
        parts.append(f"Worker {worker.rank} ({worker.title}) gets {worker.share} samples, {told}")
    return "; ".join(parts) + "."


def timeline_figure(workers: list[PlannedWorker], shown: Stretch, narrow: bool) -> Figure:
    """Return what each worker did in a few steps, one lane a worker, on a common time axis."""
    workers = lanes(workers)
    figure = Figure(figsize=(4.6 if narrow else 9.0, 0.5 * len(workers) + 1.5), layout="constrained")
    axes = figure.subplots()
    scale, unit = _unit(shown.starts[-1])
    for lane, worker in enumerate(workers):
        rows = shown.rows[shown.rows["rank"] == worker.rank]
        left = rows["start"].to_numpy(np.float64)
        for name in ACTIVITIES:
            seconds = rows[name].to_numpy(np.float64)
            axes.broken_barh(list(zip(scale * left, scale * seconds, strict=True)), (lane - 0.32, 0.64), **_look(name))
            left = left + seconds
    _lanes(axes, workers)
    for begin in shown.starts:
        axes.axvline(scale * begin, color=INK, lw=0.7)
    axes.set(xlim=(0, scale * max(shown.starts[-1], 1e-3)), xlabel=f"{unit} since the first of these steps began")
    present = [name for name in _NAMES if shown.rows[name].sum() > 0.002 * shown.starts[-1]]
    _legend(figure, narrow, present)
    return figure


def timeline_text(workers: list[PlannedWorker], shown: Stretch) -> str:
    """Return in words what the timeline shows."""
    parts = []
    for worker in lanes(workers):
        spent = shown.rows[shown.rows["rank"] == worker.rank][list(ACTIVITIES)].sum()
        whole = max(float(spent.sum()), 1e-12)
        told = ", ".join(f"{_NAMES[name]} {percent(float(spent[name]) / whole)}" for name in _NAMES)
        parts.append(f"Worker {worker.rank} ({worker.title}): {told}")
    return "; ".join(parts) + "."


def shares_figure(workers: list[PlannedWorker], table: pd.DataFrame, narrow: bool) -> Figure:
    """Return each worker's share of the batch, and its computing in a step, over the training."""
    workers = lanes(workers)
    figure = Figure(figsize=(4.6, 5.6) if narrow else (9.0, 3.2), layout="constrained")
    shares, computing = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
    scale, unit = _unit(float(table["compute"].max()) if len(table) else 0.0)
    for number, worker in enumerate(workers):
        rows = table[table["rank"] == worker.rank]
        look: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "ls": _LINES[(number // len(COLOURS) + number) % len(_LINES)],
            "marker": "o" if len(rows) <= 3 else None,
        }
        shares.plot(rows["progress"], rows["share"], label=f"{worker.rank} · {worker.title}", **look)
        computing.plot(rows["progress"], scale * rows["compute"], **look)
    shares.set(title="Share of the batch", ylim=(0, None))
    shares.yaxis.set_major_formatter(percent_labels())
    computing.set(title=f"Computing in a step, {unit}", ylim=(0, None))
    for axes in (shares, computing):
        axes.set_xlabel("epochs done")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
    figure.legend(frameon=False, loc="outside lower left", ncols=1 if narrow else 2)
    return figure


def shares_text(workers: list[PlannedWorker], table: pd.DataFrame) -> str:
    """Return in words how the shares went on."""
    parts = []
    for worker in lanes(workers):
        share = table[table["rank"] == worker.rank]["share"]
        if share.empty:
            continue
        same = share.max() - share.min() < 0.005
        told = (
            f"keeps {percent(share.iloc[-1])}"
            if same
            else f"goes from {percent(share.iloc[0])} to {percent(share.iloc[-1])}"
        )
        parts.append(f"Worker {worker.rank} ({worker.title}) {told} of the batch")
    return "; ".join(parts) + "." if parts else "No step was timed."


def speed_figure(plan: Plan, times: StepTimes, speed: Speed, narrow: bool) -> Figure:
    """Return predicted beside measured: the seconds of a step, and the speed-ups with their limits."""
    workers = lanes(plan.used)
    rows = [(f"step of worker {worker.rank}", worker.predicted_seconds, _compute(times, worker)) for worker in workers]
    rows = [
        ("whole step", plan.predicted.step_seconds, times.median),
        *[(f"computing, {n[8:]}", p, m) for n, p, m in rows],
    ]
    height = max(2.4, 0.34 * len(rows) + 1.2)
    figure = Figure(figsize=(4.6, height + 2.6) if narrow else (9.0, height), layout="constrained")
    seconds, ratios = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
    scale, unit = _unit(max(max(predicted, measured or 0.0) for _, predicted, measured in rows))
    _dumbbells(seconds, [(name, scale * p, None if m is None else scale * m) for name, p, m in rows])
    seconds.set(title="Time of a step", xlabel=f"{unit}, median")
    predicted = plan.predicted
    limits = [
        ("over equal shares, S", predicted.speedup_over_equal, speed.over_equal, predicted.speedup_over_equal_limit),
        (
            "over the fastest, G",
            predicted.speedup_over_fastest,
            speed.over_fastest,
            predicted.speedup_over_fastest_limit,
        ),
        ("of all workers' speed", predicted.fraction_of_total_speed, speed.fraction_of_total_speed, 1.0),
    ]
    _dumbbells(ratios, [(name, p, m) for name, p, m, _ in limits])
    for place, (*_, limit) in enumerate(limits):
        ratios.plot([limit, limit], [place - 0.3, place + 0.3], color=INK, lw=2)
    ratios.set(title="Speed-up", xlabel="times as fast")
    handles = [
        Line2D([], [], ls="", marker="D", mfc="none", mec=SECOND, mew=1.5, label="predicted"),
        Line2D([], [], ls="", marker="o", color=FIRST, label="measured"),
        Line2D([], [], ls="", marker="|", ms=12, mew=2, color=INK, label="limit"),
    ]
    figure.legend(handles=handles, frameon=False, loc="outside lower right", ncols=3)
    return figure


def _compute(times: StepTimes, worker: PlannedWorker) -> float | None:
    row = times.workers.get(worker.rank if worker.rank is not None else -1)
    return None if row is None else row.compute


def _dumbbells(axes: Axes, rows: list[tuple[str, float, float | None]]) -> None:
    """Draw a row for each name: predicted and measured, joined by a line."""
    for place, (_, predicted, measured) in enumerate(rows):
        if measured is not None:
            axes.plot([predicted, measured], [place, place], color=FAINT, lw=4, zorder=1, solid_capstyle="round")
            axes.plot(measured, place, "o", color=FIRST, ms=7, zorder=2)
        axes.plot(predicted, place, "D", mfc="none", mec=SECOND, mew=1.5, ms=9, zorder=3)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.margins(x=0.08)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def speed_text(plan: Plan, times: StepTimes, speed: Speed) -> str:
    """Return in words what the chart of speeds shows."""
    predicted = plan.predicted
    return (
        f"Step: predicted {duration(predicted.step_seconds)}, measured {duration(times.median)}. Speed-up over equal "
        f"shares: predicted {factor(predicted.speedup_over_equal)}, measured {factor(speed.over_equal)}, limit "
        f"{factor(predicted.speedup_over_equal_limit)}. Over the fastest worker alone: predicted "
        f"{factor(predicted.speedup_over_fastest)}, measured {factor(speed.over_fastest)}, limit "
        f"{factor(predicted.speedup_over_fastest_limit)}."
    )
