"""Paths that rules take in or write in numbers: of tiles, profiles, runs, maps and pictures."""

from pathlib import Path

# The charts that every report has, and what they are about.
CHARTS = {
    "confusion": "Accuracy",
    "calibration": "Accuracy",
    "curves": "Training",
    "workers": "Workers",
    "timeline": "Workers",
    "shares": "Workers",
    "speed": "Workers",
}


def tile_paths(wildcards):
    """Return the index and the statistics of an experiment's tiles; they are rewritten whenever a shard is."""
    return expand(
        "results/tile/{dataset}/{file}",
        dataset=experiment_of(wildcards).dataset,
        file=["index.parquet", "statistics.json"],
    )


def scene_notes(wildcards):
    """Return the notes of the scenes of a dataset that they are cut; beside images in folders none is."""
    scenes = CONFIG.datasets[wildcards.dataset].cut_scenes
    return [f"results/tile/{wildcards.dataset}/scenes/{scene}.json" for scene in scenes]


def manifest_path(wildcards):
    """Return the list of source files of an experiment's dataset."""
    return f"results/download/{experiment_of(wildcards).dataset}/manifest.json"


def profile_paths(wildcards):
    """Return the profiles of all kinds of nodes for an experiment's model and tiles."""
    experiment = experiment_of(wildcards)
    folder = f"results/profile/{experiment.dataset}/{experiment.model}"
    return [f"{folder}/{node.name}.json" for node in cluster_of(wildcards.experiment).nodes]


def plan_to_train_by(wildcards):
    """Return the plan of an experiment.

    Another plan changes who computes, not what is computed, so it is no reason to train again. Only in the
    arm `unweighted` the shares change the model; and a user may want to see what other machines make of it.
    """
    path = f"results/plan/{wildcards.experiment}.json"
    return path if CLUSTER.retrain or experiment_of(wildcards).arm == "unweighted" else ancient(path)


def starting_weights_path(wildcards):
    """Return the file that an experiment's training starts from, if its model names one."""
    path = CONFIG.models[experiment_of(wildcards).model].weights
    return [] if path is None else [str(Path(path).expanduser())]


def equal_run_paths(wildcards):
    """Return what a report needs of the runs with equal shares of the same work, which it compares with."""
    experiment = experiment_of(wildcards)
    batch_size = CONFIG.training[experiment.training].batch_size
    names = [
        name
        for name, other in CONFIG.experiments.items()
        if (other.dataset, other.model, other.arm) == (experiment.dataset, experiment.model, "equal")
        and CONFIG.training[other.training].batch_size == batch_size
    ]
    files = ["plan/{name}.json", "train/{name}/run.json", "train/{name}/timing.parquet", "evaluate/{name}/metrics.json"]
    return [f"results/{file}".format(name=name) for name in names for file in files]


def map_paths(experiment, ending="tif"):
    """Return the maps of all scenes of an experiment's dataset, or their styles, which end in `qml`."""
    dataset = CONFIG.datasets[CONFIG.experiments[experiment].dataset]
    return [f"results/map/{experiment}/{scene}.{ending}" for scene in dataset.scenes]


def mapped_experiments():
    """Return the experiments whose dataset has scenes, so that there are maps of them."""
    return [name for name, item in CONFIG.experiments.items() if CONFIG.datasets[item.dataset].scenes]


def chart(name):
    """Return a chart of an experiment as an output that `snakemake --report` shows."""
    return report(
        f"results/report/{{experiment}}/{name}.svg",
        caption=f"../report/{name}.rst",
        category=CHARTS[name],
        labels={"experiment": "{experiment}", "picture": name},
    )


def report_paths(experiment):
    """Return all files of an experiment's report."""
    made_by = rules.report if experiment in mapped_experiments() else rules.report_without_map
    return expand(made_by.output, experiment=experiment)


def all_map_paths(experiment):
    """Return all files of the map stage for an experiment: those of each scene, and of the mosaic."""
    scenes = CONFIG.datasets[CONFIG.experiments[experiment].dataset].scenes
    paths = [path for ending in CONFIG.map.endings for path in map_paths(experiment, ending)]
    mosaic = [f"results/map/{experiment}/mosaic.{ending}" for ending in ("tif", "qml")]
    return paths + (mosaic if CONFIG.map.mosaic and scenes else [])


def shown_paths(wildcards):
    """Return the maps and the layers of uncertainty that a report shows."""
    endings = ["tif", *[f"{name}.tif" for name in CONFIG.map.uncertainty]]
    return [path for ending in endings for path in map_paths(wildcards.experiment, ending)]


def assessed_path(wildcards):
    """Return what a labelled sample says of an experiment's maps, where there is such a thing."""
    path = Path(f"results/assess/{wildcards.experiment}.json")
    return [str(path)] if path.exists() else []


def compared_paths():
    """Return what the comparison of arms reads of all experiments."""
    files = ["plan/{name}.json", "evaluate/{name}/metrics.json"]
    files += [f"train/{{name}}/{file}" for file in ("history.parquet", "timing.parquet", "run.json")]
    return [f"results/{file}".format(name=name) for name in CONFIG.experiments for file in files]
