"""Joining the group of workers, and collectives that are timed."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from landbalance.distributed.clock import Clock
from landbalance.distributed.place import LISTENER, Place
from landbalance.errors import UserError


@contextmanager
def joined(place: Place, timeout_seconds: float) -> Iterator[None]:
    """Be a member of the default process group (gloo) inside the block.

    Raises
    ------
    UserError
        When the others are not reached in time.
    """
    timeout = timedelta(seconds=timeout_seconds)
    listener = os.environ.get(LISTENER)
    try:
        store = TCPStore(
            *_address(),
            place.world_size,
            # torchrun offers the store itself.
            is_master=place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=timeout,
            master_listen_fd=int(listener) if listener and place.rank == 0 else None,
        )
        dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.world_size, timeout=timeout)
    except (dist.DistError, RuntimeError) as error:
        raise UserError(
            f"worker {place.rank} on {socket.gethostname()}: the {place.world_size} workers did not find each "
            f"other within {timeout_seconds:g} s ({str(error).splitlines()[0]}). Look for a worker that did not start."
        ) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


def new_group(device: str, timeout_seconds: float, ranks: Sequence[int] | None = None) -> dist.ProcessGroup:
    """Return a group of `ranks`, all when None, over NCCL for ``cuda`` and gloo for ``cpu``.

    Every worker calls this, member or not. The time limit must be told: a new group does not take over the job's.
    """
    group = dist.new_group(
        None if ranks is None else list(ranks),
        timeout=timedelta(seconds=timeout_seconds),
        backend="nccl" if device == "cuda" else "gloo",
    )
    return cast(dist.ProcessGroup, group)


def store_client(place: Place, timeout: timedelta) -> TCPStore:
    """Return another connection to the store by which the workers met: for a thread of its own."""
    return TCPStore(*_address(), place.world_size, is_master=False, timeout=timeout, wait_for_workers=False)


def _address() -> tuple[str, int]:
    return os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))


@dataclass(frozen=True)
class Communicator:
    """Sums and gathers small tensors over all workers, counting the time as waiting.

    `group` is None for a lone process: then nothing is sent, and the same code computes locally.
    """

    clock: Clock
    group: dist.ProcessGroup | None = None

    @property
    def world_size(self) -> int:
        """Return the number of workers."""
        return 1 if self.group is None else self.group.size()

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace `tensor` by its sum over all workers; return it."""
        if self.world_size > 1:
            with self.clock.waiting():
                dist.all_reduce(tensor, group=self.group)
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the workers' tensors stacked by rank; shape (world size, *tensor.shape)."""
        if self.world_size == 1:
            return tensor.unsqueeze(0)
        with self.clock.waiting():
            parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
            dist.all_gather(parts, tensor, group=self.group)
        return torch.stack(parts)
