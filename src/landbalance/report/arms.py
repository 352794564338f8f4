"""The arms of a comparison side by side: how good their models are, and how fast they trained."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from landbalance.report.charts import FIRST, INK, SECOND, percent_labels
from landbalance.report.content import Content
from landbalance.report.units import duration, interval, percent


@dataclass(frozen=True)
class Bar:
    """A row of a panel: a measured figure, and its interval, prediction and limit where there are such."""

    measured: float | None
    interval: list[float] | None = None
    predicted: float | None = None


def arms_figure(contents: list[Content], narrow: bool) -> Figure:
    """Return three panels with a row per experiment: accuracy, time of a step, and the share of all speed reached."""
    height = 0.42 * len(contents) + 1.3
    figure = Figure(figsize=(4.6, 3 * height) if narrow else (9.6, height), layout="constrained")
    panels = figure.subplots(3, 1) if narrow else figure.subplots(1, 3, sharey=True)
    _rows(panels[0], [_accuracy(content) for content in contents])
    panels[0].set(title="Overall accuracy")
    panels[0].xaxis.set_major_formatter(percent_labels())
    _rows(panels[1], [Bar(c.times.median, predicted=c.plan.predicted.step_seconds) for c in contents])
    panels[1].set(title="Time of a step, seconds", xlim=(0, None))
    _rows(panels[2], [_speed(content) for content in contents])
    panels[2].axvline(1.0, color=INK, lw=1.5)
    panels[2].set(title="Share of all speed (Σs)", xlim=(0, None))
    panels[2].xaxis.set_major_formatter(percent_labels())
    for axes in panels if narrow else panels[:1]:
        axes.set_yticks(range(len(contents)), [f"{content.name}\n{content.experiment.arm}" for content in contents])
    for axes in panels:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_ylim(len(contents) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    handles = [
        Line2D([], [], marker="o", color=FIRST, label="measured, with interval"),
        Line2D([], [], ls="", marker="D", mfc="none", mec=SECOND, mew=1.5, label="predicted"),
    ]
    figure.legend(handles=handles, frameon=False, loc="outside lower right", ncols=2)
    return figure


def _accuracy(content: Content) -> Bar:
    return Bar(content.metrics.overall_accuracy, content.metrics.intervals.overall_accuracy)


def _speed(content: Content) -> Bar:
    return Bar(content.speed.fraction_of_total_speed, predicted=content.plan.predicted.fraction_of_total_speed)


def _rows(axes: Axes, bars: list[Bar]) -> None:
    for place, bar in enumerate(bars):
        if bar.interval is not None:
            axes.plot(bar.interval, [place, place], color=FIRST, lw=2, solid_capstyle="butt")
        if bar.predicted is not None:
            axes.plot(bar.predicted, place, "D", mfc="none", mec=SECOND, mew=1.5, ms=9)
        if bar.measured is not None:
            axes.plot(bar.measured, place, "o", color=FIRST, ms=7)
    axes.margins(x=0.1)


def arms_text(contents: list[Content]) -> str:
    """Return in words what the panels show."""
    parts = []
    for content in contents:
        accuracy = percent(content.metrics.overall_accuracy)
        if content.metrics.intervals.overall_accuracy:
            accuracy += f" ({interval(content.metrics.intervals.overall_accuracy)})"
        parts.append(
            f"{content.name} ({content.experiment.arm}): accuracy {accuracy}, step {duration(content.times.median)}, "
            f"{percent(content.speed.fraction_of_total_speed)} of all speed"
        )
    return "; ".join(parts) + "."
