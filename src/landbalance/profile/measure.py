"""Timing real training steps on one worker, while the others of its node do the same."""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil
import torch
import torch.distributed as dist

from landbalance.allocator import keep_freed_memory
from landbalance.cluster import Node
from landbalance.config import Config
from landbalance.config.learning import Profile
from landbalance.distributed.batchnorm import SinglePixelError
from landbalance.distributed.clock import Clock
from landbalance.distributed.device import cuda_device, device_name
from landbalance.distributed.ending import is_lost_contact, leave, reason
from landbalance.distributed.group import joined
from landbalance.distributed.launch import LOST_CONTACT, end_with_launcher
from landbalance.distributed.place import place_in_job
from landbalance.distributed.reduction import Member, StartSum, chosen_way, ways_to_sum
from landbalance.errors import UserError
from landbalance.files import write_json
from landbalance.layout import Layout
from landbalance.profile.communication import measured_allreduce
from landbalance.profile.energy import gpu_id, read_counters, watts
from landbalance.profile.job import batches, dependencies, expanded
from landbalance.profile.machine import this_machine
from landbalance.profile.memory import largest_batch, room, watched
from landbalance.profile.picture import draw_profile
from landbalance.profile.rounds import Rounds, Visit
from landbalance.profile.step import TrainingStep
from landbalance.profile.table import LiveTable
from landbalance.profiles import AllReduce, Curve, Memory, NodeProfile, Round, typical
from landbalance.tiles import TileStore, open_tiles

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 600.0
_RESERVED_SECONDS = 2.0
"""For timing sums and writing, at the end."""
_LOOKING = 0.1
"""Part of the time that goes into the first look, at memory."""


@dataclass(frozen=True)
class _Look:
    """What a worker finds out about itself at first: its device, its memory, and about how long a step takes."""

    device_name: str
    gpu: str | None
    threads: int
    memory: Memory
    seconds: dict[int, float]


def measure(dataset: str, model: str, node: Node, config: Config, layout: Layout) -> None:
    """Be one worker of the node's measurement; rank 0 writes the profile, and a picture beside it."""
    began = psutil.Process().create_time()
    place = place_in_job()
    assert place is not None
    end_with_launcher()
    logging.getLogger().setLevel(logging.INFO if place.rank == 0 else logging.WARNING)
    workers = expanded(node)
    worker = workers[place.rank]
    device = torch.device("cpu")
    if worker.device == "cuda":
        device = cuda_device(sum(other.device == "cuda" for other in workers[: place.rank]), node.name)
    torch.set_num_threads(worker.threads)
    store = open_tiles(layout.tile(dataset))
    if not len(store.ids("train")):
        raise UserError(f"{store.folder}: no tile is in the train split. Change split or labels, and tile again.")
    with joined(place, _TIMEOUT_SECONDS):
        try:
            _measure_together(dataset, model, node, config, layout, store, device, began)
        except RuntimeError as error:
            if not is_lost_contact(error):
                raise
            _log.error("worker %d lost contact with the others (%s)", place.rank, reason(error))
            leave(LOST_CONTACT)


def _measure_together(
    dataset: str,
    model: str,
    node: Node,
    config: Config,
    layout: Layout,
    store: TileStore,
    device: torch.device,
    began: float,
) -> None:
    """Measure in step with the other workers; rank 0 writes."""
    rank = dist.get_rank()
    clock = Clock(device, expanded(node)[rank].slowdown)
    step = TrainingStep(config.models[model], store, clock, _TIMEOUT_SECONDS)
    sizes = batches(config, dataset, model)
    looks = _first_looks(step, clock, node, sizes[-1], config.profile)
    keep_freed_memory()  # not before: what steps on fewer samples left behind would seem to be needed
    rounds = _rounds(node, config, sizes, looks)
    way, start_sum = _way_to_sum(step, node, looks, device)
    step.sum_with(start_sum)
    gpus = [look.gpu for look in looks if look.gpu is not None]
    started, before = time.monotonic(), read_counters(gpus)
    _take_rounds(rounds, step, config, began, rank)
    power = watts(before, read_counters(gpus), time.monotonic() - started)
    allreduce = measured_allreduce(step.network, device, way, start_sum) if dist.get_world_size() > 1 else None
    if rank == 0:
        profile = _profile(dataset, model, node, config, store, looks, rounds, allreduce, power)
        target = layout.profile(dataset, model, node.name)
        draw_profile(profile, target.with_suffix(".svg"))
        write_json(target, profile.model_dump(mode="json"))
        _report(profile, rounds.doubt(), config.profile.tolerance)
    dist.barrier()


