"""Pictures: charts by matplotlib (light and dark, wide and narrow), and images of scenes and maps."""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray
from PIL import Image

from landbalance.config import ClassInfo
from landbalance.plans import PlannedWorker
from landbalance.report.results import Metrics
from landbalance.report.scenes import NO_CLASS, SceneView
from landbalance.report.speed import StepTimes, WorkerTime
from landbalance.report.units import decimal, distance, duration, percent, plural

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_BLUE, _ORANGE, _GREEN, _SKY = "#0072B2", "#E69F00", "#009E73", "#56B4E9"
_SMALL = 600
"""Pictures below this many pixels are enlarged by the browser, which would show what compression lost."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "landbalance",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.8,
}


@dataclass(frozen=True)
class Theme:
    """Colours of a chart: text and axes, faint lines, and two strong colours that go with them."""

    ink: str
    faint: str
    first: str
    second: str


LIGHT = Theme("#1f2933", "#d5dbe1", _BLUE, "#C05A00")
DARK = Theme("#e4e9ee", "#3b4651", _SKY, _ORANGE)

Draw = Callable[[Theme, bool], Figure]
"""Draws a chart with a theme; True asks for a narrow one."""


@dataclass(frozen=True)
class Chart:
    """A chart as data addresses of SVG files; the browser picks one."""

    light: str
    dark: str
    narrow_light: str
    narrow_dark: str
    alt: str


def chart(draw: Draw, alt: str) -> Chart:
    """Return a chart drawn for light and dark, wide and narrow screens."""
    light, dark, narrow_light, narrow_dark = (
        data_address(svg(draw, theme, narrow), "image/svg+xml") for narrow in (False, True) for theme in (LIGHT, DARK)
    )
    return Chart(light, dark, narrow_light, narrow_dark, alt)


def svg(draw: Draw, theme: Theme = LIGHT, narrow: bool = False, background: str = "none") -> bytes:
    """Return a chart as an SVG file that is the same bytes every time."""
    ink: dict[Any, Any] = {
        key: theme.ink
        for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor", "hatch.color")
    }
    with matplotlib.rc_context({**_STYLE, **ink, "grid.color": theme.faint}):
        buffer = io.BytesIO()
        figure = draw(theme, narrow)
        figure.savefig(buffer, format="svg", facecolor=background, bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def curves_figure(history: pd.DataFrame, theme: Theme, narrow: bool) -> Figure:
    """Return the loss of train and validation, and the validation accuracy, by epoch."""
    figure = Figure(figsize=(4.6, 5.6) if narrow else (9.0, 3.2), layout="constrained")
    loss, accuracy = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
    marker = "o" if len(history) <= 12 else None
    epochs = history["epoch"].to_numpy()
    loss.plot(epochs, _numbers(history["train_loss"]), color=theme.first, marker=marker, label="train")
    loss.plot(
        epochs, _numbers(history["validation_loss"]), color=theme.second, marker=marker, ls="--", label="validation"
    )
    loss.set(title="Loss", xlabel="epoch")
    loss.legend(frameon=False)
    accuracy.plot(epochs, _numbers(history["validation_accuracy"]), color=theme.second, marker=marker, ls="--")
    accuracy.set(title="Validation accuracy", xlabel="epoch")
    accuracy.yaxis.set_major_formatter(_percent_labels())
    for axes in (loss, accuracy):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
    return figure


def _percent_labels() -> PercentFormatter:
    """Return a new formatter: matplotlib ties each to one axis."""
    return PercentFormatter(1.0, symbol="\u00a0%")


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64)


def workers_figure(workers: list[PlannedWorker], times: StepTimes, theme: Theme, narrow: bool) -> Figure:
    """Return two bars per worker: its share of the batch, and how its median step passed."""
    height = 0.62 * len(workers) + 1.2
    figure = Figure(figsize=(4.6, 2 * height + 0.4) if narrow else (9.0, height), layout="constrained")
    if narrow:
        shares, passed = figure.subplots(2, 1)
    else:
        shares, passed = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    _share_bars(shares, workers, theme)
    _time_bars(passed, workers, times, theme)
    for axes in (shares, passed):
        axes.set_yticks(range(len(workers)), [_label(worker) for worker in workers])
        axes.set_ylim(len(workers) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    if not narrow:
        passed.tick_params(axis="y", labelleft=False)
    handles, labels = passed.get_legend_handles_labels()
    if handles:
        columns = 2 if narrow else 3
        figure.legend(handles, labels, frameon=False, loc="outside lower right", ncols=columns)
    return figure


def _label(worker: PlannedWorker) -> str:
    return f"{worker.rank} · {worker.node}\n" + worker.title.replace(", emulated", ",\nemulated")


def _share_bars(axes: Axes, workers: list[PlannedWorker], theme: Theme) -> None:
    total = max(sum(worker.share for worker in workers), 1)
    bars = axes.barh(range(len(workers)), [worker.share for worker in workers], 0.6, color=theme.first)
    labels = [f"{worker.share} ({percent(worker.share / total)})" for worker in workers]
    axes.bar_label(bars, labels, padding=4)
    axes.margins(x=0.45)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set(title="Share of the batch", xlabel="samples per step")


def _time_bars(axes: Axes, workers: list[PlannedWorker], times: StepTimes, theme: Theme) -> None:
    nothing = WorkerTime(0.0, 0.0, 0.0)
    rows = [times.workers.get(worker.rank if worker.rank is not None else -1, nothing) for worker in workers]
    milliseconds = max((row.total for row in rows), default=0.0) < 1
    scale = 1e3 if milliseconds else 1.0
    places = range(len(workers))
    left = np.zeros(len(rows))
    parts: list[tuple[str, list[float], dict[str, Any]]] = [
        ("computing", [row.compute for row in rows], {"color": theme.first}),
        ("waiting for others", [row.wait for row in rows], {"color": theme.second, "alpha": 0.55, "hatch": "///"}),
        ("loading and other", [row.other for row in rows], {"color": theme.faint}),
    ]
    for name, seconds, look in parts:
        # Less than 1 % of a step could not be seen.
        if max(seconds, default=0.0) > 0.01 * max((row.total for row in rows), default=0.0):
            values = scale * np.array(seconds)
            axes.barh(places, values, 0.6, left=left, label=name, linewidth=0, **look)
            left += values
    axes.set(title="A step, as it passed", xlabel=f"{'milliseconds' if milliseconds else 'seconds'} (median)")


def confusion_figure(metrics: Metrics) -> Figure:
    """Return the confusion matrix, each row (reference class) as shares of its samples."""
    matrix = np.array(metrics.confusion, np.float64)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = max(3.6, 0.55 * len(matrix) + 2)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = metrics.classes
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted", ylabel="reference")
    if len(names) <= 20:
        for (row, col), share in np.ndenumerate(shares):
            axes.text(
                col, row, f"{100 * share:.0f}", ha="center", va="center", color="white" if share > 0.6 else "#1f2933"
            )
    figure.colorbar(
        image, label="share of the reference class", format=PercentFormatter(1.0, symbol="\u00a0%"), shrink=0.8
    )
    return figure


def map_figure(view: SceneView, classes: list[ClassInfo]) -> Figure:
    """Return the scene and its map side by side with a legend and a scale bar, for print."""
    height, width = view.classes.shape
    across = width >= 1.6 * height
    figure = Figure(figsize=(9, 18 * height / width + 1.6) if across else (11, 5.5 * height / width + 1.2))
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(2, 1) if across else figure.subplots(1, 2)
    left.imshow(view.picture, interpolation="nearest")
    left.set_title(f"Scene: {view.name} ({', '.join(view.bands)})")
    right.imshow(map_colours(view.classes, classes), interpolation="nearest")
    right.set_title("Land cover")
    metres, share = view.scale_bar
    across_bar, down_bar = [0.03 * width, (0.03 + share) * width], [0.95 * height] * 2
    left.plot(across_bar, down_bar, color="white", lw=5, solid_capstyle="butt")
    left.plot(across_bar, down_bar, color="black", lw=3, solid_capstyle="butt")
    label_box = {"color": "white", "alpha": 0.7, "pad": 2}
    left.text(0.03 * width, 0.92 * height, distance(metres), color="black", bbox=label_box)
    for axes in (left, right):
        axes.set_axis_off()
    patches = [Patch(facecolor=item.colour, edgecolor="#555", label=item.name) for item in classes]
    figure.legend(
        handles=patches, loc="outside lower center", ncols=min(len(patches), 4 if across else 6), frameon=False
    )
    return figure


def map_png(view: SceneView, classes: list[ClassInfo]) -> bytes:
    """Return `map_figure` as a PNG file of 150 dots per inch."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        map_figure(view, classes).savefig(buffer, format="png", dpi=150, facecolor="white")
    return buffer.getvalue()


