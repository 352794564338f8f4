"""The profile file: how long a training step takes on each worker of a node, by batch size."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from landbalance.config.base import Positive, Settings
from landbalance.config.load import checked
from landbalance.files import read_json

Seconds = Annotated[float, Field(ge=0)]


class Machine(Settings):
    """Where the timings were taken."""

    processor: str
    cores: int
    memory_bytes: int
    python: str
    torch: str


class Curve(Settings):
    """Timings of one kind of worker, taken while all workers of the node computed."""

    title: str = Field(description="Name for tables; says `emulated` where the worker is.")
    device: Literal["cpu", "cuda"]
    device_name: str = Field(description="What the system calls the device.")
    count: Positive = Field(description="Workers of this kind on a node.")
    emulated: bool
    batch_sizes: list[Positive] = Field(min_length=1, description="Measured batch sizes, ascending.")
    seconds: list[list[Seconds]] = Field(
        description="Raw step times at each batch size: forward, backward and update, no loading, no waiting."
    )
    largest_batch: Positive | None = Field(description="The most samples that fit in memory; None when not reached.")


class AllReduce(Settings):
    """Time to sum this model's gradient over the node's workers."""

    backend: str
    world_size: Positive
    gradient_bytes: Positive
    seconds: list[Seconds] = Field(description="Raw times of summing all of the gradient.")
    latency_seconds: list[Seconds] = Field(description="Raw times of summing a single number.")
    collectives_per_step: int = Field(
        description="Small collectives that a step waits for besides the gradient: of batch norms, and of weights."
    )


class NodeProfile(Settings):
    """The profile of one kind of node for one model on one dataset's tiles."""

    format: Literal[1] = 1
    dataset: str
    model: str
    node: str
    measured: str = Field(description="When, as ISO 8601.")
    machine: Machine
    bands: Positive
    tile_size: Positive
    curves: list[Curve] = Field(description="One per entry of the node's `workers`, in that order.")
    allreduce: AllReduce | None = Field(description="None when the node has a single worker.")


def read_profile(path: Path) -> NodeProfile:
    """Return the profile in `path`; a missing or unfitting file is a `UserError`."""
    return checked(NodeProfile, read_json(path), str(path))
