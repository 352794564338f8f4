"""The command line: one subcommand per stage, the same ones that the workflow calls."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from landbalance import __version__
from landbalance.errors import UserError
from landbalance.layout import Layout

if TYPE_CHECKING:
    from landbalance.cluster import Cluster
    from landbalance.config import Config
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
    for chatty in ("matplotlib", "pyogrio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    command: Callable[[argparse.Namespace], int | None] = options.command
    # A scheduler ends a job with SIGTERM: leave as after Ctrl-C, so that nothing half-written stays.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
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

    def sampling(name: str, run: Callable[[argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        command = add(name, run, text)
        command.add_argument("experiment", nargs="?", help="a name under `experiments`, whose maps are meant")
        command.add_argument("--map", type=Path, nargs="+", help="class maps, instead of those of an experiment")
        return command

    with_cluster(add("check", _check, "check the configuration and the cluster description, and run nothing"))
    add("download", _download, "fetch, check and unpack a dataset's sources", "dataset")
    add("tile", _tile, "cut a dataset's scenes and labels into tiles, split for train, validation and test", "dataset")
    profile = with_cluster(
        add("profile", _profile, "measure training steps of a model on a node's workers", "dataset", "model")
    )
    profile.add_argument("node", help="a name under `nodes` in the cluster description")
    profile.add_argument("--again", action="store_true", help="measure even if nothing has changed since the last time")
    plan = with_cluster(
        add("plan", _plan, "find the shares of the global batch that make a step fastest", "experiment")
    )
    plan.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGE",
        help="write nothing; print what other nodes would give, beside what is there: NODE=4 (four of that kind), "
        "NODE=+2 (two more), several with commas between, or a file that describes a cluster; may be repeated",
    )
    plan.add_argument(
        "--batch-size",
        action="append",
        default=[],
        type=int,
        metavar="B",
        help="write nothing; print what this global batch size would give; may be repeated, goes with --what-if",
    )
    train = with_cluster(add("train", _train, "train a model on all workers of the plan", "experiment"))
    train.add_argument(
        "--restart", action="store_true", help="drop the checkpoint of an earlier run instead of going on from it"
    )
    add("evaluate", _evaluate, "judge a trained model on the test split", "experiment")
    mapping = add("map", _map, "map a scene with a trained model, or any scenes with a bundle (--model)")
    mapping.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="EXPERIMENT SCENE, as in the configuration. With --model, scenes: a file whose bands' descriptions are "
        "their names, a folder with a file per band, or B02=file,B03=stack.tif:2",
    )
    mapping.add_argument("--model", type=Path, help="a bundle, instead of the model of an experiment")
    mapping.add_argument("--out", type=Path, default=Path(), help="with --model: folder of the maps (default: here)")
    mapping.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --model: a setting of the section `map`, e.g. probability=true; may be repeated",
    )
    mapping.add_argument("--workers", type=int, help="threads that predict (default: all that suit the devices)")
    add("mosaic", _mosaic, "lay the maps of an experiment's scenes together", "experiment")
    export = add("export", _export, "write a bundle's model as ONNX, for other software")
    export.add_argument("bundle", type=Path, help="folder of the model bundle, e.g. results/train/EXPERIMENT")
    export.add_argument("--out", type=Path, help="the ONNX file (default: model.onnx in the bundle)")
    export.add_argument("--tiles", type=Path, help="tile store whose tiles the two models are compared on")
    report = with_cluster(add("report", _report, "write the HTML report of an experiment, or of all"))
    report.add_argument("experiment", nargs="?", help="a name under `experiments`; an overview of all when left out")
    design = sampling("design", _design, "draw points of a map, stratified by its classes, for a person to label")
    design.add_argument("--out", type=Path, help="the GeoPackage (default: design/EXPERIMENT.gpkg below the results)")
    design.add_argument(
        "--standard-error", type=float, default=0.02, help="of overall accuracy; decides how many points (%(default)s)"
    )
    design.add_argument("--points", type=int, help="how many points in all, instead of a standard error")
    design.add_argument(
        "--fewest", type=int, default=50, help="points that each class gets at least (default: %(default)s)"
    )
    design.add_argument(
        "--expected",
        type=float,
        help="user's accuracy to expect of each class (default: those of the experiment's test split, else 0.5)",
    )
    design.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    assess = sampling("assess", _assess, "estimate a map's accuracy and areas from labelled points")
    assess.add_argument(
        "--points", type=Path, help="the labelled points (default: design/EXPERIMENT.gpkg below the results)"
    )
    assess.add_argument("--out", type=Path, help="the result (default: assess/EXPERIMENT.json below the results)")
    assess.add_argument("--level", type=float, default=0.95, help="confidence level (default: %(default)s)")
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
        options.again,
    )


def _plan(options: argparse.Namespace) -> None:
    from landbalance.cluster import load_cluster
    from landbalance.config import load_config
    from landbalance.plan import run
    from landbalance.profiles import read_profile
    from landbalance.tiles import open_tiles

    config, cluster, layout = load_config(options.config), load_cluster(options.cluster), Layout(options.results)
    experiment = _named(options, "experiments", options.experiment)
    if options.what_if or options.batch_size:
        sys.stdout.write(_what_if(options, config, cluster, layout) + "\n")
        return
    profiles = {
        node.name: read_profile(layout.profile(experiment.dataset, experiment.model, node.name))
        for node in cluster.nodes
    }
    samples = len(open_tiles(layout.tile(experiment.dataset)).ids("train"))
    run(options.experiment, config, cluster, profiles, samples, layout.plan(options.experiment))


def _what_if(options: argparse.Namespace, config: "Config", cluster: "Cluster", layout: Layout) -> str:
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

    def profile_of(node: str) -> "NodeProfile":
        return read_profile(layout.profile(experiment.dataset, experiment.model, node))

    return what_if(options.experiment, config, scenarios, profile_of, samples)


def _train(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.train import run

    _named(options, "experiments", options.experiment)
    command = _worker_command(options, "train", options.experiment)
    run(options.experiment, load_config(options.config), Layout(options.results), command, options.restart)


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

    if options.model is not None:
        _map_with_bundle(options)
        return
    if len(options.names) != 2:
        raise UserError(
            f"landbalance map: found {' '.join(options.names)}; wanted: EXPERIMENT SCENE, or --model BUNDLE SCENE …"
        )
    if options.set:
        raise UserError(
            f"--set {options.set[0]}: only with --model; an experiment's settings stand in its configuration."
        )
    name, scene = options.names
    config, layout = load_config(options.config), Layout(options.results)
    experiment = _named(options, "experiments", name)
    dataset = config.datasets[experiment.dataset]
    if scene not in dataset.scenes:
        names = ", ".join(dataset.scenes) or "none"
        raise UserError(f"{options.config}: dataset {experiment.dataset} has no scene {scene}; allowed: {names}.")
    source, bundle = layout.download(experiment.dataset), layout.train(name)
    run(scene, dataset, config.map, source, bundle, layout.map(name, scene), options.workers)


def _map_with_bundle(options: argparse.Namespace) -> None:
    from landbalance.config import Map
    from landbalance.config.load import checked
    from landbalance.map import run_bundle
    from landbalance.workflow import overridden

    settings = checked(Map, overridden({}, options.set, "--set"), "--set")
    for path in run_bundle(options.model, options.names, settings, options.out, options.workers):
        sys.stdout.write(f"{path}\n")


def _mosaic(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.map import mosaic

    experiment, layout = _named(options, "experiments", options.experiment), Layout(options.results)
    config = load_config(options.config)
    dataset = config.datasets[experiment.dataset]
    if not dataset.scenes:
        raise UserError(f"{options.config}: dataset {experiment.dataset} has no scenes, so there is no map of it.")
    maps = [layout.map(options.experiment, scene) for scene in dataset.scenes]
    mosaic(maps, dataset.classes, config.map.nodata, layout.mosaic(options.experiment))


def _export(options: argparse.Namespace) -> None:
    from landbalance.export import export_onnx

    target = options.out or options.bundle / "model.onnx"
    sys.stdout.write(export_onnx(options.bundle, target, options.tiles) + "\n")


def _report(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.report import Inputs, run, run_index

    config, layout = load_config(options.config), Layout(options.results)
    if options.experiment is None:
        run_index(config, layout)
    else:
        _named(options, "experiments", options.experiment)
        run(options.experiment, config, layout, Inputs(options.config, options.cluster))


def _summary(options: argparse.Namespace) -> None:
    from landbalance.config import load_config
    from landbalance.report import summary

    sys.stdout.write(summary(load_config(options.config), Layout(options.results)) + "\n")


def _design(options: argparse.Namespace) -> None:
    from landbalance.files import read_json
    from landbalance.sample import Wanted, design

    layout, maps = Layout(options.results), _maps(options)
    if options.experiment is None and options.out is None:
        raise UserError("--out: say where the points of --map are to go, e.g. --out points.gpkg.")
    accuracies = {}
    if options.experiment is not None and options.expected is None:
        classes = read_json(layout.evaluate(options.experiment) / "metrics.json")["per_class"]
        accuracies = {item["name"]: item["users_accuracy"] for item in classes if item["users_accuracy"] is not None}
    wanted = Wanted(options.standard_error, options.points, options.fewest, options.expected, options.seed)
    design(maps, accuracies, wanted, options.out or layout.design(options.experiment))


def _assess(options: argparse.Namespace) -> None:
    from landbalance.sample import assess

    layout, maps = Layout(options.results), _maps(options)
    if options.experiment is None and (options.points is None or options.out is None):
        raise UserError("--points, --out: with --map, say which points are labelled and where the result is to go.")
    points, out = options.points or layout.design(options.experiment), options.out or layout.assess(options.experiment)
    sys.stdout.write(assess(maps, points, options.level, out) + "\n")


def _maps(options: argparse.Namespace) -> list[Path]:
    """Return the maps that a sample is about: those given, or all of an experiment."""
    from landbalance.config import load_config

    if (options.experiment is None) == (options.map is None):
        raise UserError("Give the name of an experiment or --map with class maps, one of the two.")
    if options.map is not None:
        return list(options.map)
    experiment, layout = _named(options, "experiments", options.experiment), Layout(options.results)
    scenes = load_config(options.config).datasets[experiment.dataset].scenes
    if not scenes:
        raise UserError(f"{options.config}: dataset {experiment.dataset} has no scenes, so there is no map of it.")
    mosaic = layout.mosaic(options.experiment)
    if len(scenes) > 1 and mosaic.is_file():
        return [mosaic]
    return [layout.map(options.experiment, scene) for scene in scenes]


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
