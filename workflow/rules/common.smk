"""Functions that the rules share: the settings and the source files that each stage depends on.

The `params` of a rule hold exactly the settings that change what its stage writes, one param a setting, so that
Snakemake can name the one that changed. `input.code` holds the stage's source files, since Snakemake does not look into
an imported package by itself. A change in either runs the stage again.

Two stages have an input that must be there but is no reason to run again: a profile needs tiles of some shape, a
training needs a plan. Such an input is `ancient`. But Snakemake (9.27) forgets a job's own reasons when a job before
it runs and only ancient files lie between; so for these two stages a job of its own, `<stage>_settings`, writes settings
and a digest of the code to a file, and that file is an ordinary input.
"""

import functools
import hashlib
import json
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

from snakemake.common import get_appdirs

import landbalance
from landbalance.check import check_run, check_site
from landbalance.cluster import load_cluster
from landbalance.cluster.orphans import cancel_orphans, show_alive
from landbalance.config import parse_config
from landbalance.config.checks import read_yaml
from landbalance.errors import UserError
from landbalance.files import files_in
from landbalance.workflow import chosen_cluster, freeze, frozen, overridden, show_failures, use_own_commands

RESULTS = Path("results")

# What each stage's code uses besides its own package, as far as it decides what the stage writes. The shared
# modules that only check, name, place or tell (config, cluster, layout, files, errors, progress, table) are left out.
# tests/workflow/test_sources.py compares this with the imports.
SHARED_MODULES = {
    "download": "",
    "tile": "allocator cores raster tiles",
    "profile": "allocator batches curves distributed models objective optimiser plans profiles tiles weighting",
    "plan": "curves plans profiles shares",
    "train": "allocator batches bundle curves distributed models objective optimiser plans profiles shares tiles "
    "weighting",
    "evaluate": "allocator bootstrap bundle comparison cores models prediction tiles",
    "map": "allocator bundle cores models prediction raster tiles",
    "report": "bootstrap comparison curves failures plans profiles raster tiles",
}

# --- the run ----------------------------------------------------------------------------------------------------


def checked_config():
    """Return the typed configuration after --configfile and --config; mistakes are a `UserError`."""
    for path in workflow.configfiles:
        read_yaml(Path(path))  # Snakemake takes the last of two equal keys without a word, this does not
    options = workflow.config_settings.config_args or []
    files = [shown(path) for path in workflow.overwrite_configfiles] or ["config.yaml"]
    changed = ["--config"] if any(not option.startswith("cluster=") for option in options) else []
    return parse_config(overridden(config, options), " + ".join(files + changed))


def cluster_file():
    """Return the cluster description in use, wherever links lead to it; none is a `UserError`."""
    places = get_appdirs()
    path = chosen_cluster(
        option=workflow.config_settings.config.get("cluster"),
        start=Path(workflow.rundir),  # the shell's folder, whatever --directory says, as for --configfile
        root=Path(workflow.basedir),
        site_folders=[Path(places.user_config_dir), Path(places.site_config_dir)],
        is_main_process=workflow.is_main_process,
    )
    return Path(shown(path.resolve()))


