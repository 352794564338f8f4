"""What a reader needs to make the same results again: the settings as a file, and the commands."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from landbalance.config import Config
from landbalance.layout import Layout
from landbalance.plans import Plan


@dataclass(frozen=True)
class Inputs:
    """The files that a run is told by: what is computed, and on which machines."""

    config: Path = Path("config.yaml")
    cluster: Path = Path("profiles/local/cluster.yaml")


def own_config(name: str, config: Config) -> str:
    """Return the configuration of one experiment as YAML: its own sections only, defaults included."""
    experiment = config.experiments[name]
    values = config.model_dump(mode="json")
    kept = {
        "datasets": experiment.dataset,
        "models": experiment.model,
        "training": experiment.training,
        "experiments": name,
    }
    for section, key in kept.items():
        values[section] = {key: values[section][key]}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)


def cluster_text(inputs: Inputs) -> str | None:
    """Return the cluster description as it was written; None where it cannot be read."""
    try:
        return inputs.cluster.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def snakemake_command(name: str, inputs: Inputs, layout: Layout) -> str:
    """Return the command line that brings all results of an experiment up to date."""
    where = ["--cores", "all"]
    parts = inputs.cluster.parts
    profile = parts[1] if len(parts) == 3 and parts[0] == "profiles" and parts[2] == "cluster.yaml" else None
    if profile is not None:
        where = [] if profile == "default" else ["--profile", profile]
    configfile = [] if inputs.config == Inputs().config else ["--configfile", str(inputs.config)]
    # `--config` takes all words that follow, so it comes last.
    cluster = ["--config", f"cluster={inputs.cluster}"] if profile is None else []
    return shlex.join(("snakemake", *where, str(layout.report(name)), *configfile, *cluster))


def stage_commands(name: str, config: Config, plan: Plan, inputs: Inputs, layout: Layout) -> tuple[str, ...]:
    """Return a command line for each stage of an experiment, in order."""
    experiment = config.experiments[name]
    nodes = dict.fromkeys(worker.node for worker in plan.workers)
    given = Inputs()
    cluster: tuple[str, ...] = () if inputs.cluster == given.cluster else ("--cluster", str(inputs.cluster))
    common: tuple[str, ...] = () if inputs.config == given.config else ("--config", str(inputs.config))
    common += () if layout.root == Layout().root else ("--results", str(layout.root))
    stages = [
        ("download", experiment.dataset),
        ("tile", experiment.dataset),
        *(("profile", experiment.dataset, experiment.model, node, *cluster) for node in nodes),
        ("plan", name, *cluster),
        ("train", name),
        ("evaluate", name),
        *(("map", name, scene) for scene in config.datasets[experiment.dataset].scenes),
        ("report", name, *cluster),
    ]
    return tuple(shlex.join(("landbalance", *stage, *common)) for stage in stages)
