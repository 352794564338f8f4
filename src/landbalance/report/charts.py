"""Charts by matplotlib, for light and dark, wide and narrow screens: training, confusion, calibration."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from landbalance.report.pictures import data_address
from landbalance.report.results import Calibration, Metrics
from landbalance.report.units import decimal, percent, plural

# Okabe and Ito's colours, which colour-blind readers can tell apart, darkened where white ground asks for it.
INK, FAINT, GROUND = "#1f2933", "#d5dbe1", "#ffffff"
COLOURS = ("#0072b2", "#c05a00", "#007a5a", "#a0457d", "#5b6770")
FIRST, SECOND, THIRD = COLOURS[:3]
_DARK = dict(
    zip(
        (INK, FAINT, GROUND, *COLOURS),
        ("#e4e9ee", "#3b4651", "#14191f", "#56b4e9", "#e69f00", "#2fc79b", "#e39ac4", "#a9b4bf"),
        strict=True,
    )
)
"""The same colours for a dark ground."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "landbalance",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "hatch.linewidth": 0.8,
    "grid.color": FAINT,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor", "hatch.color"), INK
    ),
}


Draw = Callable[[bool], Figure]
"""Draws a chart; True asks for a narrow one."""


@dataclass(frozen=True)
class Chart:
    """A chart as data addresses of SVG files; the browser picks one."""

    light: str
    dark: str
    narrow_light: str
    narrow_dark: str
    alt: str


def chart(draw: Draw, alt: str) -> Chart:
    """Return a chart for light and dark, wide and narrow screens."""
    wide, narrow = (svg(draw, narrow, text="none") for narrow in (False, True))
    light, dark, narrow_light, narrow_dark = (
        data_address(picture, "image/svg+xml") for picture in (wide, darkened(wide), narrow, darkened(narrow))
    )
    return Chart(light, dark, narrow_light, narrow_dark, alt)


def svg(draw: Draw, narrow: bool = False, background: str = "none", text: str = "path") -> bytes:
    """Return a chart as an SVG file that is the same bytes every time.

    Parameters
    ----------
    text : str
        ``path`` draws letters, so that they look alike everywhere; ``none`` writes them as text: a fifth of the size.
    """
    with matplotlib.rc_context({**_STYLE, "svg.fonttype": text}):
        buffer = io.BytesIO()
        figure = draw(narrow)
        figure.savefig(buffer, format="svg", facecolor=background, bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def darkened(picture: bytes) -> bytes:
    """Return an SVG file of `svg` with its colours changed for a dark ground."""
    found = re.compile("|".join(_DARK).encode())
    return found.sub(lambda colour: _DARK[colour[0].decode()].encode(), picture)


def curves_figure(history: pd.DataFrame, narrow: bool) -> Figure:
    """Return the loss of train and validation, and the validation accuracy, by epoch."""
    figure = Figure(figsize=(4.6, 5.6) if narrow else (9.0, 3.2), layout="constrained")
    loss, accuracy = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
    marker = "o" if len(history) <= 12 else None
    epochs = history["epoch"].to_numpy()
    loss.plot(epochs, _numbers(history["train_loss"]), color=FIRST, marker=marker, label="train")
    loss.plot(epochs, _numbers(history["validation_loss"]), color=SECOND, marker=marker, ls="--", label="validation")
    loss.set(title="Loss", xlabel="epoch")
    loss.legend(frameon=False)
    accuracy.plot(epochs, _numbers(history["validation_accuracy"]), color=SECOND, marker=marker, ls="--")
    accuracy.set(title="Validation accuracy", xlabel="epoch")
    accuracy.yaxis.set_major_formatter(percent_labels())
    for axes in (loss, accuracy):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
    return figure


def percent_labels() -> PercentFormatter:
    """Return a new formatter: matplotlib ties each to one axis."""
    return PercentFormatter(1.0, symbol="\u00a0%")


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64)


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


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def calibration_figure(calibration: Calibration, narrow: bool) -> Figure:
    """Return the reliability curve, and how many samples its points stand for."""
    figure = Figure(figsize=(4.6, 5.0) if narrow else (5.6, 5.0), layout="constrained")
    curve, counts = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    curve.plot([0, 1], [0, 1], color=INK, lw=1, ls=":", label="as often right as sure")
    filled = [item for item in calibration.bins if item.samples]
    sure = [item.confidence for item in filled]
    curve.plot(sure, [item.accuracy for item in filled], "o-", color=FIRST, label="this network")
    curve.set(ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    curve.legend(frameon=False, loc="upper left")
    lows, widths = [item.low for item in calibration.bins], [item.high - item.low for item in calibration.bins]
    total = max(sum(item.samples for item in calibration.bins), 1)
    shares = [item.samples / total for item in calibration.bins]
    counts.bar(lows, shares, widths, align="edge", color=FIRST, edgecolor=GROUND, linewidth=1)
    counts.set(xlabel="confidence", ylabel="share of all")
    for axes in (curve, counts):
        axes.yaxis.set_major_formatter(percent_labels())
        axes.grid(axis="y")
        axes.set_axisbelow(True)
    counts.xaxis.set_major_formatter(percent_labels())
    return figure


def calibration_text(calibration: Calibration) -> str:
    """Return in words what the reliability curve shows."""
    points = [
        f"{percent(item.accuracy)} right at {percent(item.confidence)} confidence ({plural(item.samples, 'sample')})"
        for item in calibration.bins
        if item.samples
    ]
    return "; ".join(points) + "." if points else "No test sample has a label."