def _first_looks(step: TrainingStep, clock: Clock, node: Node, largest: int, settings: Profile) -> list[_Look]:
    """Return what each worker finds out about memory and speed from a few steps of growing size, by rank."""
    workers = expanded(node)
    worker = workers[dist.get_rank()]
    limit = room(clock.device, sum(other.device == "cpu" for other in workers), settings.memory_reserve)
    dist.barrier()  # all have seen the same free memory before any takes some
    clock.slowdown = 1.0  # memory can be looked at without idling
    seconds, memory = watched(step.take_apart, largest, clock.device, limit, _LOOKING * settings.seconds)
    clock.slowdown = worker.slowdown
    mine = _Look(
        device_name(clock.device),
        gpu_id(clock.device),
        torch.get_num_threads(),
        memory,
        {size: value * worker.slowdown for size, value in seconds.items()},
    )
    everyone: list[_Look] = [mine] * len(workers)
    dist.all_gather_object(everyone, mine)
    return everyone


def _rounds(node: Node, config: Config, sizes: list[int], looks: Sequence[_Look]) -> Rounds:
    if any(not look.seconds for look in looks):
        raise UserError(
            f"a worker of node {node.name} cannot take a step on {sizes[-1]} samples or fewer: there is too little "
            "free memory, or batch norm would see a single pixel. Close other programs, or choose another model or "
            "batch_size."
        )
    kinds = [entry for entry, worker in enumerate(node.workers) for _ in range(worker.count)]
    for entry in range(len(node.workers)):
        names = [look.device_name for look, kind in zip(looks, kinds, strict=True) if kind == entry]
        if len(set(names)) > 1:
            raise UserError(
                f"nodes.{node.name}.workers, entry {entry + 1}: its workers compute on unlike devices "
                f"({', '.join(names)}), but have one share. Give each sort an entry of its own, in the order in which "
                "`nvidia-smi` lists them."
            )
    most = [largest_batch(look.memory) for look in looks]
    of_kind = [
        min((cap for cap, kind in zip(most, kinds, strict=True) if kind == entry and cap is not None), default=None)
        for entry in range(len(node.workers))
    ]
    return Rounds(
        kinds=kinds,
        batches=sizes,
        caps=[of_kind[kind] for kind in kinds],
        guesses=[look.seconds for look in looks],
        smallest=max(min(look.seconds) for look in looks),
        repeats=config.profile.repeats,
        tolerance=config.profile.tolerance,
    )


def _way_to_sum(step: TrainingStep, node: Node, looks: Sequence[_Look], device: torch.device) -> tuple[str, StartSum]:
    """Return name and start of the way to sum gradients, chosen as training does."""
    speeds = [max(size / seconds for size, seconds in look.seconds.items()) for look in looks]
    members = [
        Member(node.name, 0, worker.device, speed / look.threads)
        for worker, look, speed in zip(expanded(node), looks, speeds, strict=True)
    ]
    ways = ways_to_sum(members, device, _TIMEOUT_SECONDS)
    elements = sum(parameter.numel() for parameter in step.network.parameters())
    name = chosen_way(ways, elements, device, measured=True)
    return name, ways[name]


def _take_rounds(rounds: Rounds, step: TrainingStep, config: Config, began: float, rank: int) -> None:
    """Take steps until all is known well enough, or the time is used up; all workers hold the same timings."""
    budget = config.profile.seconds - _RESERVED_SECONDS
    with LiveTable(rounds, budget, shown=rank == 0) as table:
        while True:
            spent = [time.time() - began]
            dist.broadcast_object_list(spent)
            visit = rounds.next_visit(spent[0], budget)
            if visit is None:
                break
            table.update(spent[0])
            _take(rounds, step, visit, config.profile.warmup)
    if not rounds.taken:
        raise UserError("no training step could be measured: batch norm needs more than one pixel. Raise batch_size.")


