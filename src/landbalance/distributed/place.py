"""A process's place in a job, from the environment; needs no torch."""

import os
from dataclasses import dataclass

LISTENER = "LANDBALANCE_LISTENER"
"""Environment variable: file descriptor of a listening socket, by which rank 0 offers the store."""


@dataclass(frozen=True)
class Place:
    """The rank of this process among all workers of the job."""

    rank: int
    world_size: int


@dataclass(frozen=True)
class Meeting:
    """Where the workers of a job meet that runs on several nodes, as one of the nodes sees it.

    Attributes
    ----------
    first_rank : int
        Rank of this node's first worker.
    world_size : int
        Workers of the job.
    address, port : str, int
        Where worker 0 listens, on the job's first node.
    interface : str or None
        Network interface of this node to use; None for the one that its own name leads to.
    """

    first_rank: int
    world_size: int
    address: str
    port: int
    interface: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return what tells gloo and NCCL the interface."""
        if self.interface is None:
            return {}
        return {"GLOO_SOCKET_IFNAME": self.interface, "NCCL_SOCKET_IFNAME": self.interface}


def place_in_job() -> Place | None:
    """Return this process's place, or None when it was not started as a worker.

    The variables are those that torchrun sets, and our own launcher.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
