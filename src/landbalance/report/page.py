"""The report of one experiment: a self-contained HTML file, and its figures as files beside it."""

import base64
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from landbalance import __version__
from landbalance.config import ClassInfo, Config
from landbalance.errors import UserError
from landbalance.failures import Failure, failures_of
from landbalance.files import placed, write_text
from landbalance.layout import Layout
from landbalance.report import charts, pictures, team, units
from landbalance.report.content import Content, flattened, read_content
from landbalance.report.reproduce import Inputs
from landbalance.report.scenes import Layer, SceneView, read_scene
from landbalance.report.timeline import over_time, stretch
from landbalance.report.verdict import (
    accuracy_verdict,
    class_notes,
    difference_text,
    distance_text,
    exceeds,
    limit_warning,
    prediction_text,
    speed_rows,
    speed_verdict,
    team_text,
)

_log = logging.getLogger(__name__)

FILES_LISTED = 60
"""Most files of a source that the report lists; the manifest has them all."""

_THUMBNAIL = 640
"""Longest side of the map in the summary."""
_SPLITS = ("train", "validation", "test")


_GIVEN = Inputs()


def run(name: str, config: Config, layout: Layout, inputs: Inputs = _GIVEN) -> None:
    """Write the report of experiment `name` to ``layout.report(name)``.

    Beside it, in a folder called like the experiment, lie the figures as files: `FIGURES` as SVG and, for a dataset
    with scenes, ``map.png`` (its first scene).

    Parameters
    ----------
    inputs : Inputs
        The files that the report says its results were made from.

    Raises
    ------
    UserError
        When results that the report shows are missing, damaged or of another configuration.
    """
    if name == "index":
        raise UserError("experiments.index: the overview is called index.html; give the experiment another name.")
    content = read_content(name, config, layout, inputs)
    failures = failures_of(name, config, layout)
    unmapped = {failure.scene for failure in failures if failure.stage == "map"}
    views = [_view(scene, content, config, layout) for scene in content.dataset.scenes if scene not in unmapped]
    drawn = _drawn(content)
    _write_figures(content, drawn, views, layout)
    html = render_page(content, drawn, views, layout, failures)
    write_text(layout.report(name), html)
    _log.info("report of %s: %s, %s", name, layout.report(name), units.data_size(len(html.encode())))


def _view(scene: str, content: Content, config: Config, layout: Layout) -> SceneView:
    dataset = content.experiment.dataset
    return read_scene(
        scene,
        content.dataset,
        layout.download(dataset),
        layout.map(content.name, scene),
        layout.tile(dataset) / "index.parquet",
        config.report.picture_pixels,
        {
            name: layout.map_product(content.name, scene, f"{name}.tif")
            for name in getattr(config.map, "uncertainty", [])
        },
    )


@dataclass(frozen=True)
class Drawn:
    """A chart that can be drawn, and what it says in words."""

    draw: charts.Draw
    text: str


def _drawn(content: Content) -> dict[str, Drawn]:
    """Return the charts of a report by the name of their file; all reports have the same."""
    used, times, batch = content.plan.used, content.times, content.plan.batch_size
    shown, table = stretch(content.timing, batch), over_time(content.timing, batch)
    history, metrics, plan = content.history, content.metrics, content.plan
    return {
        "confusion": Drawn(lambda narrow: charts.confusion_figure(metrics), "Confusion matrix."),
        "calibration": Drawn(
            lambda narrow: charts.calibration_figure(metrics.calibration, narrow),
            charts.calibration_text(metrics.calibration),
        ),
        "curves": Drawn(lambda narrow: charts.curves_figure(history, narrow), charts.curves_text(history)),
        "workers": Drawn(lambda narrow: team.workers_figure(used, times, narrow), team.workers_text(used, times)),
        "timeline": Drawn(lambda narrow: team.timeline_figure(used, shown, narrow), team.timeline_text(used, shown)),
        "shares": Drawn(lambda narrow: team.shares_figure(used, table, narrow), team.shares_text(used, table)),
        "speed": Drawn(
            lambda narrow: team.speed_figure(plan, times, content.speed, narrow),
            team.speed_text(plan, times, content.speed),
        ),
    }


def _write_figures(content: Content, drawn: dict[str, Drawn], views: list[SceneView], layout: Layout) -> None:
    folder = layout.report(content.name).with_suffix("")
    figures = {f"{name}.svg": charts.svg(figure.draw, background="white") for name, figure in drawn.items()}
    if views:
        figures["map.png"] = pictures.map_png(views[0], content.dataset.classes)
    for file, picture in figures.items():
        with placed(folder / file) as temporary:
            temporary.write_bytes(picture)


