"""Which device a worker computes on."""

import os
from collections.abc import Sequence

import torch

from landbalance.errors import UserError
from landbalance.plans import PlannedWorker


def device_of(workers: Sequence[PlannedWorker], rank: int) -> torch.device:
    """Return the device of worker `rank` of a plan: the GPU that it was profiled on.

    GPUs of a node are given out in the order of its `workers`, those left out of the plan included.

    Raises
    ------
    UserError
        When the worker needs a GPU that this machine does not have.
    """
    worker = next(worker for worker in workers if worker.rank == rank)
    if worker.device == "cpu":
        return torch.device("cpu")
    before = [
        other
        for other in workers
        if other.device == "cuda"
        and (other.node, other.node_index) == (worker.node, worker.node_index)
        and other.local_index < worker.local_index
    ]
    return cuda_device(len(before), worker.node)


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


def set_repeatability(deterministic: bool) -> None:
    """Allow only computations that repeat to the bit, or the fastest; must come before CUDA is used."""
    torch.backends.cudnn.benchmark = not deterministic
    torch.use_deterministic_algorithms(deterministic)
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        # Filling what will be overwritten anyway only costs time.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
