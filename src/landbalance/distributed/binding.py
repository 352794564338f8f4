"""Which CPUs each worker of a node runs on: those near its memory, and near its GPU.

Only inside a Slurm job, and only where the CPUs are this job's alone: elsewhere another program may want the same ones.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_NODES = Path("/sys/devices/system/node")
_DEVICES = Path("/sys/bus/pci/devices")


def own_cpus(threads: int) -> set[int] | None:
    """Return the CPUs that are this Slurm job's alone; None when that is not known.

    They are when Slurm confined the job to a part of the machine, or when its workers use the whole of it.

    Parameters
    ----------
    threads : int
        CPU threads of all workers together.
    """
    if "SLURM_JOB_ID" not in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    return allowed if len(allowed) < (os.cpu_count() or 1) or threads >= len(allowed) else None


def numa_nodes(folder: Path = _NODES) -> dict[int, set[int]]:
    """Return the CPUs of each NUMA node; nothing where the system does not tell."""
    return {int(path.parent.name[4:]): cpu_list(path.read_text()) for path in folder.glob("node[0-9]*/cpulist")}


def cpu_list(text: str) -> set[int]:
    """Return the CPUs in a list as Linux writes it, e.g. ``0-3,8``."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return {cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)}


def numa_node_of_gpu(number: int, folder: Path = _DEVICES) -> int:
    """Return the NUMA node that the job's GPU `number` hangs on; -1 when the system does not tell."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    name = visible[number].strip() if number < len(visible) and visible[number] else str(number)
    query = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader", f"--id={name}"]
    try:
        bus = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.strip().lower()
        return int((folder / bus[-12:] / "numa_node").read_text())  # sysfs has four digits of the domain, not eight
    except (OSError, ValueError, subprocess.SubprocessError):
        return -1


def bound_cpus(
    threads: Sequence[int], gpu_nodes: Sequence[int | None], allowed: set[int], nodes: Mapping[int, set[int]]
) -> list[set[int]]:
    """Return the CPUs of each worker: on a single NUMA node wherever that has room.

    A worker on the CPU gets as many as it has threads, and nobody else runs there. A GPU's process keeps as many as it
    has threads (one if nothing else is said), and shares with others of its NUMA node what nobody needs.

    Parameters
    ----------
    threads : sequence of int
        CPU threads of each worker.
    gpu_nodes : sequence of int or None
        The NUMA node of each worker's GPU, -1 if that is not known; None for a worker without one.
    allowed : set of int
        The CPUs there are.
    nodes : mapping
        The CPUs of each NUMA node.

    Returns
    -------
    list of set of int
        Nothing when there are fewer CPUs than threads.
    """
    if sum(threads) > len(allowed):
        return []
    free = {node: sorted(cpus & allowed) for node, cpus in nodes.items()}
    if rest := sorted(allowed.difference(*nodes.values())):
        free[-1] = rest
    node_of = {cpu: node for node, cpus in free.items() for cpu in cpus}
    found: list[set[int]] = [set() for _ in threads]
    # Processes of GPUs come first, as their place is given; then the largest, which has least choice.
    for worker in sorted(range(len(threads)), key=lambda worker: (gpu_nodes[worker] is None, -threads[worker])):
        found[worker] = _taken(free, threads[worker], gpu_nodes[worker])
    for worker, gpu_node in enumerate(gpu_nodes):
        if gpu_node is not None:
            found[worker].update(*(free[node] for node in {node_of[cpu] for cpu in found[worker]}))
    return found


def _taken(free: dict[int, list[int]], count: int, wanted: int | None) -> set[int]:
    """Take `count` CPUs out of `free`: from the wanted node, or the one that they fit best, or else from several."""
    fitting = sorted(
        (node for node in free if len(free[node]) >= count), key=lambda node: (node != wanted, len(free[node]))
    )
    taken: set[int] = set()
    for node in fitting[:1] or sorted(free, key=lambda node: -len(free[node])):
        part = free[node][: count - len(taken)]
        free[node] = free[node][len(part) :]
        taken.update(part)
    return taken
