"""What each subcommand does with its options: it hands settings and paths to a stage."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from landbalance.errors import UserError
from landbalance.layout import Layout

if TYPE_CHECKING:
    from landbalance.cluster import Cluster
    from landbalance.config import Config
    from landbalance.config.learning import Experiment
    from landbalance.plans import Plan
    from landbalance.profiles import NodeProfile

_log = logging.getLogger("landbalance")


def check(options: argparse.Namespace) -> None:
    """Check the configuration and the cluster description; say what they hold."""
    from landbalance.check import check_run
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config

    config = load_config(options.config)
    cluster = load_cluster(options.cluster)
    check_run(config, cluster, str(options.config), str(options.cluster))
    _log.info("%s: experiments %s", options.config, ", ".join(config.experiments))
    for node in cluster.nodes:
        titles = "; ".join(f"{worker.count} × {worker.title}" for worker in node.workers)
        _log.info("%s: %d × %s: %s", options.cluster, node.count, node.name, titles)


def cluster(options: argparse.Namespace) -> int:
    """Print a draft of a Slurm cluster's description, or say what of a description does not fit."""
    from landbalance.cluster import load_cluster
    from landbalance.cluster.detect import draft
    from landbalance.cluster.fit import misfits, shortages
    from landbalance.cluster.inventory import slurm_nodes, slurm_partitions

    nodes, partitions = slurm_nodes(), slurm_partitions()
    if options.detect:
        sys.stdout.write(draft(nodes, partitions))
        return 0
    cluster = load_cluster(options.cluster)
    mistakes = misfits(cluster, nodes, partitions)
    for mistake in mistakes:
        _log.error("error: %s: %s", options.cluster, mistake)
    if not mistakes:
        for shortage in shortages(cluster, nodes, partitions):
            _log.warning("%s: %s", options.cluster, shortage)
        _log.info("%s: fits this cluster", options.cluster)
    return 1 if mistakes else 0


def download(options: argparse.Namespace) -> None:
    """Run the download stage."""
    from landbalance.config import catalogue, load_config
    from landbalance.download import offline, run

    configured = load_config(options.config).datasets if options.config.exists() else {}
    if options.dataset not in configured and options.dataset in catalogue.names():
        sources = catalogue.sources(options.dataset, "landbalance download")
    else:
        sources = named(options, "datasets", options.dataset).sources
    online = not (options.offline or offline())
    run(options.dataset, sources, Layout(options.results).download(options.dataset), online)


def datasets(options: argparse.Namespace) -> None:
    """List the catalogue of data sets, or describe some."""
    from landbalance.config import catalogue

    if options.names:
        sys.stdout.write("\n\n".join(catalogue.details(name) for name in options.names) + "\n")
    else:
        sys.stdout.write(catalogue.listing() + "\n")


def search(options: argparse.Namespace) -> None:
    """Print sources and scenes that a STAC catalogue has."""
    from landbalance.files import write_text
    from landbalance.search import Wanted, search

    if options.limit is not None and options.limit < 1:
        raise UserError(f"--limit: found {options.limit}; allowed: 1 or more.")
    wanted = Wanted(
        options.api,
        options.collection,
        options.area,
        options.dates,
        options.bands,
        options.cloud,
        options.mask,
        options.limit,
    )
    text = search(wanted)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_text(options.out, text)


def tile(options: argparse.Namespace) -> None:
    """Run the tile stage, or draw some of the tiles."""
    from landbalance.failures import noted
    from landbalance.tile.stage import run

    layout = Layout(options.results)
    dataset = named(options, "datasets", options.dataset)
    if options.preview:
        from landbalance.tile.preview import preview

        target = layout.tile(options.dataset) / "preview.png"
        preview(options.dataset, dataset, layout.tile(options.dataset), target)
        sys.stdout.write(f"{target}\n")
        return
    source, store, scene = layout.download(options.dataset), layout.tile(options.dataset), options.scene
    with noted(layout.tile_scene(options.dataset, scene)) if scene in dataset.cut_scenes else nullcontext():
        run(options.dataset, dataset, source, store, scene)


def profile(options: argparse.Namespace) -> None:
    """Run the profile stage."""
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.profile import run

    named(options, "datasets", options.dataset)
    named(options, "models", options.model)
    cluster = load_cluster(options.cluster)
    if options.node not in [node.name for node in cluster.nodes]:
        names = ", ".join(node.name for node in cluster.nodes)
        raise UserError(f"{options.cluster}: no node is called {options.node}; allowed: {names}.")
    command = _worker_command(
        options, "profile", options.dataset, options.model, options.node, "--cluster", str(options.cluster)
    )
    run(
        options.dataset,
        options.model,
        options.node,
        load_config(options.config),
        cluster,
        Layout(options.results),
        command,
        options.again,
    )


def plan(options: argparse.Namespace) -> None:
    """Run the plan stage, or answer a what-if."""
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.plan import run
    from landbalance.tiles import open_tiles

    config, layout = load_config(options.config), Layout(options.results)
    experiment = named(options, "experiments", options.experiment)
    cluster = load_cluster(options.cluster).limited_to(experiment.nodes)
    if options.what_if or options.batch_size:
        sys.stdout.write(_what_if(options, config, cluster, layout) + "\n")
        return
    profiles = _profiles(experiment, cluster, layout)
    samples = len(open_tiles(layout.tile(experiment.dataset)).ids("train"))
    run(options.experiment, config, cluster, profiles, samples, layout.plan(options.experiment))


