"""What one worker process does: join the others, agree with them, train, and write on rank 0."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from landbalance.allocator import keep_freed_memory
from landbalance.bundle import Bundle, save_bundle
from landbalance.config import Config, Model, Training
from landbalance.distributed.batchnorm import collectives_per_step, with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.device import check_measured, device_of, set_repeatability
from landbalance.distributed.ending import is_lost_contact, leave, reason
from landbalance.distributed.group import Communicator, joined, new_group
from landbalance.distributed.heartbeat import Heartbeat
from landbalance.distributed.launch import LOST_CONTACT, STOPPED, end_with_launcher
from landbalance.distributed.place import Place, place_in_job
from landbalance.distributed.reduction import Member, chosen_way, ways_to_sum
from landbalance.errors import UserError
from landbalance.files import placed, remove, write_json
from landbalance.layout import Layout
from landbalance.models import build_model, load_starting_weights
from landbalance.objective import balanced_class_weights
from landbalance.optimiser import build_optimiser
from landbalance.plans import Plan, time_curve_of
from landbalance.tiles import StoreInfo, open_tiles
from landbalance.train.allocation import NODE, TILES
from landbalance.train.checkpoint import Position, load_checkpoint
from landbalance.train.job import code_digest, identity_of
from landbalance.train.loop import Job, StoppedError, StopRequest, train
from landbalance.train.rebalance import Change, Shares, Watch, time_tables

_log = logging.getLogger(__name__)
_NOT_DETERMINISTIC = (
    "training.….deterministic: true, but a computation of this model does not repeat to the bit on this device ({}). "
    "Set it to false, or choose another architecture."
)


def work(name: str, config: Config, layout: Layout, plan: Plan, gpus: Sequence[str | None] = ()) -> None:
    """Be one worker of the training job of experiment `name`.

    Parameters
    ----------
    gpus : sequence of str or None
        The GPU that each worker was measured on, by rank, where that is known.

    Raises
    ------
    UserError
        When the workers differ in plan, settings, code or data, or a setting or a GPU does not fit.
    """
    place = place_in_job()
    assert place is not None
    end_with_launcher()
    stop = StopRequest()
    signal.signal(signal.SIGTERM, lambda number, frame: setattr(stop, "requested", True))
    logging.getLogger().setLevel(logging.INFO if place.rank == 0 else logging.WARNING)
    started = datetime.now(UTC)
    settings = config.training[config.experiments[name].training]
    _check_world(plan, place)
    worker = plan.used[place.rank]
    clock = Clock(device_of(plan.workers, place.rank), worker.slowdown)
    check_measured(clock.device, gpus[place.rank] if gpus else None, worker.node)
    torch.set_num_threads(worker.threads)
    keep_freed_memory()
    set_repeatability(settings.deterministic)
    with joined(place, settings.timeout_seconds):
        heartbeat = Heartbeat(place, [other.title for other in plan.used], clock)
        try:
            job, position = _prepared(name, config, layout, plan, place, clock, stop)
            train(job, position)
            if place.rank == 0:
                _write_results(name, config, layout, plan, job, position, started)
            dist.barrier()
        except StoppedError:
            leave(STOPPED)
        except RuntimeError as error:
            if "deterministic" in str(error):
                raise UserError(_NOT_DETERMINISTIC.format(str(error).splitlines()[0])) from error
            if not is_lost_contact(error):
                raise
            _log.error(
                "worker %d lost contact with the others: %s (%s)", place.rank, heartbeat.verdict(), reason(error)
            )
            leave(LOST_CONTACT)
        leave(0)


def _check_world(plan: Plan, place: Place) -> None:
    if place.world_size != len(plan.used):
        raise UserError(
            f"the plan of {plan.experiment} is for {len(plan.used)} workers, but {place.world_size} were started. "
            f"Start one process per worker of the plan, or run `landbalance plan {plan.experiment}` again."
        )


def _prepared(
    name: str, config: Config, layout: Layout, plan: Plan, place: Place, clock: Clock, stop: StopRequest
) -> tuple[Job, Position]:
    """Return this worker's job and where to begin."""
    experiment = config.experiments[name]
    settings, model = config.training[experiment.training], config.models[experiment.model]
    folder = layout.train(name)
    store = open_tiles(Path(os.environ.get(TILES, layout.tile(experiment.dataset))))
    identity = identity_of(name, config, store.folder)
    _agree({"settings or tiles": identity, "plan": plan.model_dump_json(), "code": code_digest()}, plan)
    if not len(store.ids("train")):
        raise UserError(f"{store.folder}: no tile is in the train split. Change split or labels, and tile again.")

    precision = getattr(torch, model.precision)
    network, averaged = _networks(model, store.info, settings, clock.device)
    members = [Member(other.node, other.node_index, other.device, other.speed / other.threads) for other in plan.used]
    ways = ways_to_sum(members, clock.device, settings.timeout_seconds)
    # A group of its own: small, blocking collectives must not queue behind buckets of gradients.
    group = new_group("cuda" if "nccl" in ways else "cpu", settings.timeout_seconds)
    network = with_global_batch_norm(network, Communicator(clock, group))
    elements = sum(parameter.numel() for parameter in network.parameters())
    optimiser = build_optimiser(network, settings.optimiser)

    position = Position()
    checkpoints = folder / "checkpoints"
    checkpoint = load_checkpoint(checkpoints, identity)
    if checkpoint is not None:
        network.load_state_dict(checkpoint.network)
        if averaged is not None and checkpoint.averaged is not None:
            averaged.load_state_dict(checkpoint.averaged)
        optimiser.load_state_dict(checkpoint.optimiser)
        position = checkpoint.position
        position.resumed += 1
    # A shared folder may show one node an older list of files than another.
    _agree({"checkpoint": f"{position.epoch}, {position.step}"}, plan)
    planned = [other.share for other in plan.used]
    moved = [item for item in position.changes if item["planned"] == planned]
    changes = [Change(item["step"], item["shares"], item["reason"]) for item in moved]
    if position.resumed:
        _log.info("going on from a checkpoint: epoch %d, step %d", position.epoch + 1, position.step + 1)
    counts = store.info.class_counts["train"]
    job = Job(
        title=name,
        settings=settings,
        arm=plan.arm,
        precision=precision,
        store=store,
        network=network,
        averaged=averaged,
        optimiser=optimiser,
        class_weights=balanced_class_weights(counts) if settings.class_weights == "balanced" else None,
        shares=Shares(planned, changes),
        watch=_watch(plan, settings, at_once=collectives_per_step(network) > 0),
        rank=place.rank,
        micro_batch=plan.used[place.rank].micro_batch,
        clock=clock,
        start_sum=ways[chosen_way(ways, elements, clock.device, measured=not settings.deterministic)],
        identity=identity,
        checkpoints=checkpoints,
        stop=stop,
    )
    return job, position


