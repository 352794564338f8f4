"""What to ask Slurm for, so that the nodes of a plan train as one job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from landbalance.cluster.choice import memory_mb, minutes, workers_memory_mb
from landbalance.cluster.description import Cluster, Node, Slurm
from landbalance.cluster.inventory import Partition
from landbalance.plans import Plan

_NOTICE_SECONDS = 60
"""Seconds before the time limit at which workers are told to write a checkpoint; Slurm may be a minute early."""


@dataclass(frozen=True)
class Component:
    """Nodes that are asked for alike; a job of several components is a heterogeneous job.

    Attributes
    ----------
    kinds : tuple of str
        The kinds of nodes in it, in order of rank.
    counts : tuple of int
        How many nodes of each kind.
    cpus, memory_mb : int
        CPUs and memory of each node.
    minutes : int
        Time limit of the job.
    """

    kinds: tuple[str, ...]
    counts: tuple[int, ...]
    constraint: str | None
    cpus: int
    memory_mb: int
    minutes: int
    slurm: Slurm

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return sum(self.counts)

    @property
    def options(self) -> list[str]:
        """Return the options of `sbatch` that ask for it: one task a node, which starts the workers there."""
        slurm = self.slurm
        values = {
            "partition": slurm.partition,
            "account": slurm.account,
            "qos": slurm.qos,
            "constraint": self.constraint,
            "gres": slurm.gres,
            "nodes": self.nodes,
            "ntasks": self.nodes,
            "ntasks-per-node": 1,
            "cpus-per-task": self.cpus,
            "mem": f"{self.memory_mb}M",
            "time": self.minutes,
        }
        options = [f"--{key}={value}" for key, value in values.items() if value is not None]
        return options + (["--exclusive"] if slurm.exclusive else [])


def used_nodes(plan: Plan) -> dict[str, int]:
    """Return how many nodes of each kind have a worker that trains, in order of rank."""
    places = dict.fromkeys((worker.node, worker.node_index) for worker in plan.used)
    counts: dict[str, int] = {}
    for kind, _ in places:
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def requested(plan: Plan, cluster: Cluster, attempt: int = 1, partitions: Sequence[Partition] = ()) -> list[Component]:
    """Return the components of the job that trains by `plan`: a single one where Slurm can give it.

    Kinds of nodes that differ by a feature, and in nothing else that is asked for, come in one allocation with a list
    of constraints. It is scheduled like any other job; a heterogeneous job waits for the backfill scheduler, and sites
    can switch those off. But one allocation has the same CPUs, memory, gres, partition and account on all its nodes, so
    anything else is a heterogeneous job, with a component for each kind of node.

    Parameters
    ----------
    attempt : int
        1 for the first try; memory grows with each, up to the node's ``memory_mb``, and the time limit up to that of
        the partition.
    partitions : sequence of Partition
        The cluster's, for their time limits.
    """
    parts = [
        _component(cluster.node(kind), count, plan, attempt, partitions) for kind, count in used_nodes(plan).items()
    ]
    return [_joined(parts)] if _alike(parts) else parts


def _component(node: Node, count: int, plan: Plan, attempt: int, partitions: Sequence[Partition]) -> Component:
    assert node.slurm is not None
    one = [worker for worker in plan.used if worker.node == node.name and worker.node_index == 0] or [
        worker for worker in plan.used if worker.node == node.name
    ]
    return Component(
        kinds=(node.name,),
        counts=(count,),
        constraint=node.slurm.constraint,
        cpus=sum(worker.threads for worker in one),
        memory_mb=memory_mb(node, workers_memory_mb(node), attempt),
        minutes=minutes(node.slurm, attempt, partitions),
        slurm=node.slurm,
    )


def _alike(parts: list[Component]) -> bool:
    """Whether the parts differ in nothing but the feature and what can be rounded up to the largest."""
    if len(parts) == 1:
        return False
    ignored = {"constraint": None, "memory_mb": None}
    same = len({part.slurm.model_copy(update=ignored).model_dump_json() for part in parts}) == 1
    plain = all(part.constraint and part.constraint.replace("_", "").replace("-", "").isalnum() for part in parts)
    distinct = len({part.constraint for part in parts}) == len(parts)
    largest = max(part.memory_mb for part in parts)
    fits = all(part.slurm.memory_mb is None or largest <= part.slurm.memory_mb for part in parts)
    return same and plain and distinct and fits and len({part.cpus for part in parts}) == 1


def _joined(parts: list[Component]) -> Component:
    listed = "&".join(f"{part.constraint}*{part.nodes}" for part in parts)
    return Component(
        kinds=tuple(kind for part in parts for kind in part.kinds),
        counts=tuple(count for part in parts for count in part.counts),
        constraint=f"[{listed}]",
        cpus=parts[0].cpus,
        memory_mb=max(part.memory_mb for part in parts),
        minutes=parts[0].minutes,
        slurm=parts[0].slurm,
    )


def batch_script(components: list[Component], job: Mapping[str, str | Path], command: str) -> str:
    """Return a script for `sbatch`.

    Parameters
    ----------
    job : mapping
        Options of the whole job, e.g. its name.
    command : str
        The shell command that runs on the first node.
    """
    whole = [f"--{key}={value}" for key, value in job.items()]
    whole += ["--requeue", "--open-mode=append", f"--signal=TERM@{_NOTICE_SECONDS}"]
    lines = ["#!/bin/bash"]
    for number, component in enumerate(components):
        lines += ["#SBATCH hetjob"] if number else []
        lines += [f"#SBATCH {option}" for option in (*([] if number else whole), *component.options)]
    return "\n".join([*lines, command]) + "\n"
