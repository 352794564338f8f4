"""Which device a worker computes on."""

import os
import platform
from collections.abc import Sequence

import torch

from landbalance.errors import UserError
from landbalance.plans import PlannedWorker, gpu_number


def device_of(workers: Sequence[PlannedWorker], rank: int) -> torch.device:
    """Return the device of worker `rank` of a plan: the GPU that it was profiled on.

    Raises
    ------
    UserError
        When the worker needs a GPU that this machine does not have.
    """
    worker = next(worker for worker in workers if worker.rank == rank)
    number = gpu_number(workers, worker)
    return torch.device("cpu") if number is None else cuda_device(number, worker.node)


def cuda_device(index: int, node: str) -> torch.device:
    """Return the GPU number `index` of this machine, which the cluster description calls `node`."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= found:
        raise UserError(
            f"the cluster description gives node {node} a worker with device: cuda, and it is the node's GPU number "
            f"{index + 1}, but torch finds {found} GPU{'' if found == 1 else 's'} here. Use device: cpu, or run where "
            "the GPUs are (`nvidia-smi` lists them)."
        )
    return torch.device("cuda", index)


def device_name(device: torch.device) -> str:
    """Return what the system calls a device, with its memory if it is a GPU."""
    if device.type == "cpu":
        return processor()
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, {found.total_memory / 2**30:.0f} GiB"


def processor() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def check_measured(device: torch.device, measured: str | None, node: str) -> None:
    """Stop when a worker's GPU is another than the one that its kind of node was measured on: shares would not fit.

    Raises
    ------
    UserError
        When it is.
    """
    if measured is None or device.type == "cpu" or (found := device_name(device)) == measured:
        return
    raise UserError(
        f"a GPU of this node is {found}, but node {node} of the cluster description was measured on {measured}. Give "
        "such nodes a kind of their own there (`constraint`, `gres`), or measure again (snakemake --forcerun profile)."
    )


def set_repeatability(deterministic: bool) -> None:
    """Allow only computations that repeat to the bit, or the fastest; must come before CUDA is used."""
    torch.backends.cudnn.benchmark = not deterministic
    torch.use_deterministic_algorithms(deterministic)
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        # Filling what will be overwritten anyway only costs time.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