def map_colours(classes: NDArray[np.uint8], infos: list[ClassInfo]) -> NDArray[np.uint8]:
    """Return class indices (height, width) as RGBA (height, width, 4), transparent where there is no class."""
    return _palette(infos)[classes]


def _palette(infos: list[ClassInfo]) -> NDArray[np.uint8]:
    palette = np.zeros((256, 4), np.uint8)
    for number, info in enumerate(infos):
        palette[number] = (*(int(info.colour[at : at + 2], 16) for at in (1, 3, 5)), 255)
    return palette


def map_address(classes: NDArray[np.uint8], infos: list[ClassInfo], longest_side: int | None = None) -> str:
    """Return a map as the data address of a PNG file with a palette, at most `longest_side` pixels wide and high."""
    image = Image.fromarray(classes)
    if longest_side is not None:
        image.thumbnail((longest_side, longest_side), Image.Resampling.NEAREST)
    paletted = Image.frombytes("P", image.size, image.tobytes())
    paletted.putpalette(_palette(infos)[:, :3].tobytes())
    buffer = io.BytesIO()
    paletted.save(buffer, format="PNG", optimize=True, transparency=NO_CLASS)
    return data_address(buffer.getvalue(), "image/png")


def scene_address(picture: NDArray[np.uint8]) -> str:
    """Return a scene (RGBA) as the data address of a WebP file; a small one without loss."""
    buffer = io.BytesIO()
    small = max(picture.shape) < _SMALL
    Image.fromarray(picture).save(buffer, format="WEBP", lossless=small, quality=88, method=4)
    return data_address(buffer.getvalue(), "image/webp")


