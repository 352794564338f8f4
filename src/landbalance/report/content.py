"""What the stages left of an experiment, read and checked in one place."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from landbalance.config import Config, Dataset, Experiment, Model, Training
from landbalance.config.checks import checked
from landbalance.errors import UserError
from landbalance.files import read_json
from landbalance.layout import Layout
from landbalance.plans import Plan, read_plan
from landbalance.profiles import NodeProfile, read_profile
from landbalance.report.reproduce import Inputs, cluster_text, own_config, snakemake_command, stage_commands
from landbalance.report.results import Assessment, Manifest, Metrics, Run
from landbalance.report.speed import EqualRun, Speed, StepTimes, measured_speed, step_times, team
from landbalance.tiles import StoreInfo, open_tiles

ResultT = TypeVar("ResultT", Assessment, Manifest, Metrics, Run)

_GIVEN = Inputs()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Content:
    """All that the report says of an experiment, but for its pictures of scenes.

    Parameters
    ----------
    assessment : Assessment or None
        What a labelled sample says of the maps, where there is one.
    history : DataFrame
        A row per epoch, in order: epoch, learning_rate, train_loss, validation_loss, validation_accuracy,
        seconds (since training began, up to the end of the epoch).
    equal : EqualRun
        The run with equal shares on the same dataset, model, batch size and workers.
    profiles : tuple of NodeProfile
        Of the nodes in the plan, as far as they are there.
    timing : DataFrame
        A row per step and worker.
    snakemake : str
        The command line that makes the same report again.
    commands : tuple of str
        The same, stage by stage.
    own_config, cluster : str
        The experiment's part of the configuration, and the cluster description, as files; None where it is gone.
    """

    name: str
    title: str
    experiment: Experiment
    dataset: Dataset
    model: Model
    training: Training
    metrics: Metrics
    assessment: Assessment | None
    run: Run
    plan: Plan
    history: pd.DataFrame
    timing: pd.DataFrame
    times: StepTimes
    equal: EqualRun
    speed: Speed
    store: StoreInfo
    splits: dict[str, int]
    manifest: Manifest
    profiles: tuple[NodeProfile, ...]
    snakemake: str
    commands: tuple[str, ...]
    own_config: str
    cluster: str | None

    @property
    def sample(self) -> str:
        """Return what a test sample is called."""
        return "pixel" if self.dataset.task == "segmentation" else "tile"

    @property
    def emulated(self) -> bool:
        """Whether a worker that took part is an emulated one."""
        return any(worker.emulated for worker in self.plan.used)


def finished(name: str, layout: Layout) -> bool:
    """Return whether the experiment has been planned, trained and evaluated."""
    files = (layout.plan(name), layout.train(name) / "run.json", layout.evaluate(name) / "metrics.json")
    return all(path.is_file() for path in files)


def read_content(name: str, config: Config, layout: Layout, inputs: Inputs = _GIVEN) -> Content:
    """Return what the stages say of experiment `name`.

    Raises
    ------
    UserError
        When a file is missing, damaged, or of other classes than the configuration's.
    """
    experiment = config.experiments[name]
    dataset = config.datasets[experiment.dataset]
    plan = read_plan(layout.plan(name))
    timing = read_table(layout.train(name) / "timing.parquet")
    times = step_times(timing, plan.batch_size)
    equal = _equal_run(name, plan, config, layout)
    return Content(
        name=name,
        title=config.report.title,
        experiment=experiment,
        dataset=dataset,
        model=config.models[experiment.model],
        training=config.training[experiment.training],
        metrics=_metrics(layout.evaluate(name) / "metrics.json", dataset),
        assessment=_result(Assessment, layout.assess(name)) if layout.assess(name).is_file() else None,
        run=_result(Run, layout.train(name) / "run.json"),
        plan=plan,
        history=read_table(layout.train(name) / "history.parquet").sort_values("epoch", ignore_index=True),
        timing=timing,
        times=times,
        equal=equal,
        speed=measured_speed(plan, times, equal),
        store=open_tiles(layout.tile(experiment.dataset)).info,
        splits=_splits(layout.tile(experiment.dataset) / "index.parquet"),
        manifest=_manifest(layout.download(experiment.dataset) / "manifest.json", dataset),
        profiles=_profiles(plan, experiment, layout),
        snakemake=snakemake_command(name, inputs, layout),
        commands=stage_commands(name, config, plan, inputs, layout),
        own_config=own_config(name, config),
        cluster=cluster_text(inputs),
    )


def read_table(path: Path) -> pd.DataFrame:
    """Return the Parquet file at `path`; a missing or damaged one is a `UserError`."""
    try:
        return pd.read_parquet(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: not found. Run the stage that writes it first.") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error}). Delete it and run its stage again.") from error


def _result(kind: type[ResultT], path: Path) -> ResultT:
    return checked(kind, read_json(path), str(path))


def _metrics(path: Path, dataset: Dataset) -> Metrics:
    metrics = _result(Metrics, path)
    configured = [item.name for item in dataset.classes]
    if metrics.classes != configured:
        raise UserError(
            f"{path}: is about the classes {', '.join(metrics.classes)}; the configuration has "
            f"{', '.join(configured)}. Run the evaluate stage again."
        )
    return metrics


def _manifest(path: Path, dataset: Dataset) -> Manifest:
    """Return what was fetched, with licence and attribution as the configuration words them now."""
    manifest = _result(Manifest, path)
    sources = [
        record.model_copy(update={"licence": source.licence, "attribution": source.attribution})
        for record, source in zip(manifest.sources, dataset.sources, strict=False)
    ]
    return manifest.model_copy(update={"sources": sources + manifest.sources[len(sources) :]})


def _splits(index: Path) -> dict[str, int]:
    table = read_table(index)
    return {str(split): int(number) for split, number in table["split"].value_counts().items()}


def _profiles(plan: Plan, experiment: Experiment, layout: Layout) -> tuple[NodeProfile, ...]:
    nodes = dict.fromkeys(worker.node for worker in plan.workers)
    paths = [layout.profile(experiment.dataset, experiment.model, node) for node in nodes]
    return tuple(read_profile(path) for path in paths if path.is_file())


def _equal_run(name: str, plan: Plan, config: Config, layout: Layout) -> EqualRun:
    """Return the first other experiment that did the same work on the same workers in equal shares."""
    experiment = config.experiments[name]
    if experiment.arm == "equal":
        return EqualRun(None, None, "this experiment has equal shares itself")
    batch_size = config.training[experiment.training].batch_size
    reason = "no experiment in the configuration has equal shares of the same dataset, model and batch size"
    for other, settings in config.experiments.items():
        same = (settings.dataset, settings.model) == (experiment.dataset, experiment.model)
        if settings.arm != "equal" or not same or config.training[settings.training].batch_size != batch_size:
            continue
        if not finished(other, layout):
            reason = f"experiment {other}, which has equal shares, has not been run yet"
            continue
        equal_plan = read_plan(layout.plan(other))
        if team(equal_plan) != team(plan):
            reason = f"experiment {other}, which has equal shares, was run on other workers"
            continue
        times = step_times(read_table(layout.train(other) / "timing.parquet"), batch_size)
        _log.info("measured step time with equal shares: that of experiment %s", other)
        return EqualRun(other, times.median, None)
    _log.info("no measured speed-up over equal shares: %s", reason)
    return EqualRun(None, None, reason)


def flattened(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as dotted keys with their values as text, in their order."""
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            rows += flattened(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", "not set" if value is None else str(value)))
    return rows