def _take(rounds: Rounds, step: TrainingStep, visit: Visit, warmup: int) -> None:
    """Take the steps of a visit and give all workers everyone's timings."""
    rank = dist.get_rank()
    first = visit.samples not in rounds.taken
    try:
        mine = step.timings(visit.samples[rank], warmup if first else 1, visit.repeats, visit.apart)
    except SinglePixelError:  # of the global batch: on all workers alike
        rounds.impossible.add(visit.samples)
        if rank == 0:
            _log.warning("shares %s are not measured: batch norm needs more than one pixel", list(visit.samples))
        return
    everyone = [mine] * len(rounds.kinds)
    dist.all_gather_object(everyone, mine)
    rounds.add(visit, [computed for computed, _ in everyone], [whole for _, whole in everyone])


def _profile(
    dataset: str,
    model: str,
    node: Node,
    config: Config,
    store: TileStore,
    looks: Sequence[_Look],
    rounds: Rounds,
    allreduce: AllReduce | None,
    power: float | None,
) -> NodeProfile:
    info, machine = store.info, this_machine()
    taken = [
        Round(samples=list(samples), step_seconds=found.steps, apart_seconds=found.apart)
        for samples, found in rounds.taken.items()
    ]
    if allreduce is not None:
        allreduce = allreduce.model_copy(update={"hidden": _hidden(rounds, allreduce)})
    return NodeProfile(
        dataset=dataset,
        model=model,
        node=node.name,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine,
        bands=len(info.bands),
        tile_size=info.tile_size,
        curves=_curves(node, looks, rounds),
        rounds=taken,
        allreduce=allreduce,
        watts=power,
        depends_on=dependencies(dataset, model, node, config, info, machine),
    )


def _hidden(rounds: Rounds, allreduce: AllReduce) -> float | None:
    """Return how much of a step's communication does not lengthen it, at the shares of the largest batch."""
    samples = rounds.together(rounds.batches[-1])
    found = rounds.taken.get(samples)
    if found is None or not found.steps or not found.apart:
        return None
    exposed = typical(found.steps).median - typical(found.apart).median
    latency = typical(allreduce.latency_seconds).median
    alone = typical(allreduce.seconds_by([allreduce.way])).median + latency * allreduce.collectives_per_step
    return min(max(1 - exposed / alone, 0.0), 1.0)


def _curves(node: Node, looks: Sequence[_Look], rounds: Rounds) -> list[Curve]:
    """Return a curve per entry of the node's workers; timings of its processes stand together."""
    curves = []
    for entry, worker in enumerate(node.workers):
        rank = rounds.kinds.index(entry)
        pooled = rounds.pooled(entry)
        sizes = sorted(pooled)
        curves.append(
            Curve(
                title=worker.title,
                device=worker.device,
                device_name=looks[rank].device_name,
                count=worker.count,
                emulated=worker.emulated,
                batch_sizes=sizes,
                seconds=[pooled[size] for size in sizes],
                largest_batch=rounds.caps[rank],
                threads=looks[rank].threads,
                memory=looks[rank].memory,
            )
        )
    return curves


def _report(profile: NodeProfile, doubt: float, tolerance: float) -> None:
    for curve in profile.curves:
        size, found = curve.batch_sizes[-1], typical(curve.seconds[-1])
        _log.info(
            "%s: %.1f samples/s at a batch of %d; %d batch sizes, %d timings; at most %s samples fit",
            curve.title, size / found.median, size, len(curve.batch_sizes), sum(map(len, curve.seconds)),
            curve.largest_batch or "?",
        )  # fmt: skip
    if doubt > tolerance:
        known = f"known to ±{100 * doubt:.1f} % only" if math.isfinite(doubt) else "timed less than six times"
        _log.warning(
            "some steps are %s, not known to ±%.3g %%: the time (profile.seconds) was used up, or other programs ran",
            known, 100 * tolerance,
        )  # fmt: skip
