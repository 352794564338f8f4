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


def place_in_job() -> Place | None:
    """Return this process's place, or None when it was not started as a worker.

    The variables are those that torchrun sets, and our own launcher.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