def shown(path):
    """Return `path` as the user would write it: relative where it lies below the working folder."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


# Snakemake does not compare params that look at the input. That is wanted for these two: the files hold everything,
# while a stage runs again for its own settings alone.


def config_path(wildcards, input):
    """Return the configuration file that the stages read."""
    return str(RESULTS / frozen(CONFIG)[0])


def cluster_path(wildcards, input):
    """Return the cluster description that the stages read."""
    return str(CLUSTER_FILE)


# --- what a stage depends on ------------------------------------------------------------------------------------


def sources(stage):
    """Return the source files that decide what `stage` writes."""
    package = Path(landbalance.__file__).parent
    files = []
    for name in [stage, *SHARED_MODULES[stage].split()]:
        single = package / f"{name}.py"
        files += [single] if single.exists() else [path for path in (package / name).rglob("*") if path.is_file()]
    return sorted(shown(path) for path in files if path.suffix in (".py", ".html", ".css", ".js"))


@functools.cache
def digest(stage):
    """Return a digest of the source files that decide what `stage` writes."""
    return hashlib.sha256(b"".join(Path(path).read_bytes() for path in sources(stage))).hexdigest()


def each(settings_of):
    """Return a param for each line of `settings_of(wildcards)`, whose number is the same for all wildcards."""

    def setting(number):
        return lambda wildcards: settings_of(wildcards)[number]

    return [setting(number) for number in range(len(settings_of(example_wildcards())))]


def example_wildcards():
    """Return wildcards of some job that the configuration has: if there is one, with a scene that is cut, or mapped."""

    def scenes_of(name):
        dataset = CONFIG.datasets[CONFIG.experiments[name].dataset]
        return len(dataset.cut_scenes), len(dataset.scenes)

    experiment = max(CONFIG.experiments, key=scenes_of)
    chosen = CONFIG.experiments[experiment]
    scenes = CONFIG.datasets[chosen.dataset].scenes
    return SimpleNamespace(
        dataset=chosen.dataset,
        model=chosen.model,
        node=CLUSTER.nodes[0].name,
        experiment=experiment,
        scene=next(iter(scenes), None),
    )


def lines(sections):
    """Return a line for each key of each section: `training.epochs: 30`; values in their own order, as JSON."""
    return [
        f"{name}.{key}: {json.dumps(value, ensure_ascii=False)}"
        for name, section in sections.items()
        for key, value in section.items()
    ]


def dump(section, *without):
    """Return a section of the configuration as plain values, without the keys named."""
    return section.model_dump(mode="json", exclude=set(without))


def experiments_of(dataset, model):
    """Return the experiments that train `model` on `dataset`."""
    return [item for item in CONFIG.experiments.values() if (item.dataset, item.model) == (dataset, model)]


def experiment_of(wildcards):
    """Return the experiment that a rule's wildcards name."""
    return CONFIG.experiments[wildcards.experiment]


def dataset_of(wildcards):
    """Return the dataset of the experiment that a rule's wildcards name."""
    return CONFIG.datasets[experiment_of(wildcards).dataset]


def local_paths(dataset):
    """Return the files and folders that a dataset takes from this machine."""
    return [Path(source.path).expanduser() for source in CONFIG.datasets[dataset].sources if source.path]


def local_files(wildcards):
    """Return the single files that a dataset takes from this machine, so that an edited one is taken again."""
    return [str(path) for path in local_paths(wildcards.dataset) if path.is_file()]


