"""The comparison of arms: one table, one picture, one page."""

import csv
import io
import logging
from dataclasses import asdict, dataclass
from typing import get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from landbalance.config import Config
from landbalance.config.learning import Arm
from landbalance.files import placed, write_json, write_text
from landbalance.layout import Layout
from landbalance.report import charts
from landbalance.report.cells import Cell, read_cells
from landbalance.report.page import render
from landbalance.report.units import duration, percent, rounded

_log = logging.getLogger(__name__)

_MARKS = {"equal": "s", "unweighted": "^", "balanced": "o"}
_APART = 0.22


@dataclass(frozen=True)
class Panel:
    """A column of the picture: a figure of each cell with its standard deviation."""

    title: str
    value: str
    share: bool = False


_PANELS = (
    Panel("Test accuracy", "accuracy", share=True),
    Panel("Samples per second", "samples_per_second"),
    Panel("Seconds to the accuracy asked", "seconds_to_level"),
)


@dataclass(frozen=True)
class Work:
    """Cells of one dataset and model."""

    dataset: str
    model: str
    cells: list[Cell]

    @property
    def level(self) -> float | None:
        """Return the validation accuracy that is timed; None until a run has validated."""
        return next((cell.level for cell in self.cells if cell.level is not None), None)


def run_compare(config: Config, layout: Layout) -> None:
    """Write ``arms.csv``, ``arms.json``, ``arms.svg`` and ``index.html``; cells not run yet are shown as missing.

    Raises
    ------
    UserError
        When a file of a finished experiment is missing or damaged.
    """
    cells, folder = read_cells(config, layout), layout.compare()
    works = _works(cells)
    write_text(folder / "arms.csv", _csv(cells))
    write_json(folder / "arms.json", {"cells": [asdict(cell) for cell in cells]})

    def draw(narrow: bool) -> Figure:
        return figure(works, narrow)

    with placed(folder / "arms.svg") as temporary:
        temporary.write_bytes(charts.svg(draw, background="white"))
    page = render(
        "compare.html",
        ["tables.js"],
        title=config.report.title,
        works=works,
        chart_of_arms=charts.chart(draw, _text(cells)),
        missing=[name for cell in cells for name in cell.missing],
        emulated=any(cell.emulated for cell in cells),
    )
    write_text(folder / "index.html", page)
    total = sum(len(cell.experiments) for cell in cells)
    _log.info("comparison: %s, %d of %d experiments", folder / "index.html", sum(cell.done for cell in cells), total)


def _works(cells: list[Cell]) -> list[Work]:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.dataset, cell.model), []).append(cell)
    return [Work(*work, members) for work, members in found.items()]


def _csv(cells: list[Cell]) -> str:
    text = io.StringIO()
    rows = [asdict(cell) | {"runs": cell.done} for cell in cells]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: " ".join(value) if isinstance(value, list) else value for key, value in row.items()})
    return text.getvalue()


def figure(works: list[Work], narrow: bool) -> Figure:
    """Return a row of panels for each dataset and model: by kind of node, a mark for each arm."""
    rows, columns = (len(works) * len(_PANELS), 1) if narrow else (len(works), len(_PANELS))
    drawing = Figure(figsize=(4.6, 2.4 * rows) if narrow else (9.6, 2.6 * rows), layout="constrained")
    axes = drawing.subplots(rows, columns, squeeze=False).flatten().tolist()
    for number, work in enumerate(works):
        for column, panel in enumerate(_PANELS):
            _draw(axes[number * len(_PANELS) + column], work, panel)
    handles = [
        Line2D([], [], ls="", marker=_MARKS[arm], color=colour, label=arm)
        for arm, colour in zip(get_args(Arm), charts.COLOURS, strict=False)
    ]
    drawing.legend(handles=handles, frameon=False, loc="outside lower right", ncols=3)
    return drawing


def _draw(axes: Axes, work: Work, panel: Panel) -> None:
    nodes = list(dict.fromkeys(cell.nodes for cell in work.cells))
    for number, (arm, colour) in enumerate(zip(get_args(Arm), charts.COLOURS, strict=False)):
        for cell in work.cells:
            value = getattr(cell, panel.value)
            if cell.arm == arm and value is not None:
                place = nodes.index(cell.nodes) + _APART * (number - 1)
                spread = getattr(cell, f"{panel.value}_sd")
                axes.errorbar(place, value, spread, fmt=_MARKS[arm], color=colour, capsize=3)
    emulated = {cell.nodes for cell in work.cells if cell.emulated}
    axes.set_xticks(range(len(nodes)), [f"{node}\nemulated" if node in emulated else node for node in nodes])
    axes.set(title=f"{panel.title}\n{work.dataset}, {work.model}", xlim=(-0.5, len(nodes) - 0.5))
    if panel.share:
        axes.yaxis.set_major_formatter(charts.percent_labels())
    else:
        axes.set_ylim(0, None)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _text(cells: list[Cell]) -> str:
    """Return in words what the picture shows."""
    parts = [
        f"{cell.dataset}, {cell.model}, {cell.nodes}, {cell.arm}: accuracy {percent(cell.accuracy)}, "
        f"{rounded(cell.samples_per_second)} samples per second, {duration(cell.seconds_to_level)} to that accuracy"
        for cell in cells
        if cell.done
    ]
    return "; ".join(parts) + "." if parts else "No experiment has been run yet."
