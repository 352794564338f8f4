"""The picture of a plan: how long each worker computes, and what other global batch sizes would give."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.files import placed
from landbalance.plan.batches import WELL_USED
from landbalance.plan.summary import shown_range, shown_seconds, worker_groups
from landbalance.plans import Plan, PlannedWorker

# Orange and blue of Okabe and Ito's palette: told apart with any kind of colour vision, and in grey.
_EQUAL, _PLAN = "#E69F00", "#0072B2"
_BAR = 0.38


def draw_plan(plan: Plan, equal: NDArray[np.int64], equal_seconds: NDArray[np.float64], target: Path) -> None:
    """Write the picture as SVG; the same plan gives the same bytes.

    Many workers are shown by kind, each bar the slowest of them.

    Parameters
    ----------
    plan : Plan
        The plan.
    equal : NDArray[np.int64]
        Equal shares, in the order of the plan's workers; shape (workers,).
    equal_seconds : NDArray[np.float64]
        Seconds of computing of those shares; shape (workers,).
    target : Path
        The SVG file.
    """
    import matplotlib
    from matplotlib.figure import Figure

    groups = worker_groups(plan)
    style: Any = {"svg.hashsalt": "landbalance", "font.family": "DejaVu Sans", "font.size": 9}
    with matplotlib.rc_context(style):
        heights = [1.2 + 0.5 * len(groups), 2.2]
        figure = Figure(figsize=(9, 0.8 + sum(heights)), layout="constrained")
        axes, below = figure.subplots(2, 1, height_ratios=heights)
        _draw_bars(axes, plan.workers, groups, equal, equal_seconds)
        _draw_steps(axes, plan)
        axes.set_yticks(range(len(groups)), [_label(plan.workers[members[0]], len(members)) for members in groups])
        axes.set_ylim(len(groups) - 0.45, -0.55)
        axes.set_xlim(0, 1.2 * max(plan.predicted.equal_step_seconds, plan.predicted.step_seconds))
        axes.set_xlabel("seconds of a step; the numbers at the bars are samples")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{plan.experiment}: {plan.batch_size} samples a step, arm {plan.arm}", loc="left")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.55 / heights[0]), ncols=2, frameon=False)
        _draw_batch_sizes(below, plan)
        with placed(target) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def _draw_bars(
    axes: Any,
    workers: list[PlannedWorker],
    groups: list[list[int]],
    equal: NDArray[np.int64],
    equal_seconds: NDArray[np.float64],
) -> None:
    place = np.arange(len(groups))
    of_equal = [float(equal_seconds[members].max()) for members in groups]
    of_plan = [max(workers[index].predicted_seconds for index in members) for members in groups]
    axes.barh(place - _BAR / 2, of_equal, _BAR, color=_EQUAL, label="computing, equal shares")
    axes.barh(place + _BAR / 2, of_plan, _BAR, color=_PLAN, label="computing, this plan")
    for row, members in enumerate(groups):
        _write(axes, of_equal[row], row - _BAR / 2, shown_range(equal[members].tolist()))
        left_out = workers[members[0]].left_out is not None
        share = "left out" if left_out else shown_range([workers[index].share for index in members])
        _write(axes, of_plan[row], row + _BAR / 2, share)


def _write(axes: Any, x: float, y: float, text: str) -> None:
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # the lines of the steps stay behind
    axes.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, bbox=ground)


def _draw_steps(axes: Any, plan: Plan) -> None:
    """Draw when a step is over, communication included."""
    predicted = plan.predicted
    for seconds, colour, style, name in (
        (predicted.equal_step_seconds, _EQUAL, (0, (4, 3)), "equal shares"),
        (predicted.step_seconds, _PLAN, "solid", "this plan"),
    ):
        label = f"step with communication, {name}: {shown_seconds(seconds)}"
        axes.axvline(seconds, color=colour, linestyle=style, linewidth=1.3, label=label)


def _draw_batch_sizes(axes: Any, plan: Plan) -> None:
    """Draw samples per second by global batch size; filled points use the platform well."""
    points = plan.batch_sizes
    best = max((point.samples_per_second for point in points), default=0.0)
    axes.plot([point.batch_size for point in points], [point.samples_per_second for point in points], color=_PLAN)
    for kept, face, name in (
        ([point for point in points if point.recommended], _PLAN, f"{100 * WELL_USED:.0f} % or more of the highest"),
        ([point for point in points if not point.recommended and not point.extrapolated], "white", "less than that"),
        ([point for point in points if point.extrapolated], "#BBBBBB", "a share beyond what was timed"),
    ):
        if kept:
            sizes, speeds = [point.batch_size for point in kept], [point.samples_per_second for point in kept]
            axes.plot(sizes, speeds, "o", color=_PLAN, markerfacecolor=face, label=name)
    axes.axvline(plan.batch_size, color=_EQUAL, linewidth=1.3, label=f"the plan's batch size, {plan.batch_size}")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 1.15 * best or 1.0)
    axes.set_xlabel("global batch size")
    axes.set_ylabel("samples/s")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)


def _label(worker: PlannedWorker, count: int) -> str:
    if count > 1:
        return f"{count} × {worker.node}\n{worker.title}"
    rank = "" if worker.rank is None else f"rank {worker.rank}: "
    return f"{rank}{worker.node}[{worker.node_index}]\n{worker.title}"
