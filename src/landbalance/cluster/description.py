"""The cluster description: which nodes there are and which workers they hold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator

from landbalance.config.base import Name, Positive, Settings, Text
from landbalance.config.checks import checked, read_yaml
from landbalance.errors import UserError


class Worker(Settings):
    """Processes of one kind on a node; each trains with its own share of the batch."""

    device: Literal["cpu", "cuda"] = Field(description="What the worker computes on.")
    count: Positive = Field(1, description="How many such workers a node has.")
    threads: Positive = Field(1, description="CPU threads of one worker.")
    slowdown: Annotated[float, Field(ge=1)] = Field(
        1.0,
        description="Emulate a device so many times slower: the worker idles after each computation. For demos and "
        "tests on one machine; results say `emulated`.",
    )

    @property
    def emulated(self) -> bool:
        """Whether the worker is made slower than it is."""
        return self.slowdown > 1

    @property
    def title(self) -> str:
        """Return a short name for tables, e.g. ``cpu, 2 threads, emulated 3× slower``."""
        threads = f", {self.threads} thread{'s' if self.threads > 1 else ''}" if self.device == "cpu" else ""
        slow = f", emulated {self.slowdown:g}× slower" if self.emulated else ""
        return f"{self.device}{threads}{slow}"


class Slurm(Settings):
    """What the scheduler needs to get a node of this kind."""

    partition: Text | None = Field(
        None, description="Partition that the nodes are in; the site's default if not given."
    )
    constraint: Text | None = Field(None, description="Feature that the nodes have; several as `a&b` or `a|b`.")
    gres: Text | None = Field(None, description="Generic resources of one node, e.g. gpu:2.")
    account: Text | None = Field(None, description="Account to charge.")
    qos: Text | None = Field(None, description="Quality of service.")
    minutes: Positive = Field(
        240,
        description="Time limit of a job, in minutes: at most the partition's. Each retry asks for as much again, up "
        "to the partition's. A training that reaches it goes on from its checkpoint in another job.",
    )
    memory_mb: Positive | None = Field(
        None, description="The most memory that a job may ask of a node, in MB; no limit if not given."
    )
    scratch: Text | None = Field(
        None,
        description="Folder on the node's own disk, e.g. $TMPDIR, to which tiles are copied before training; they are "
        "read from the shared file system if not given.",
    )
    exclusive: bool = Field(
        True, description="Whether a node that measures or trains does nothing else, so that timings can be relied on."
    )


class Node(Settings):
    """A kind of node: how many there are and which workers each has."""

    name: Name = Field(description="Name of the kind; also the profile's file name.")
    count: Positive = Field(1, description="How many nodes of this kind train together.")
    workers: list[Worker] = Field(min_length=1, description="The workers of one node.")
    interface: Text | None = Field(
        None,
        description="Network interface by which its workers talk to those of other nodes, e.g. ib0; when not given, "
        "the one that the node's own name leads to.",
    )
    slurm: Slurm | None = Field(
        None, description="How to get such a node from Slurm (`{}`: nothing special); without it, it is this machine."
    )

    @property
    def threads(self) -> int:
        """Return how many CPU threads the workers of one such node have in all."""
        return sum(worker.count * worker.threads for worker in self.workers)


class Cluster(Settings):
    """All nodes that train together."""

    nodes: list[Node] = Field(min_length=1, description="Kinds of nodes.")
    retrain: bool = Field(
        False,
        description="Train again when the shares change. By default a model that is there stays valid, since the split "
        "changes who computes, not the result.",
    )

    @field_validator("nodes")
    @classmethod
    def _distinct(cls, nodes: list[Node]) -> list[Node]:
        names = [node.name for node in nodes]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several kinds are called {', '.join(repeated)}; for more nodes raise `count`")
        bare = [node.name for node in nodes if node.slurm is None]
        if bare and len(bare) < len(nodes):
            raise ValueError(
                f"{', '.join(bare)} has no `slurm`, but others have: nodes that train together come all from Slurm "
                "(`slurm: {}` if nothing special is needed) or not at all"
            )
        return nodes

    @property
    def from_slurm(self) -> bool:
        """Whether Slurm gives the nodes; otherwise they are this machine."""
        return self.nodes[0].slurm is not None

    def limited_to(self, names: Sequence[str]) -> Self:
        """Return the description with only the kinds of nodes in `names`; itself when there are none.

        Raises
        ------
        UserError
            When there is no such kind.
        """
        known = [node.name for node in self.nodes]
        if unknown := [name for name in names if name not in known]:
            raise UserError(
                f"no node of the cluster description is called {unknown[0]}, which an experiment's `nodes` name; "
                f"allowed: {', '.join(known)}. Correct the name, or name another cluster description (--profile)."
            )
        if not names:
            return self
        return self.model_copy(update={"nodes": [node for node in self.nodes if node.name in names]})

    def node(self, name: str) -> Node:
        """Return the kind of node called `name`."""
        return next(node for node in self.nodes if node.name == name)


def load_cluster(path: Path) -> Cluster:
    """Return the checked cluster description in the YAML file `path`.

    Raises
    ------
    UserError
        When the file is missing or says something that is not allowed.
    """
    return checked(Cluster, read_yaml(path), str(path))
