"""The picture of a plan: how long each worker computes under equal shares and under the plan."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.files import placed
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
        figure = Figure(figsize=(9, 1.8 + 0.5 * len(groups)), layout="constrained")
        axes = figure.add_subplot()
        _draw_bars(axes, plan.workers, groups, equal, equal_seconds)
        _draw_steps(axes, plan)
        axes.set_yticks(range(len(groups)), [_label(plan.workers[members[0]], len(members)) for members in groups])
        axes.set_ylim(len(groups) - 0.45, -0.55)
        axes.set_xlim(0, 1.2 * max(plan.predicted.equal_step_seconds, plan.predicted.step_seconds))
        axes.set_xlabel("seconds of a step; the numbers at the bars are samples")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{plan.experiment}: {plan.batch_size} samples a step, arm {plan.arm}", loc="left")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
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


def _label(worker: PlannedWorker, count: int) -> str:
    if count > 1:
        return f"{count} × {worker.node}\n{worker.title}"
    rank = "" if worker.rank is None else f"rank {worker.rank}: "
    return f"{rank}{worker.node}[{worker.node_index}]\n{worker.title}"
