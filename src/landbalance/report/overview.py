"""The overview of all experiments, with the arms of a comparison side by side."""

import logging
from dataclasses import dataclass
from typing import get_args

from landbalance.config import Config, Experiment
from landbalance.config.learning import Arm
from landbalance.files import write_text
from landbalance.layout import Layout
from landbalance.report.content import Content, finished, read_content
from landbalance.report.page import render
from landbalance.report.verdict import limit_warning

_log = logging.getLogger(__name__)

_FEWER = 0.5
"""A run of less than this share of its group's most epochs is marked."""


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
class Group:
    """Experiments that do the same work: one dataset, model and batch size."""

    dataset: str
    model: str
    batch_size: int
    rows: list[Row]


def run_index(config: Config, layout: Layout) -> None:
    """Write ``index.html`` beside the reports: all experiments of `config`, also those not yet run."""
    groups = _groups(config, layout)
    target = layout.report("index")
    write_text(target, render("index.html", title=config.report.title, groups=groups))
    done = sum(row.content is not None for group in groups for row in group.rows)
    _log.info("overview: %s, %d of %d experiments have results", target, done, len(config.experiments))


def _groups(config: Config, layout: Layout) -> list[Group]:
    """Return the experiments grouped by their work; in a group by arm, then by name."""
    members: dict[tuple[str, str, int], list[str]] = {}
    for name, experiment in config.experiments.items():
        key = (experiment.dataset, experiment.model, config.training[experiment.training].batch_size)
        members.setdefault(key, []).append(name)
    return [Group(*key, _rows(names, config, layout)) for key, names in sorted(members.items())]


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
