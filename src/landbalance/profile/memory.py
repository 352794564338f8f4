"""How many samples fit: from the memory that small steps take, long before it runs out."""

import math
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from landbalance.distributed.batchnorm import SinglePixelError
from landbalance.profiles import Memory

_STATUS = Path("/proc/self/status")
_GROWTH = 2.5
"""A step on twice the samples is tried only where so many times its half's memory is free: twice, and something."""


def watched(
    take: Callable[[int], float], largest: int, device: torch.device, limit: int, allowed: float = math.inf
) -> tuple[dict[int, float], Memory]:
    """Take steps on 1, 2, 4, … up to `largest` samples while they surely fit; return their seconds and their memory.

    A CPU worker's peak is that of its resident memory, which only grows; it is never brought near its limit.
    A GPU's is the allocator's, and a step that runs out of memory is recovered from: then no larger one is tried.

    Parameters
    ----------
    take : callable
        Takes a step on so many samples, and returns its seconds.
    limit : int
        Bytes that the samples may take, see `room`.
    allowed : float
        Seconds that it may take: a size that would take longer is not tried, as memory grows along a line.
    """
    seconds: dict[int, float] = {}
    peaks: dict[int, int] = {}
    began = time.perf_counter()
    # What was freed before the first step hides growth: so it is counted from what is held now.
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else psutil.Process().memory_info().rss
    sizes = [2**k for k in range(largest.bit_length()) if 2**k < largest] + [largest]
    for smaller, size in zip([0, *sizes], sizes, strict=False):
        if peaks and peaks[max(peaks)] * _GROWTH * size / (2 * smaller) > limit:
            break
        if seconds and time.perf_counter() - began + 2 * seconds[max(seconds)] * size / smaller > allowed:
            break
        try:
            take(size)  # the first one of a size also makes what the later ones reuse
            seconds[size] = take(size)
        except SinglePixelError:
            continue
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            limit = min(limit, max(peaks.values(), default=0))
            break
        peaks[size] = _peak(device) - before
    slope = growth(peaks)
    return seconds, Memory(
        bytes_per_sample=slope, limit_bytes=limit, batch_sizes=list(peaks), peak_bytes=list(peaks.values())
    )


def growth(peaks: dict[int, int]) -> float:
    """Return the bytes that a sample takes at most: the steepest of the lines from each peak to the largest one's.

    Peaks at small sizes hide in memory that was held already, so a line fitted through all would be too flat.
    """
    if not peaks:
        return 0.0
    largest = max(peaks)
    slopes = [(peaks[largest] - peak) / (largest - size) for size, peak in peaks.items() if size < largest]
    return max([*slopes, peaks[largest] / largest, 0.0])


def largest_batch(memory: Memory) -> int | None:
    """Return the most samples that fit into a worker's memory; None when a sample took none that could be seen."""
    if memory.bytes_per_sample <= 0:
        return None
    return max(int(memory.limit_bytes / memory.bytes_per_sample), 1)


def room(device: torch.device, workers: int, reserve: float) -> int:
    """Return the bytes that this worker may take: its part of what is free, without the reserve.

    Parameters
    ----------
    workers : int
        Workers that share the memory: those of the node, or 1 for a GPU of its own.
    reserve : float
        The part of the free memory that is left alone.
    """
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return int(free * (1 - reserve))
    free = min([psutil.virtual_memory().available, *_control_group_room()])
    return int(free * (1 - reserve) / workers)


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        # Not by getrusage, which begins with what the process had that started this one.
        return int(_STATUS.read_text().split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _control_group_room(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return what a container or a scheduler leaves of each memory limit that it set for this process."""
    rooms = []
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = top / path.lstrip("/")
        # Limits of the groups above bind too.
        for group in [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]:
            limit, used = (_number(group / name) for name in names)
            if limit is not None and used is not None:
                rooms.append(max(limit - used, 0))
    return rooms


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # "max": no limit
        return None