def _watch(plan: Plan, settings: Training, at_once: bool) -> Watch | None:
    """Return what watches the workers, if shares may move: the plain means of other arms depend on shares."""
    curves = [curve for worker in plan.used if (curve := time_curve_of(plan, worker)) is not None]
    if not settings.rebalance or settings.deterministic or plan.arm != "balanced" or len(curves) < len(plan.used):
        return None
    tables = time_tables(curves, plan.batch_size, at_once)
    return Watch(tables, [worker.title for worker in plan.used]) if len(curves) > 1 else None


def _networks(
    model: Model, info: StoreInfo, settings: Training, device: torch.device
) -> tuple[nn.Module, nn.Module | None]:
    """Return the fresh network, and a copy for its moving average if the settings want one."""
    torch.manual_seed(settings.seed)
    network = build_model(model, len(info.bands), len(info.classes))
    if model.weights is not None:
        fresh = load_starting_weights(network, Path(model.weights).expanduser(), len(info.classes))
        _log.info("starting from %s%s", model.weights, f"; afresh: {', '.join(fresh)}" if fresh else "")
    averaged = None
    if settings.ema is not None:
        averaged = build_model(model, len(info.bands), len(info.classes))
        averaged.load_state_dict(network.state_dict())
    dtype = torch.float64 if model.precision == "float64" else torch.float32
    return network.to(device, dtype), None if averaged is None else averaged.to(device, dtype)


