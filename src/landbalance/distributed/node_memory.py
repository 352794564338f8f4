"""Sums over workers of one node that reach into each other's memory.

Over gloo each worker sends and receives nearly two gradients through the network stack, a slow one as many as a fast
one. Here nothing is sent: each worker takes a stretch of the tensor, reads it from the memory of all others, adds, and
writes the sum back to all. How long the stretches are is free, so they follow what each can spare.

It is Linux' cross-memory attach (process_vm_readv(2)), by which MPI libraries, too, copy between processes of a node.
The kernel grants it to processes of one user, if it also lets them debug each other.
"""

import ctypes
import errno
import functools
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

_PIECE = 1 << 15
"""Elements moved and added at once: they stay in the processor's cache, and torch adds so few without other threads."""
_PR_SET_PTRACER = 0x59616D61


def sum_in_place(group: dist.ProcessGroup, weights: Sequence[float]) -> Callable[[Tensor], None] | None:
    """Return a function that replaces a tensor by its sum over the workers of a group, all of them on one node.

    All call it, and then what it returns, at the same time, with contiguous tensors of one shape and type in main
    memory. Workers are added in the order of their ranks, so that sums do not depend on `weights`.

    Parameters
    ----------
    group : ProcessGroup
        By it the workers tell each other where their tensors are, and when they are done.
    weights : sequence of float
        How long each worker's stretch is, relative to the others', by its rank in the group.

    Returns
    -------
    callable or None
        None where the workers cannot reach each other's memory.
    """
    processes: list[int] = [0] * group.size()
    dist.all_gather_object(processes, os.getpid(), group=group)
    if not _within_reach(processes, group):
        return None
    rank = group.rank()
    begin, end = (sum(weights[:count]) / sum(weights) for count in (rank, rank + 1))

    def total(tensor: Tensor) -> None:
        first, last = round(begin * tensor.numel()), round(end * tensor.numel())
        addresses = _gathered(tensor.data_ptr(), group)
        offset = first * tensor.element_size()
        everyone = [_Remote(process, address + offset) for process, address in zip(processes, addresses, strict=True)]
        failed = ""
        try:
            _sum_stretch(tensor.view(-1)[first:last], everyone, rank)
        except OSError as error:
            failed = str(error)
        # All are done; if a worker is gone, this raises, and says so.
        if any(_gathered(int(bool(failed)), group)):
            raise RuntimeError(
                f"a gradient could not be summed in the workers' memory: {failed or 'see another worker'}"
            )

    return total


@dataclass(frozen=True)
class _Remote:
    """A place in the memory of a process."""

    process: int
    address: int

    def read(self, offset: int, into: Tensor) -> None:
        self._move(_library().process_vm_readv, offset, into)

    def write(self, offset: int, values: Tensor) -> None:
        self._move(_library().process_vm_writev, offset, values)

    def _move(self, function: Callable[..., int], offset: int, tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        here, there = _Extent(tensor.data_ptr(), size), _Extent(self.address + offset, size)
        moved = function(self.process, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if moved != size:
            number = ctypes.get_errno() if moved < 0 else errno.EFAULT
            raise OSError(number, f"memory of process {self.process}: {os.strerror(number)}")


class _Extent(ctypes.Structure):
    """The system's struct iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the C library; AttributeError where it has no cross-memory attach."""
    library = ctypes.CDLL(None, use_errno=True)
    extents = (ctypes.POINTER(_Extent), ctypes.c_ulong)
    for function in (library.process_vm_readv, library.process_vm_writev):
        function.restype, function.argtypes = ctypes.c_ssize_t, (ctypes.c_int, *extents, *extents, ctypes.c_ulong)
    return library


def _within_reach(processes: Sequence[int], group: dist.ProcessGroup) -> bool:
    """Try whether each worker reads what the others hold, and writes there; all return the same."""
    rank, mark = group.rank(), torch.tensor([secrets.randbits(62)])
    slots = torch.zeros(group.size(), dtype=torch.int64)
    marks, addresses = _gathered(int(mark), group), _gathered(mark.data_ptr(), group)
    rooms = _gathered(slots.data_ptr(), group)
    _let_launcher_attach(os.getppid())
    dist.barrier(group)
    reached = True
    try:
        for process, address, wanted, room in zip(processes, addresses, marks, rooms, strict=True):
            found = torch.zeros_like(mark)
            _Remote(process, address).read(0, found)
            if int(found) != wanted:  # another process goes by this number here
                raise OSError
            _Remote(process, room).write(rank * mark.element_size(), mark)
    except (OSError, AttributeError):
        reached = False
    written = all(_gathered(int(reached), group)) and slots.tolist() == marks
    if all(_gathered(int(written), group)):
        return True
    _let_launcher_attach(0)
    return False


def _let_launcher_attach(process: int) -> None:
    """Let a process and its children reach this one's memory, under Yama, too; 0: none. Elsewhere it does nothing."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(process), 0, 0, 0)


def _gathered(value: int, group: dist.ProcessGroup) -> list[int]:
    """Return a number of each worker, by rank."""
    everyone = [torch.empty(1, dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(everyone, torch.tensor([value]), group=group)
    return [int(number) for number in everyone]


def _sum_stretch(stretch: Tensor, everyone: Sequence[_Remote], rank: int) -> None:
    """Add the same stretch of all workers to this one's, piece by piece, and write each sum to all."""
    width = stretch.element_size()
    sums, others = torch.empty(2, _PIECE, dtype=stretch.dtype)
    for start in range(0, len(stretch), _PIECE):
        own = stretch[start : start + _PIECE]
        total, values = sums[: len(own)], others[: len(own)]
        for number, remote in enumerate(everyone):
            source = own
            if number != rank:
                source = values if number else total
                remote.read(start * width, source)
            if number:
                total.add_(source)
            elif number == rank:
                total.copy_(own)
        own.copy_(total)
        for number, remote in enumerate(everyone):
            if number != rank:
                remote.write(start * width, total)
