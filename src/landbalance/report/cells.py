"""Experiments that differ by their seed alone, as cells of a comparison of arms."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from landbalance.config import Config, Experiment
from landbalance.config.checks import checked
from landbalance.config.learning import Arm
from landbalance.files import read_json
from landbalance.layout import Layout
from landbalance.plans import Plan, read_plan
from landbalance.report.content import finished, read_table
from landbalance.report.results import Metrics
from landbalance.report.speed import step_times

_LEVEL = 0.9


@dataclass(frozen=True)
class Run:
    """A finished experiment; times in seconds, None where nothing was timed.

    Parameters
    ----------
    curve : list of (float, float)
        Seconds since training began, and validation accuracy, at the end of each epoch; empty where no sample
        validates.
    """

    plan: Plan
    accuracy: float | None
    step_seconds: float | None
    curve: list[tuple[float, float]]

    def seconds_to(self, level: float | None) -> float | None:
        """Return after how long an epoch first ended with this validation accuracy; None if none did."""
        if level is None:
            return None
        return next((seconds for seconds, accuracy in self.curve if accuracy >= level), None)


@dataclass(frozen=True)
class Cell:
    """Experiments that differ by their seed alone, as one row of the table; figures are None until one has been run.

    Parameters
    ----------
    nodes, workers, shares : str
        Kinds of nodes; the workers, and the samples of the batch that each gets (none: left out).
    emulated : bool
        Whether one of the workers is made slower than it is.
    experiments, missing : list of str
        All of them, and those not run yet.
    accuracy, accuracy_sd : float or None
        Mean over seeds of the test accuracy, and standard deviation (from two runs on).
    step_seconds : float or None
        Mean over seeds of the median step.
    level : float or None
        Validation accuracy to be reached: nine tenths of the best of all runs of the dataset and model; None also
        where the dataset has no samples for validation.
    seconds_to_level, reached : float or None, int
        Mean time to it of the runs that reached it, and how many did.
    speedup_over_equal, speedup_over_equal_limit : float or None
        S, from the step of the cell with equal shares that is alike otherwise, and S_max.
    speedup_over_fastest, speedup_over_fastest_limit : float or None
        G, from the profiled step of the fastest worker alone, and G_max.
    """

    dataset: str
    model: str
    nodes: str
    arm: Arm
    batch_size: int
    epochs: int
    experiments: list[str]
    missing: list[str]
    emulated: bool = False
    workers: str = ""
    shares: str = ""
    accuracy: float | None = None
    accuracy_sd: float | None = None
    step_seconds: float | None = None
    samples_per_second: float | None = None
    samples_per_second_sd: float | None = None
    level: float | None = None
    seconds_to_level: float | None = None
    seconds_to_level_sd: float | None = None
    reached: int = 0
    speedup_over_equal: float | None = None
    speedup_over_equal_limit: float | None = None
    speedup_over_fastest: float | None = None
    speedup_over_fastest_limit: float | None = None
    fraction_of_total_speed: float | None = None

    @property
    def done(self) -> int:
        """Return how many of the experiments have been run."""
        return len(self.experiments) - len(self.missing)


def read_cells(config: Config, layout: Layout) -> list[Cell]:
    """Return all cells of a configuration, also those not run yet: arm by arm, where all else is alike.

    Raises
    ------
    UserError
        When a file of a finished experiment is missing or damaged.
    """
    runs = {name: read_run(name, layout) for name in config.experiments if finished(name, layout)}
    alike: dict[str, dict[Arm, list[str]]] = {}
    for name, experiment in config.experiments.items():
        alike.setdefault(_work(experiment, config), {}).setdefault(experiment.arm, []).append(name)
    cells = []
    for by_arm in alike.values():
        equal = _mean([runs[name].step_seconds for name in by_arm.get("equal", []) if name in runs])
        for arm in get_args(Arm):
            if arm in by_arm:
                cells.append(_cell(by_arm[arm], config, runs, equal))
    return cells


def _work(experiment: Experiment, config: Config) -> str:
    """Return what an experiment does, but for its arm and its seed, as text."""
    training = config.training[experiment.training].model_dump(mode="json", exclude={"seed"})
    return json.dumps([experiment.dataset, experiment.model, experiment.nodes, training])


def read_run(name: str, layout: Layout) -> Run:
    """Return what the stages left of a finished experiment."""
    plan = read_plan(layout.plan(name))
    metrics = layout.evaluate(name) / "metrics.json"
    history = read_table(layout.train(name) / "history.parquet").sort_values("epoch")
    validated = history[history["validation_accuracy"].notna()]
    return Run(
        plan=plan,
        accuracy=checked(Metrics, read_json(metrics), str(metrics)).overall_accuracy,
        step_seconds=step_times(read_table(layout.train(name) / "timing.parquet"), plan.batch_size).median,
        curve=list(zip(validated["seconds"].tolist(), validated["validation_accuracy"].tolist(), strict=True)),
    )


def _cell(names: list[str], config: Config, runs: dict[str, Run], equal_step: float | None) -> Cell:
    experiment = config.experiments[names[0]]
    training = config.training[experiment.training]
    cell = Cell(
        dataset=experiment.dataset,
        model=experiment.model,
        nodes=" + ".join(experiment.nodes) or "all nodes",
        arm=experiment.arm,
        batch_size=training.batch_size,
        epochs=training.epochs,
        experiments=names,
        missing=[name for name in names if name not in runs],
    )
    found = [runs[name] for name in names if name in runs]
    if not found:
        return cell
    plan = found[0].plan
    rates = [plan.batch_size / run.step_seconds if run.step_seconds else None for run in found]
    step = _mean([run.step_seconds for run in found])
    level = _level(experiment, config, runs)
    times = [run.seconds_to(level) for run in found]
    fastest_alone = _mean([run.plan.predicted.fastest_alone_step_seconds for run in found])
    reached = [run.plan.predicted.fraction_of_total_speed * run.plan.predicted.step_seconds for run in found]
    return replace(
        cell,
        emulated=any(worker.emulated for worker in plan.workers),
        workers=" + ".join(worker.title for worker in plan.workers),
        shares=" + ".join(str(worker.share) for worker in plan.workers),
        accuracy=_mean([run.accuracy for run in found]),
        accuracy_sd=_deviation([run.accuracy for run in found]),
        step_seconds=step,
        samples_per_second=_mean(rates),
        samples_per_second_sd=_deviation(rates),
        level=level,
        seconds_to_level=_mean(times),
        seconds_to_level_sd=_deviation(times),
        reached=len(_known(times)),
        speedup_over_equal=equal_step / step if equal_step and step else None,
        speedup_over_equal_limit=_mean([run.plan.predicted.speedup_over_equal_limit for run in found]),
        speedup_over_fastest=fastest_alone / step if fastest_alone and step else None,
        speedup_over_fastest_limit=_mean([run.plan.predicted.speedup_over_fastest_limit for run in found]),
        fraction_of_total_speed=statistics.fmean(reached) / step if step else None,
    )


def _level(experiment: Experiment, config: Config, runs: dict[str, Run]) -> float | None:
    """Return the validation accuracy that runs of an experiment's dataset and model are timed to, if any validated."""
    work = (experiment.dataset, experiment.model)
    same = [name for name in runs if (config.experiments[name].dataset, config.experiments[name].model) == work]
    accuracies = [accuracy for name in same for _, accuracy in runs[name].curve]
    return _LEVEL * max(accuracies) if accuracies else None


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    return statistics.fmean(known) if (known := _known(values)) else None


def _deviation(values: Sequence[float | None]) -> float | None:
    return statistics.stdev(known) if len(known := _known(values)) > 1 else None
