"""A training job: its workers are started here, or this process is one of them."""

import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from landbalance.config import Config
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.place import place_in_job
from landbalance.errors import UserError
from landbalance.files import remove
from landbalance.layout import Layout
from landbalance.plans import Plan, read_plan
from landbalance.tiles import open_tiles
from landbalance.train.allocation import JOB, NODE, Site, assigned, lead, start_workers
from landbalance.train.submit import Training, train_on_slurm

_log = logging.getLogger(__name__)


def run(
    name: str,
    config: Config,
    layout: Layout,
    command: Sequence[str],
    restart: bool = False,
    site: Site | None = None,
) -> int:
    """Train the experiment `name`: start the plan's workers, or be one when the environment says so.

    Writes ``model.safetensors``, ``model.json``, ``history.parquet``, ``timing.parquet`` and
    ``run.json`` into the experiment's folder; checkpoints lie there too while it trains.

    Parameters
    ----------
    command : sequence of str
        The command that starts one worker with the same settings.
    restart : bool
        Drop the checkpoints of an earlier run.
    site : Site or None
        The nodes to train on, when they are others than this machine.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    UserError
        When the plan does not fit the experiment or the nodes, or a worker or a node fails.
    """
    if place_in_job() is not None:
        from landbalance.train.worker import work

        settled = assigned(os.environ)
        plan = settled.plan if settled else read_plan(layout.plan(name))
        _check_plan(name, plan, config, layout.plan(name))
        work(name, config, layout, plan, settled.gpus if settled else [])
        return 0
    if NODE in os.environ:
        return start_workers(command, layout.tile(config.experiments[name].dataset))
    plan = read_plan(layout.plan(name))
    _check_plan(name, plan, config, layout.plan(name))
    folder = layout.train(name)
    if JOB in os.environ and site is not None:
        return lead(plan, site, folder, command)
    if restart:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    shares = ", ".join(f"{worker.share} on {worker.node}, {worker.title}" for worker in plan.used)
    _log.info("train %s: %s arm, global batch of %d: %s", name, plan.arm, plan.batch_size, shares)
    if site is not None and site.cluster.from_slurm:
        store = open_tiles(layout.tile(config.experiments[name].dataset))
        identity = identity_of(name, config, store.folder)
        train_on_slurm(Training(name, folder, command, identity), plan, site.cluster, site.attempt)
        remove(folder / "checkpoints")
        return 0
    nodes = {(worker.node, worker.node_index) for worker in plan.used}
    if len(nodes) > 1:
        raise UserError(
            f"{layout.plan(name)}: the plan spans {len(nodes)} nodes, and this command starts workers on one. Name "
            "the description that says how to get them from Slurm (--cluster), or start the workers with torchrun on "
            "each (docs/slurm.md)."
        )
    run_workers(
        command,
        [LocalWorker(worker.title, worker.threads) for worker in plan.used],
        "Run the same command again to go on from the last checkpoint.",
    )
    return 0


def _check_plan(name: str, plan: Plan, config: Config, path: Path) -> None:
    experiment = config.experiments[name]
    batch_size = config.training[experiment.training].batch_size
    found, wanted = (plan.arm, plan.batch_size), (experiment.arm, batch_size)
    if found != wanted:
        raise UserError(
            f"{path}: made for arm {found[0]} and batch_size {found[1]}, but the configuration says {wanted[0]} and "
            f"{wanted[1]}. Run `landbalance plan {name}` again."
        )


def identity_of(name: str, config: Config, store: Path) -> str:
    """Return what the job computes, as text: the same for any plan, different for other settings or tiles."""
    experiment = config.experiments[name]
    # The statistics tell the tiles' content, the index which of them are trained on.
    tiles = b"".join((store / file).read_bytes() for file in ("statistics.json", "index.parquet"))
    settings: dict[str, Any] = {
        "model": config.models[experiment.model].model_dump(),
        "training": config.training[experiment.training].model_dump(),
        "arm": experiment.arm,
        "tiles": hashlib.sha256(tiles).hexdigest(),
    }
    if weights := config.models[experiment.model].weights:
        settings["weights"] = hashlib.sha256(_starting_weights(weights)).hexdigest()
    # Who computes what, how long to wait and how often to save changes no result.
    for key in ("checkpoint_seconds", "timeout_seconds", "rebalance"):
        del settings["training"][key]
    return json.dumps(settings, sort_keys=True)


def _starting_weights(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"models.….weights: {path}: cannot be read ({error.strerror}). Correct the path.") from error


def code_digest() -> str:
    """Return a digest of this package's source files, so that workers can tell whether they run the same."""
    value = hashlib.sha256(sys.version.encode())
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        value.update(str(path.relative_to(package)).encode())
        value.update(path.read_bytes())
    return value.hexdigest()
