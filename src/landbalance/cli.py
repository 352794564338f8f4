"""The command line: one subcommand per stage, the same ones that the workflow calls."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from landbalance import __version__, commands, map_commands
from landbalance.errors import UserError

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
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[argparse.Namespace], int | None], text: str, *names: str
    ) -> argparse.ArgumentParser:
        command = subparsers.add_parser(
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

    def with_cluster(command: argparse.ArgumentParser, profile: str = "local") -> argparse.ArgumentParser:
        command.add_argument(
            "--cluster",
            type=Path,
            default=Path("profiles", profile, "cluster.yaml"),
            help="which nodes and workers there are (default: %(default)s)",
        )
        return command

    def sampling(name: str, run: Callable[[argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        command = add(name, run, text)
        command.add_argument("experiment", nargs="?", help="a name under `experiments`, whose maps are meant")
        command.add_argument("--map", type=Path, nargs="+", help="class maps, instead of those of an experiment")
        return command

    with_cluster(add("check", commands.check, "check the configuration and the cluster description, and run nothing"))
    cluster = with_cluster(
        add("cluster", commands.cluster, "describe a Slurm cluster, or check its description"), "slurm"
    )
    what = cluster.add_mutually_exclusive_group(required=True)
    what.add_argument("--detect", action="store_true", help="print a first draft of the description of this cluster")
    what.add_argument("--check", action="store_true", help="say what of the description does not fit this cluster")
    download = add("download", commands.download, "fetch, check and unpack a dataset's sources", "dataset")
    download.add_argument(
        "--offline", action="store_true", help="use no network: only local files and the cache (LANDBALANCE_OFFLINE=1)"
    )
    datasets = add("datasets", commands.datasets, "list the benchmark data sets that a configuration can name")
    datasets.add_argument("names", nargs="*", metavar="NAME", help="describe these; a .yaml file of your own, too")
    search = add("search", commands.search, "find scenes in a STAC catalogue and print them for the configuration")
    search.add_argument(
        "--api",
        required=True,
        help="address of a STAC API, or: copernicus, earth-search, planetary-computer, usgs-landsat",
    )
    search.add_argument("--collection", required=True, help="e.g. sentinel-2-l2a")
    search.add_argument("--area", required=True, help="west,south,east,north in degrees, or a vector file")
    search.add_argument("--dates", required=True, help="a day or FIRST/LAST, e.g. 2023-05-01/2023-09-30")
    search.add_argument(
        "--bands",
        required=True,
        nargs="+",
        metavar="BAND",
        help="keys of assets or common names, in the order of the model's input; NIR=nir gives a band another name",
    )
    search.add_argument("--cloud", type=float, metavar="PERCENT", help="most cloud cover of a scene")
    search.add_argument("--mask", metavar="ASSET", help="mask clouds by this asset: scl or qa_pixel")
    search.add_argument("--limit", type=int, metavar="N", help="take the N least cloudy scenes")
    search.add_argument("--out", type=Path, help="write to this file instead")
    tile = add(
        "tile",
        commands.tile,
        "cut a dataset's scenes and labels into tiles, split for train, validation and test",
        "dataset",
    )
    tile.add_argument(
        "--preview", action="store_true", help="cut nothing; draw some tiles with their labels, preview.png beside them"
    )
    tile.add_argument("--scene", help="cut this scene and do no more; scenes that have not changed are not cut again")
    profile = with_cluster(
        add("profile", commands.profile, "measure training steps of a model on a node's workers", "dataset", "model")
    )
    profile.add_argument("node", help="a name under `nodes` in the cluster description")
    profile.add_argument("--again", action="store_true", help="measure even if nothing has changed since the last time")
    plan = with_cluster(
        add("plan", commands.plan, "find the shares of the global batch that make a step fastest", "experiment")
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
    train = add("train", commands.train, "train a model on all workers of the plan", "experiment")
    train.add_argument(
        "--cluster", type=Path, help="how to get the nodes from Slurm; without it, all workers are on this machine"
    )
    train.add_argument(
        "--attempt", type=int, default=1, help="which try this is; a Slurm job asks for more memory with each"
    )
    train.add_argument(
        "--restart", action="store_true", help="drop the checkpoint of an earlier run instead of going on from it"
    )
    add("evaluate", commands.evaluate, "judge a trained model on the test split", "experiment")
    mapping = add("map", map_commands.map, "map a scene with a trained model, or any scenes with a bundle (--model)")
    mapping.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="EXPERIMENT SCENE, as in the configuration. With --model, scenes: a file whose bands' descriptions are "
        "their names, a folder with a file per band, a product, or B02=file,B03=stack.tif:2",
    )
    mapping.add_argument("--model", type=Path, help="a bundle, instead of the model of an experiment")
    mapping.add_argument(
        "--mask",
        metavar="BAND",
        help="with --model: leave out clouds and what else a raster of codes tells: SCL or QA_PIXEL of a product, or a "
        "file, with its codes as in the configuration: '{band: clouds.tif, values: [1]}'",
    )
    mapping.add_argument("--out", type=Path, help="with --model: folder of the maps (default: here)")
    mapping.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --model: a setting of the section `map`, e.g. probability=true; may be repeated",
    )
    mapping.add_argument("--workers", type=int, help="threads that predict (default: all that suit the devices)")
    add("mosaic", map_commands.mosaic, "lay the maps of an experiment's scenes together", "experiment")
    export = add("export", map_commands.export, "write a bundle's model as ONNX, for other software")
    export.add_argument("bundle", type=Path, help="folder of the model bundle, e.g. results/train/EXPERIMENT")
    export.add_argument("--out", type=Path, help="the ONNX file (default: model.onnx in the bundle)")
    export.add_argument("--tiles", type=Path, help="tile store whose tiles the two models are compared on")
    report = with_cluster(add("report", commands.report, "write the HTML report of an experiment, or of all"))
    report.add_argument("experiment", nargs="?", help="a name under `experiments`; an overview of all when left out")
    add(
        "compare",
        commands.compare,
        "write the comparison of arms over all seeds, as far as they have been run",
    )
    design = sampling(
        "design", map_commands.design, "draw points of a map, stratified by its classes, for a person to label"
    )
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
    assess = sampling("assess", map_commands.assess, "estimate a map's accuracy and areas from labelled points")
    assess.add_argument(
        "--points", type=Path, help="the labelled points (default: design/EXPERIMENT.gpkg below the results)"
    )
    assess.add_argument("--out", type=Path, help="the result (default: assess/EXPERIMENT.json below the results)")
    assess.add_argument("--level", type=float, default=0.95, help="confidence level (default: %(default)s)")
    add("summary", commands.summary, "print where maps and reports lie, and the figures that matter")
    return parser