def _agree(mine: dict[str, str], plan: Plan) -> None:
    """Stop unless all workers have the same settings, plan and code as rank 0."""
    everyone: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, mine)
    for rank, theirs in enumerate(everyone):
        for what, value in theirs.items():
            if value != everyone[0][what]:
                raise UserError(
                    f"worker {rank} ({plan.used[rank].title}) has another {what} than worker 0. All workers must read "
                    "the same files: check the shared folder and the installed version on its node."
                )


def _write_results(
    name: str, config: Config, layout: Layout, plan: Plan, job: Job, position: Position, started: datetime
) -> None:
    import pandas as pd

    folder = layout.train(name)
    info = job.store.info
    experiment = config.experiments[name]
    dataset = config.datasets[experiment.dataset]
    settings = {
        "model": config.models[experiment.model].model_dump(mode="json"),
        "training": config.training[experiment.training].model_dump(mode="json"),
        "arm": experiment.arm,
    }
    provenance: dict[str, Any] = {
        "experiment": name,
        "dataset": experiment.dataset,
        "settings": settings,
        "versions": _versions(),
        "workers": [f"{worker.share} of {plan.batch_size} samples: {worker.title}" for worker in plan.used],
    }
    bundle = Bundle(
        task=info.task,
        model=config.models[experiment.model],
        bands=info.bands,
        classes=info.classes,
        tile_size=info.tile_size,
        resolution=info.resolution,
        normalisation=info.normalisation,
        reflectance=dataset.reflectance,
        stretch=None if dataset.folders is None else dataset.folders.stretch,
        provenance=provenance,
    )
    for table, rows in (("history", position.history), ("timing", position.timing)):
        with placed(folder / f"{table}.parquet") as temporary:
            pd.DataFrame(rows).to_parquet(temporary, index=False)
    write_json(
        folder / "run.json",
        {
            "experiment": name,
            "arm": plan.arm,
            "started": started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": position.seconds,
            "resumed": position.resumed,
            "workers": [worker.model_dump(mode="json") for worker in plan.workers],
            "versions": _versions(),
            "commit": _commit(),
            "settings": settings,
            "measured": _measured(position.timing, plan),
            "changes": position.changes,
        },
    )
    save_bundle(folder, job.result, bundle)
    if NODE not in os.environ:  # whoever submitted a Slurm job removes them: it may be gone, and train again
        remove(job.checkpoints)
    _log.info("trained %s: %d epochs in %.0f s", name, len(position.history), position.seconds)


def _measured(timing: list[dict[str, float]], plan: Plan) -> dict[str, float | None]:
    """Return the median time of a step on the whole batch, without each epoch's first step."""
    steps: dict[tuple[float, float], list[dict[str, float]]] = {}
    for row in timing:
        steps.setdefault((row["epoch"], row["step"]), []).append(row)
    whole = [
        max(row["step_seconds"] for row in rows)
        for (_, step), rows in steps.items()
        if step > 0 and sum(row["samples"] for row in rows) == plan.batch_size
    ]
    if not whole:
        return {"step_seconds": None, "samples_per_second": None}
    return {"step_seconds": median(whole), "samples_per_second": plan.batch_size / median(whole)}


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("landbalance", "torch", "torchvision", "segmentation-models-pytorch", "numpy")
    return {"python": sys.version.split()[0]} | {name: version(name) for name in names}


def _commit() -> str | None:
    """Return the commit of the checkout that this package runs from, if it is one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None