def data_address(content: bytes, kind: str) -> str:
    """Return `content` of MIME type `kind` as a ``data:`` address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def curves_text(history: pd.DataFrame) -> str:
    """Return in words what the training curves show, for those who cannot see them."""
    if history.empty:
        return "No epoch was trained."
    first, last = history.iloc[0], history.iloc[-1]
    epochs = plural(len(history), "epoch")
    text = f"Over {epochs} the training loss goes from {decimal(_known(first.train_loss))} to "
    text += decimal(_known(last.train_loss))
    accuracy = pd.to_numeric(history["validation_accuracy"], errors="coerce")
    if accuracy.notna().any():
        best = int(accuracy.argmax())
        text += f"; the validation accuracy ends at {percent(_known(accuracy.iloc[-1]))}"
        text += f", its best is {percent(float(accuracy.iloc[best]))} in epoch {history['epoch'].iloc[best]}"
    return f"{text}."


def workers_text(workers: list[PlannedWorker], times: StepTimes) -> str:
    """Return in words what the bars of the workers show."""
    parts = []
    for worker in workers:
        row = times.workers.get(worker.rank if worker.rank is not None else -1)
        told = f"computes {duration(row.compute)} and waits {duration(row.wait)}" if row else "has no timings"
        parts.append(f"Worker {worker.rank} ({worker.title}) gets {worker.share} samples, {told}")
    return "; ".join(parts) + "."


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)