def _what_if(options: argparse.Namespace, config: Config, cluster: Cluster, layout: Layout) -> str:
    from landbalance.plan import Scenario, imagined_cluster, what_if
    from landbalance.profiles import read_profile
    from landbalance.tiles import open_tiles

    if wrong := [size for size in options.batch_size if size < 1]:
        raise UserError(f"--batch-size: found {wrong[0]}; allowed: 1 or more.")
    experiment = config.experiments[options.experiment]
    clusters = [imagined_cluster(change, cluster) for change in options.what_if] or [cluster]
    scenarios = [Scenario(cluster)]
    scenarios += [Scenario(imagined, size) for imagined in clusters for size in options.batch_size or [None]]
    store = layout.tile(experiment.dataset)
    samples = len(open_tiles(store).ids("train")) if (store / "statistics.json").exists() else None

    def profile_of(node: str) -> NodeProfile:
        return read_profile(layout.profile(experiment.dataset, experiment.model, node))

    return what_if(options.experiment, config, scenarios, profile_of, samples)


def _profiles(experiment: Experiment, cluster: Cluster, layout: Layout) -> dict[str, NodeProfile]:
    from landbalance.profiles import read_profile

    return {
        node.name: read_profile(layout.profile(experiment.dataset, experiment.model, node.name))
        for node in cluster.nodes
    }


def train(options: argparse.Namespace) -> int:
    """Run the train stage, or be one worker of it; return the exit status."""
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.train import Site, run

    experiment = named(options, "experiments", options.experiment)
    config, layout = load_config(options.config), Layout(options.results)

    def replan(cluster: Cluster) -> Plan:
        from landbalance.plan import planned
        from landbalance.tiles import open_tiles

        samples = len(open_tiles(layout.tile(experiment.dataset)).ids("train"))
        return planned(options.experiment, config, cluster, _profiles(experiment, cluster, layout), samples)

    words = ["--cluster", str(options.cluster)] if options.cluster else []
    command = _worker_command(options, "train", options.experiment, *words)
    site = None
    if options.cluster:
        cluster = load_cluster(options.cluster).limited_to(experiment.nodes)
        site = Site(cluster, replan, _measured_gpus(experiment, cluster, layout), options.attempt)
    return run(options.experiment, config, layout, command, options.restart, site)


def _measured_gpus(experiment: Experiment, cluster: Cluster, layout: Layout) -> dict[str, list[str | None]]:
    """Return what each worker of each kind of node was measured on: the name of a GPU, or None for the CPU."""
    from landbalance.profiles import read_profile

    paths = {node.name: layout.profile(experiment.dataset, experiment.model, node.name) for node in cluster.nodes}
    found = {name: read_profile(path).curves for name, path in paths.items() if path.exists()}
    return {
        name: [curve.device_name if curve.device == "cuda" else None for curve in curves for _ in range(curve.count)]
        for name, curves in found.items()
    }


def evaluate(options: argparse.Namespace) -> None:
    """Run the evaluate stage."""
    from landbalance.config import load_config
    from landbalance.evaluate import run

    config, layout = load_config(options.config), Layout(options.results)
    experiment = named(options, "experiments", options.experiment)
    store, bundle = layout.tile(experiment.dataset), layout.train(options.experiment)
    run(options.experiment, config.evaluate, store, bundle, layout.evaluate(options.experiment))


def report(options: argparse.Namespace) -> None:
    """Write a report, or the overview of all."""
    from landbalance.config import load_config
    from landbalance.report import Inputs, run, run_index

    config, layout = load_config(options.config), Layout(options.results)
    if options.experiment is None:
        run_index(config, layout)
    else:
        named(options, "experiments", options.experiment)
        run(options.experiment, config, layout, Inputs(options.config, options.cluster))


def compare(options: argparse.Namespace) -> None:
    """Write the comparison of arms, of those experiments that have been run."""
    from landbalance.config import load_config
    from landbalance.report import run_compare

    run_compare(load_config(options.config), Layout(options.results))


def summary(options: argparse.Namespace) -> None:
    """Print the figures that matter."""
    from landbalance.config import load_config
    from landbalance.report import summary

    sys.stdout.write(summary(load_config(options.config), Layout(options.results)) + "\n")


def named(options: argparse.Namespace, section: str, name: str) -> Any:
    """Return the settings called `name` in a section of the configuration."""
    from landbalance.config import load_config

    settings = getattr(load_config(options.config), section)
    if name not in settings:
        raise UserError(f"{options.config}: {section} has no {name}; allowed: {', '.join(settings)}.")
    return settings[name]


def _worker_command(options: argparse.Namespace, *words: str) -> list[str]:
    """Return the command that starts one worker of this command."""
    files = ["--config", str(options.config), "--results", str(options.results)]
    return [sys.executable, "-m", "landbalance", *words, *files]
