"""The report of one experiment: a self-contained HTML file, and its figures as files beside it."""

import base64
import hashlib
import logging
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from landbalance import __version__
from landbalance.config import ClassInfo, Config
from landbalance.errors import UserError
from landbalance.files import placed, write_text
from landbalance.layout import Layout
from landbalance.report import pictures, units
from landbalance.report.content import Content, flattened, read_content
from landbalance.report.scenes import SceneView, read_scene
from landbalance.report.verdict import (
    accuracy_verdict,
    class_notes,
    exceeds,
    limit_warning,
    speed_rows,
    speed_verdict,
    team_text,
)

_log = logging.getLogger(__name__)

FILES_LISTED = 60
"""Most files of a source that the report lists; the manifest has them all."""

_SPLITS = ("train", "validation", "test")


def run(name: str, config: Config, layout: Layout) -> None:
    """Write the report of experiment `name` to ``layout.report(name)``.

    Beside it, in a folder called like the experiment, lie the figures as files: ``confusion.svg``,
    ``curves.svg``, ``workers.svg`` and, for a dataset with scenes, ``map.png`` (its first scene).

    Raises
    ------
    UserError
        When results that the report shows are missing, damaged or of another configuration.
    """
    if name == "index":
        raise UserError("experiments.index: the overview is called index.html; give the experiment another name.")
    content = read_content(name, config, layout)
    longest = config.report.picture_pixels
    dataset = content.experiment.dataset
    views = [
        read_scene(
            scene,
            content.dataset,
            layout.download(dataset),
            layout.map(name, scene),
            layout.tile(dataset) / "index.parquet",
            longest,
        )
        for scene in content.dataset.scenes
    ]
    _write_figures(content, views, layout)
    html = render_page(content, views, layout)
    write_text(layout.report(name), html)
    _log.info("report of %s: %s, %s", name, layout.report(name), units.data_size(len(html.encode())))


def _write_figures(content: Content, views: list[SceneView], layout: Layout) -> None:
    folder = layout.report(content.name).with_suffix("")
    drawn = {
        "confusion.svg": pictures.svg(_confusion(content), background="white"),
        "curves.svg": pictures.svg(_curves(content), background="white"),
        "workers.svg": pictures.svg(_workers(content), background="white"),
    }
    if views:
        drawn["map.png"] = pictures.map_png(views[0], content.dataset.classes)
    for file, picture in drawn.items():
        with placed(folder / file) as temporary:
            temporary.write_bytes(picture)


def _confusion(content: Content) -> pictures.Draw:
    return lambda theme, narrow: pictures.confusion_figure(content.metrics)


def _curves(content: Content) -> pictures.Draw:
    return lambda theme, narrow: pictures.curves_figure(content.history, theme, narrow)


def _workers(content: Content) -> pictures.Draw:
    return lambda theme, narrow: pictures.workers_figure(content.plan.used, content.times, theme, narrow)


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
    legend: list[LegendRow]
    mapped: float


def _scene_figure(view: SceneView, classes: list[ClassInfo]) -> SceneFigure:
    mapped = sum(view.areas)
    return SceneFigure(
        view=view,
        scene_address=pictures.scene_address(view.picture),
        map_address=pictures.map_address(view.classes, classes),
        legend=[
            LegendRow(info, area, area / mapped if mapped else None)
            for info, area in zip(classes, view.areas, strict=True)
        ],
        mapped=mapped,
    )


def render_page(content: Content, views: list[SceneView], layout: Layout) -> str:
    """Return the HTML of an experiment's report."""
    classes = content.dataset.classes
    metrics = content.metrics
    return render(
        "page.html",
        content=content,
        scenes=[_scene_figure(view, classes) for view in views],
        thumbnail=pictures.map_address(views[0].classes, classes, 480) if views else None,
        accuracy_verdict=accuracy_verdict(metrics, content.sample),
        class_notes=class_notes(metrics, content.sample),
        team=team_text(content.plan),
        speed_verdict=speed_verdict(content),
        limit_warning=limit_warning(content),
        speed_rows=speed_rows(content),
        curves=pictures.chart(_curves(content), pictures.curves_text(content.history)),
        workers=pictures.chart(_workers(content), pictures.workers_text(content.plan.used, content.times)),
        settings=flattened(content.run.settings),
        versions=flattened(content.run.versions),
        seeds=[("training", content.training.seed), ("split", content.dataset.split.seed)],
        splits=_SPLITS,
        column_totals=[sum(column) for column in zip(*metrics.confusion, strict=True)],
        total=sum(map(sum, metrics.confusion)),
        target=layout.report(content.name),
        manifest_path=layout.download(content.experiment.dataset) / "manifest.json",
        files_listed=FILES_LISTED,
    )


def render(template: str, **values: Any) -> str:
    """Return one of the package's templates filled in; every value is escaped."""
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
        units.duration,
        units.factor,
        units.hectares,
        units.moment,
        units.distance,
        units.percent,
        units.plural,
        units.rounded,
    ):
        environment.filters[function.__name__] = function
    environment.filters["csp_digest"] = _csp_digest
    environment.filters["exceeds"] = exceeds
    return environment.get_template(template).render(
        style=Markup((files("landbalance.report") / "style.css").read_text(encoding="utf-8")),  # noqa: S704 -- our own
        version=__version__,
        **values,
    )


def _csp_digest(script: str) -> str:
    """Return what a content security policy calls an inline script: no other script may run in the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
