"""Ways to sum a tensor over all workers, and the choice of the fastest.

On *islands*, the workers of one node that compute on the same kind of device, summing is cheap: GPUs
of a node reach each other by NCCL, processes of a node through its memory. Four ways lead to the
same sum (but for rounding):

flat
    One gloo group of all workers.
leaders
    Each island sums onto its first worker (NCCL for GPUs, gloo for CPUs), these leaders sum over
    gloo, and each hands the result to its island.
nccl
    One NCCL group, if all workers are GPUs.
memory
    Each worker sums a part in the memory of all (`node_memory`), if all are CPUs of one node that permits it.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from landbalance.distributed.group import new_group
from landbalance.distributed.node_memory import sum_in_place

_log = logging.getLogger(__name__)
_REPEATS = 5

StartSum = Callable[[Tensor], Future[Tensor]]
"""Begins to replace a tensor by its sum over all workers; the future holds it."""


@dataclass(frozen=True)
class Member:
    """A worker, as far as sums depend on it.

    Attributes
    ----------
    node, node_index : str, int
        Kind of node, and which of these.
    device : str
        Kind of device.
    pace : float
        Samples per second and thread: a sum in memory is shared out by it.
    """

    node: str
    node_index: int
    device: str
    pace: float


def islands(workers: Sequence[Member]) -> list[list[int]]:
    """Return the ranks of each island, in the order of their first ranks."""
    found: dict[tuple[str, int, str], list[int]] = {}
    for rank, worker in enumerate(workers):
        found.setdefault((worker.node, worker.node_index, worker.device), []).append(rank)
    return list(found.values())


def ways_to_sum(workers: Sequence[Member], device: torch.device, timeout_seconds: float) -> dict[str, StartSum]:
    """Return the ways that these workers, given by rank, have; all of them call this at the same time."""
    ways: dict[str, StartSum] = {}
    apart = islands(workers)
    if len(workers) > 1 and len(apart) == 1 and workers[0].device == "cpu":
        total = sum_in_place(new_group("cpu", timeout_seconds), [worker.pace for worker in workers])
        if total is not None:
            ways["memory"] = in_order(total, device)
    ways["flat"] = sum_in_group(None)
    if all(worker.device == "cuda" for worker in workers):
        ways["nccl"] = sum_in_group(new_group("cuda", timeout_seconds))
    if 1 < len(apart) < len(workers):
        ways["leaders"] = _through_leaders(workers, apart, device, timeout_seconds)
    return ways


def chosen_way(ways: Mapping[str, StartSum], elements: int, device: torch.device, measured: bool) -> str:
    """Return the name of the fastest way to sum a gradient of float32 `elements`; all workers choose the same.

    Parameters
    ----------
    measured : bool
        Choose by timing each way, as long as its slowest worker takes. Otherwise the last of `ways`
        is taken, so that two runs on the same workers sum in the same order, whatever else the system permits.
    """
    if len(ways) == 1 or not measured:
        name = list(ways)[-1]
    else:
        times = {name: _slowest_seconds(way, elements, device) for name, way in ways.items()}
        name = min(times, key=lambda name: times[name])
        shown = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in times.items())
        _log.info("sums of %.1f MB over %d workers: %s", 4e-6 * elements, dist.get_world_size(), shown)
    _log.info("gradients are summed: %s", name)
    return name


def _slowest_seconds(way: StartSum, elements: int, device: torch.device) -> float:
    buffer = torch.zeros(elements, device=device)
    seconds = []
    for _ in range(_REPEATS + 1):
        dist.barrier()
        began = time.perf_counter()
        way(buffer).wait()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    slowest = torch.tensor([median(seconds[1:])])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def sum_in_group(group: dist.ProcessGroup | None = None) -> StartSum:
    """Return the way that sums over the workers of one group, all when it is None."""

    def start(buffer: Tensor) -> Future[Tensor]:
        work = dist.all_reduce(buffer, group=group, async_op=True)
        assert work is not None
        return work.get_future().then(lambda future: future.value()[0])

    return start


def _through_leaders(
    workers: Sequence[Member], apart: Sequence[Sequence[int]], device: torch.device, timeout_seconds: float
) -> StartSum:
    rank = dist.get_rank()
    groups = [new_group(workers[ranks[0]].device, timeout_seconds, ranks) for ranks in apart]
    leaders = new_group("cpu", timeout_seconds, [ranks[0] for ranks in apart])
    mine = next(number for number, ranks in enumerate(apart) if rank in ranks)
    island, leader, alone = groups[mine], apart[mine][0], len(apart[mine]) == 1

    def total(buffer: Tensor) -> None:
        if not alone:
            dist.reduce(buffer, leader, group=island)
        if rank == leader:
            # Over a network, between nodes: from memory that the network card can reach.
            sent = buffer.cpu()
            dist.all_reduce(sent, group=leaders)
            buffer.copy_(sent)
        if not alone:
            dist.broadcast(buffer, leader, group=island)

    return in_order(total, device)


def in_order(total: Callable[[Tensor], None], device: torch.device) -> StartSum:
    """Return a way that runs `total` in a thread, one tensor after the other, while the caller computes on.

    The collectives in it wait for each other; a single thread keeps them in the same order on all workers.
    """
    waiting: queue.SimpleQueue[tuple[Tensor, Future[Tensor], torch.cuda.Event | None]] = queue.SimpleQueue()
    stream: torch.cuda.Stream | None = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def work() -> None:
        while True:
            buffer, done, ready = waiting.get()
            try:
                with torch.cuda.stream(stream):
                    if stream is not None and ready is not None:
                        stream.wait_event(ready)
                    total(buffer)
                    done.set_result(buffer)
            except Exception as error:
                done.set_exception(cast(Any, error))

    threading.Thread(target=work, daemon=True, name="sums").start()

    def start(buffer: Tensor) -> Future[Tensor]:
        done: Future[Tensor] = Future(devices=[device] if stream is not None else None)
        ready = torch.cuda.current_stream(device).record_event() if stream is not None else None
        waiting.put((buffer, done, ready))
        # A failure of the thread passes through value() to whoever waits.
        return done.then(lambda future: future.value())

    return start