@functools.cache
def folder_state(folder):
    """Return a digest of the path, size and time of change of each file below a folder.

    A folder of patches holds tens of thousands of files: too many for inputs, each of which Snakemake looks up and
    notes. And an input tells neither that a file was deleted nor that an older one took its place.
    """
    state = hashlib.sha256()
    try:
        for path in sorted(files_in(folder)):
            found = path.stat()
            state.update(f"{path.relative_to(folder)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="replace"))
    except OSError:
        return "cannot be read"  # the stage says what and why
    return state.hexdigest()


def download_settings(wildcards):
    """Return what decides the files fetched: not where they may also be had, nor wording, which the report shows."""
    wanted = CONFIG.datasets[wildcards.dataset].sources
    return lines(
        {
            "dataset": {
                "sources": [dump(source, "mirrors", "licence", "attribution") for source in wanted],
                "folders": {str(path): folder_state(path) for path in local_paths(wildcards.dataset) if path.is_dir()},
            }
        }
    )


def cut_settings(wildcards):
    """Return what decides how a scene is cut: not the sources (the manifest is an input), nor what splits its tiles."""
    dataset = CONFIG.datasets[wildcards.dataset]
    if not dataset.cut_scenes:
        return []
    return lines(
        {
            "dataset": {
                "task": dataset.task,
                "resolution": dataset.resolution,
                "resampling": dataset.resampling,
                "labels": dump(dataset.labels),
                "classes": [dump(item, "name", "colour") for item in dataset.classes],
                "tiles": dump(dataset.tiles, "per_class", "balance"),
                # Tiles stay inside the blocks of a split, where it has blocks.
                "block": getattr(dataset.split, "size", None),
            },
            "scene": dump(dataset.scenes[wildcards.scene], "acquired"),
        }
    )


def tile_settings(wildcards):
    """Return what decides the splits and the list of tiles; nothing that is only shown."""
    dataset = CONFIG.datasets[wildcards.dataset]
    classes = [dump(item, "colour") for item in dataset.classes]
    rest = dump(dataset, "catalogue", "sources", "display", "scenes", "classes")
    return lines({"dataset": {**rest, "scenes": list(dataset.cut_scenes), "classes": classes}})


def profile_settings(wildcards):
    """Return what decides how long a step takes: network, batches, shape of tiles, workers of the node, libraries."""
    dataset = CONFIG.datasets[wildcards.dataset]
    training = [CONFIG.training[item.training] for item in experiments_of(wildcards.dataset, wildcards.model)]
    shape = {
        "task": dataset.task,
        "bands": len(dataset.bands),
        "classes": len(dataset.classes),
        "tile": dataset.tiles.size,
        "batches": sorted({item.batch_size for item in training}),
    }
    return lines(
        {
            "profile": dump(CONFIG.profile),
            "model": dump(CONFIG.models[wildcards.model], "weights"),
            "shape": shape,
            "node": {"workers": [dump(worker) for worker in node_called(wildcards.node).workers]},
            "libraries": {name: installed(name) for name in ("torch", "torchvision", "segmentation-models-pytorch")},
            "code": {"profile": digest("profile")},
        }
    )


def installed(name):
    """Return the version of a library; None where Snakemake runs in another environment than the stages."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plan_settings(wildcards):
    """Return what decides the shares, besides the profiles."""
    experiment = experiment_of(wildcards)
    return lines(
        {
            "experiment": {"arm": experiment.arm},
            "training": {"batch_size": CONFIG.training[experiment.training].batch_size},
            "cluster": {"nodes": [dump(node, "slurm", "interface") for node in cluster_of(wildcards.experiment).nodes]},
        }
    )


def train_settings(wildcards):
    """Return what decides the model; who computes it, and how often it is saved, do not."""
    experiment = experiment_of(wildcards)
    return lines(
        {
            "experiment": {"arm": experiment.arm},
            "model": dump(CONFIG.models[experiment.model]),
            "training": dump(
                CONFIG.training[experiment.training], "checkpoint_seconds", "timeout_seconds", "rebalance"
            ),
            "code": {"train": digest("train")},
        }
    )


def evaluate_settings(wildcards):
    """Return what decides the scores, besides the model and the tiles."""
    return lines({"evaluate": dump(CONFIG.evaluate)})


def map_settings(wildcards):
    """Return what decides a map, besides the model and the scene's files."""
    dataset = dataset_of(wildcards)
    if not dataset.scenes:
        return []
    return lines(
        {
            "map": dump(CONFIG.map, "mosaic"),
            "scene": dump(dataset.scenes[wildcards.scene], "acquired", "labels"),
            "dataset": {
                "resolution": dataset.resolution,
                "resampling": dataset.resampling,
                "classes": [dump(item) for item in dataset.classes],
            },
        }
    )


def mosaic_settings(wildcards):
    """Return what decides a mosaic, besides the maps."""
    return lines({"dataset": {"scenes": list(dataset_of(wildcards).scenes)}})


def report_settings(wildcards):
    """Return everything that the report of an experiment shows."""
    experiment = experiment_of(wildcards)
    return lines(
        {
            "report": dump(CONFIG.report),
            "experiment": dump(experiment),
            "dataset": dump(CONFIG.datasets[experiment.dataset]),
            "model": dump(CONFIG.models[experiment.model]),
            "training": dump(CONFIG.training[experiment.training]),
            "map": {"uncertainty": CONFIG.map.uncertainty},
        }
    )


def index_settings(wildcards):
    """Return what the overview shows besides the reports."""
    experiments = {name: dump(item) for name, item in CONFIG.experiments.items()}
    return lines({"report": {"title": CONFIG.report.title}, "index": {"experiments": experiments}})


def compare_settings(wildcards):
    """Return what the comparison of arms shows besides the results: which experiments differ by their seed alone."""
    work = {name: [dump(item), dump(CONFIG.training[item.training])] for name, item in CONFIG.experiments.items()}
    return lines({"report": {"title": CONFIG.report.title}, "compare": {"experiments": work}})


# --- patterns ---------------------------------------------------------------------------------------------------


def any_of(names):
    """Return a pattern that matches the names and nothing else."""
    return "|".join(sorted(re.escape(name) for name in names)) or r"(?!)"
