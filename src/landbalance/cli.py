"""The command line: one subcommand per stage, the same ones that the workflow calls."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from landbalance import __version__
from landbalance.errors import UserError
from landbalance.layout import Layout

if TYPE_CHECKING:
    from landbalance.cluster import Cluster
    from landbalance.config.learning import Experiment
    from landbalance.plans import Plan
    from landbalance.profiles import NodeProfile

_log = logging.getLogger("landbalance")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # GDAL's own words come as our messages do, which say more.
    logging.getLogger("rasterio._err").setLevel(logging.CRITICAL)
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    command: Callable[[argparse.Namespace], int | None] = options.command
    # A scheduler ends a job with SIGTERM: leave as after Ctrl-C, so that nothing half-written stays.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return command(options) or 0
    except UserError as error:
        _log.error("error: %s", error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        _log.error("stopped")
        return 130
    return 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Leave; SIGINT itself would do nothing in a process that was started in the background by a script."""
    raise KeyboardInterrupt


class _Formatter(logging.Formatter):
    """Says of a warning that it is one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return (
            text.replace(record.message, f"warning: {record.message}", 1) if record.levelno == logging.WARNING else text
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="landbalance",
        description="Land-cover maps from satellite scenes, trained on unequal machines. Each stage reads "
        "files of the one before and writes files for the next; `snakemake` runs them all in order.",
        epilog="download → tile → profile → plan → train → evaluate → map → report",
    )
    parser.add_argument("--version", action="version", version=f"landbalance {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[argparse.Namespace], int | None], text: str, *names: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=text, description=f"{text[:1].upper()}{text[1:]}.", formatter_class=argparse.HelpFormatter
        )
        for positional in names:
            command.add_argument(positional, help=f"a name under `{positional}s` in the configuration")
        command.add_argument(
            "--config", type=Path, default=Path("config.yaml"), help="what is computed (default: %(default)s)"
        )
        command.add_argument(
            "--results", type=Path, default=Path("results"), help="folder of results (default: %(default)s)"
        )
        command.set_defaults(command=run)
        return command

    def with_cluster(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
        command.add_argument(
            "--cluster",
            type=Path,
            default=Path("profiles/local/cluster.yaml"),
            help="which nodes and workers there are (default: %(default)s)",
        )
        return command

    with_cluster(add("check", _check, "check the configuration and the cluster description, and run nothing"))
    cluster = with_cluster(add("cluster", _cluster, "describe a Slurm cluster, or check its description"))
    what = cluster.add_mutually_exclusive_group(required=True)
    what.add_argument("--detect", action="store_true", help="print a first draft of the description of this cluster")
    what.add_argument("--check", action="store_true", help="say what of the description does not fit this cluster")
    add("download", _download, "fetch, check and unpack a dataset's sources", "dataset")
    add("tile", _tile, "cut a dataset's scenes and labels into tiles, split for train, validation and test", "dataset")
    profile = with_cluster(
        add("profile", _profile, "measure training steps of a model on a node's workers", "dataset", "model")
    )
    profile.add_argument("node", help="a name under `nodes` in the cluster description")
    with_cluster(add("plan", _plan, "find the shares of the global batch that make a step fastest", "experiment"))
    train = add("train", _train, "train a model on all workers of the plan", "experiment")
    train.add_argument(
        "--cluster", type=Path, help="how to get the nodes from Slurm; without it, all workers are on this machine"
    )
    train.add_argument(
        "--attempt", type=int, default=1, help="which try this is; a Slurm job asks for more memory with each"
    )
    train.add_argument(
        "--restart", action="store_true", help="drop the checkpoint of an earlier run instead of going on from it"
    )
    add("evaluate", _evaluate, "judge a trained model on the test split", "experiment")
    mapping = add("map", _map, "map a scene with a trained model", "experiment")
    mapping.add_argument("scene", help="a name under `scenes` of the experiment's dataset")
    report = add("report", _report, "write the HTML report of an experiment, or of all")
    report.add_argument("experiment", nargs="?", help="a name under `experiments`; an overview of all when left out")
    add("summary", _summary, "print where maps and reports lie, and the figures that matter")
    return parser


def _check(options: argparse.Namespace) -> None:
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


def _cluster(options: argparse.Namespace) -> int:
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


def _download(options: argparse.Namespace) -> None:
    from landbalance.download import run

    dataset = _named(options, "datasets", options.dataset)
    run(options.dataset, dataset, Layout(options.results).download(options.dataset))


def _tile(options: argparse.Namespace) -> None:
    from landbalance.tile import run

    layout = Layout(options.results)
    dataset = _named(options, "datasets", options.dataset)
    run(options.dataset, dataset, layout.download(options.dataset), layout.tile(options.dataset))


def _profile(options: argparse.Namespace) -> None:
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.profile import run

    _named(options, "datasets", options.dataset)
    _named(options, "models", options.model)
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
    )


def _plan(options: argparse.Namespace) -> None:
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.plan import run
    from landbalance.tiles import open_tiles

    config, cluster, layout = load_config(options.config), load_cluster(options.cluster), Layout(options.results)
    experiment = _named(options, "experiments", options.experiment)
    profiles = _profiles(experiment, cluster, layout)
    samples = len(open_tiles(layout.tile(experiment.dataset)).ids("train"))
    run(options.experiment, config, cluster, profiles, samples, layout.plan(options.experiment))


def _profiles(experiment: Experiment, cluster: Cluster, layout: Layout) -> dict[str, NodeProfile]:
    from landbalance.profiles import read_profile

    return {
        node.name: read_profile(layout.profile(experiment.dataset, experiment.model, node.name))
        for node in cluster.nodes
    }


def _train(options: argparse.Namespace) -> int:
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.train import Site, run

    experiment = _named(options, "experiments", options.experiment)
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
        cluster = load_cluster(options.cluster)
        site = Site(cluster, replan, _measured_gpus(experiment, cluster, layout), options.attempt)
    return run(options.experiment, config, layout, command, options.restart, site)


def _measured_gpus(experiment: Experiment, cluster: Cluster, layout: Layout) -> dict[str, str]:
    """Return the name of the GPU that each kind of node with one was measured on."""
    from landbalance.profiles import read_profile

    paths = {node.name: layout.profile(experiment.dataset, experiment.model, node.name) for node in cluster.nodes}
    found = {name: read_profile(path).curves for name, path in paths.items() if path.exists()}
    return {name: curve.device_name for name, curves in found.items() for curve in curves if curve.device == "cuda"}


def _evaluate(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.evaluate import run

    config, layout = load_config(options.config), Layout(options.results)
    experiment = _named(options, "experiments", options.experiment)
    store, bundle = layout.tile(experiment.dataset), layout.train(options.experiment)
    run(options.experiment, config.evaluate, store, bundle, layout.evaluate(options.experiment))


def _map(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.map import run

    config, layout = load_config(options.config), Layout(options.results)
    experiment = _named(options, "experiments", options.experiment)
    dataset = config.datasets[experiment.dataset]
    if options.scene not in dataset.scenes:
        names = ", ".join(dataset.scenes) or "none"
        raise UserError(
            f"{options.config}: dataset {experiment.dataset} has no scene {options.scene}; allowed: {names}."
        )
    source, bundle = layout.download(experiment.dataset), layout.train(options.experiment)
    run(options.scene, dataset, config.map, source, bundle, layout.map(options.experiment, options.scene))


def _report(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.report import run, run_index

    config, layout = load_config(options.config), Layout(options.results)
    if options.experiment is None:
        run_index(config, layout)
    else:
        _named(options, "experiments", options.experiment)
        run(options.experiment, config, layout)


def _summary(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.report import summary

    sys.stdout.write(summary(load_config(options.config), Layout(options.results)) + "\n")


def _named(options: argparse.Namespace, section: str, name: str) -> Any:
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
