"""The overview of all experiments, with the arms of a comparison side by side."""

import logging
from dataclasses import dataclass
from itertools import combinations
from typing import get_args

from landbalance.comparison import Comparison, Judged, compared, read_judged, require_same_samples
from landbalance.config import Config, Experiment
from landbalance.config.learning import Arm
from landbalance.errors import UserError
from landbalance.failures import failed_scenes
from landbalance.files import write_text
from landbalance.layout import Layout
from landbalance.report import charts
from landbalance.report.arms import arms_figure, arms_text
from landbalance.report.content import Content, finished, read_content
from landbalance.report.page import render
from landbalance.report.verdict import limit_warning

_log = logging.getLogger(__name__)

_FEWER = 0.5
"""A run of less than this share of its group's most epochs is marked."""


_FEW = 4
"""Experiments of a group up to which each is compared with each."""


@dataclass(frozen=True)
class Row:
    """An experiment; `content` is None when it has not been run."""

    name: str
    experiment: Experiment
    epochs: int
    content: Content | None
    reported: bool
    fewer_epochs: bool
    limit_warning: str | None


@dataclass(frozen=True)
class Pair:
    """Two experiments judged on the same test samples; `found` is None where the samples are not the same."""

    first: str
    second: str
    found: Comparison | None


@dataclass(frozen=True)
class Group:
    """Experiments that do the same work: one dataset, model and batch size."""

    dataset: str
    model: str
    batch_size: int
    rows: list[Row]
    chart: charts.Chart | None
    sample: str
    pairs: list[Pair]


def run_index(config: Config, layout: Layout) -> None:
    """Write ``index.html`` beside the reports: all experiments, also those not yet run, and failed scenes."""
    groups = _groups(config, layout)
    target = layout.report("index")
    failures = failed_scenes(config, layout)
    html = render("index.html", ["tables.js"], title=config.report.title, groups=groups, failures=failures)
    write_text(target, html)
    done = sum(row.content is not None for group in groups for row in group.rows)
    _log.info("overview: %s, %d of %d experiments have results", target, done, len(config.experiments))


def _groups(config: Config, layout: Layout) -> list[Group]:
    """Return the experiments grouped by their work; in a group by arm, then by name."""
    members: dict[tuple[str, str, int], list[str]] = {}
    for name, experiment in config.experiments.items():
        key = (experiment.dataset, experiment.model, config.training[experiment.training].batch_size)
        members.setdefault(key, []).append(name)
    return [_group(*key, names, config, layout) for key, names in sorted(members.items())]


def _group(dataset: str, model: str, batch_size: int, names: list[str], config: Config, layout: Layout) -> Group:
    rows = _rows(names, config, layout)
    done = [row.content for row in rows if row.content is not None]
    return Group(
        dataset=dataset,
        model=model,
        batch_size=batch_size,
        rows=rows,
        chart=charts.chart(lambda narrow: arms_figure(done, narrow), arms_text(done)) if done else None,
        sample=done[0].sample if done else "sample",
        pairs=_pairs(done, layout),
    )


def _pairs(contents: list[Content], layout: Layout) -> list[Pair]:
    """Return how the experiments compare: each with each if they are few, else each with the most accurate."""
    names = [content.name for content in contents]
    judged = {name: read_judged(layout.evaluate(name) / "predictions.parquet") for name in names}
    wanted = list(combinations(names, 2))
    if len(names) > _FEW:
        best = max(contents, key=lambda content: content.metrics.overall_accuracy or 0.0).name
        wanted = [(best, name) for name in names if name != best]
    return [Pair(first, second, _compared(judged, first, second)) for first, second in wanted]


def _compared(judged: dict[str, Judged], first: str, second: str) -> Comparison | None:
    try:
        require_same_samples(judged[first], judged[second], (first, second))
    except UserError as error:
        _log.warning("not compared: %s", error)
        return None
    return compared(judged[first], judged[second])


def _rows(names: list[str], config: Config, layout: Layout) -> list[Row]:
    arms = get_args(Arm)
    names = sorted(names, key=lambda name: (arms.index(config.experiments[name].arm), name))
    contents = {name: read_content(name, config, layout) if finished(name, layout) else None for name in names}
    epochs = {name: _epochs(name, contents[name], config) for name in names}
    return [
        Row(
            name=name,
            experiment=config.experiments[name],
            epochs=epochs[name],
            content=content,
            reported=layout.report(name).is_file(),
            fewer_epochs=epochs[name] < _FEWER * max(epochs.values()),
            limit_warning=None if content is None else limit_warning(content),
        )
        for name, content in contents.items()
    ]


def _epochs(name: str, content: Content | None, config: Config) -> int:
    return config.training[config.experiments[name].training].epochs if content is None else len(content.history)