@dataclass(frozen=True)
class LegendRow:
    """A class in a map's legend."""

    info: ClassInfo
    area: float
    share: float | None


@dataclass(frozen=True)
class SceneFigure:
    """A scene's pictures as data addresses, with its legend."""

    view: SceneView
    scene_address: str
    map_address: str
    layer_addresses: list[tuple[Layer, str]]
    ramp: str
    legend: list[LegendRow]
    mapped: float


def _scene_figure(view: SceneView, classes: list[ClassInfo]) -> SceneFigure:
    mapped = sum(view.areas)
    return SceneFigure(
        view=view,
        scene_address=pictures.scene_address(view.picture),
        map_address=pictures.map_address(view.classes, classes),
        layer_addresses=[(layer, pictures.layer_address(layer)) for layer in view.layers],
        ramp=pictures.ramp_css(),
        legend=[
            LegendRow(info, area, area / mapped if mapped else None)
            for info, area in zip(classes, view.areas, strict=True)
        ],
        mapped=mapped,
    )


def _baseline_text(content: Content) -> str | None:
    baseline = content.metrics.baseline
    if baseline is None:
        return None
    return f"The network less the {baseline.name}: {difference_text(baseline.comparison, content.sample)}."


def render_page(
    content: Content,
    drawn: dict[str, Drawn],
    views: list[SceneView],
    layout: Layout,
    failures: Sequence[Failure] = (),
) -> str:
    """Return the HTML of an experiment's report."""
    classes = content.dataset.classes
    metrics = content.metrics
    shown = stretch(content.timing, content.plan.batch_size)
    in_table = {"confusion"}
    return render(
        "page.html",
        content=content,
        failures=failures,
        scenes=[_scene_figure(view, classes) for view in views],
        thumbnail=pictures.map_address(views[0].classes, classes, _THUMBNAIL) if views else None,
        accuracy_verdict=accuracy_verdict(metrics, content.sample),
        class_notes=class_notes(metrics, content.sample),
        distance_text=distance_text(metrics.distance, content.sample) if metrics.distance else None,
        baseline_text=_baseline_text(content),
        team=team_text(content.plan),
        speed_verdict=speed_verdict(content),
        limit_warning=limit_warning(content),
        speed_rows=speed_rows(content),
        prediction_text=prediction_text(content),
        charts={name: charts.chart(figure.draw, figure.text) for name, figure in drawn.items() if name not in in_table},
        shown=shown if len(shown.rows) else None,
        lanes=len(team.lanes(content.plan.used)),
        settings=flattened(content.run.settings),
        versions=flattened(content.run.versions),
        seeds=[("training", content.training.seed), ("split", content.dataset.split.seed)],
        splits=_SPLITS,
        column_totals=[sum(column) for column in zip(*metrics.confusion, strict=True)],
        total=sum(map(sum, metrics.confusion)),
        manifest_path=layout.download(content.experiment.dataset) / "manifest.json",
        files_listed=FILES_LISTED,
        scripts=["map.js", "tables.js"] if views else ["tables.js"],
    )


def render(template: str, scripts: Sequence[str], **values: Any) -> str:
    """Return one of the package's templates filled in; every value is escaped, and only `scripts` may run."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("landbalance.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (
        units.count,
        units.data_size,
        units.decimal,
        units.decimal_interval,
        units.duration,
        units.factor,
        units.hectares,
        units.interval,
        units.moment,
        units.distance,
        units.percent,
        units.plural,
        units.rounded,
        units.signed_points,
    ):
        environment.filters[function.__name__] = function
    environment.filters["exceeds"] = exceeds
    environment.filters["difference_text"] = difference_text
    own = [_own(name) for name in scripts]
    return environment.get_template(template).render(
        style=_own("style.css"),
        scripts=own,
        digests=" ".join(f"'{_digest(script)}'" for script in own),
        version=__version__,
        **values,
    )


def _own(name: str) -> Markup:
    """Return a file of this package to put into a page as it is."""
    return Markup((files("landbalance.report") / name).read_text(encoding="utf-8"))  # noqa: S704 -- our own


def _digest(script: str) -> str:
    """Return what a content security policy calls an inline script: no other script may run in the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
