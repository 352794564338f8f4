"""Which kind of node is right for a stage, and what its job asks for there."""

from collections.abc import Sequence
from pathlib import Path

from landbalance.cluster.description import Cluster, Node, Slurm
from landbalance.cluster.inventory import Partition
from landbalance.files import read_json

EVALUATE_MB = 6000
"""What judging a model asks for at first, in MB: more than the other stages that need no particular node."""


def general_node(cluster: Cluster) -> Node:
    """Return the kind of node for work that needs nothing special: the first one without a GPU, or the first."""
    plain = [node for node in cluster.nodes if not any(worker.device == "cuda" for worker in node.workers)]
    return (plain or cluster.nodes)[0]


def fastest_node(cluster: Cluster, plan: Path) -> Node:
    """Return the kind of node with the fastest worker of a plan; until there is one, or without Slurm, any."""
    if not cluster.from_slurm or not plan.exists():
        return general_node(cluster)
    speeds: dict[str, float] = {}
    for worker in read_json(plan)["workers"]:
        speeds[worker["node"]] = max(worker["speed"], speeds.get(worker["node"], 0.0))
    known = [node for node in cluster.nodes if node.name in speeds]
    return max(known, key=lambda node: speeds[node.name], default=general_node(cluster))


def memory_mb(node: Node, wanted: int, attempt: int) -> int:
    """Return the memory to ask for on a node, in MB: more with each attempt, as far as the node has so much."""
    limit = node.slurm.memory_mb if node.slurm is not None else None
    return wanted * attempt if limit is None else min(wanted * attempt, limit)


def minutes(slurm: Slurm, attempt: int, partitions: Sequence[Partition]) -> int:
    """Return the time limit to ask for, in minutes: more with each attempt, as far as the partition allows so much.

    Where Slurm tells of no partition, it stays as described: more might be refused.
    """
    named = partitions_of(slurm, partitions)
    if not named:
        return slurm.minutes
    limit = time_limit(named)
    return slurm.minutes * attempt if limit is None else min(slurm.minutes * attempt, limit)


def partitions_of(slurm: Slurm, partitions: Sequence[Partition]) -> list[Partition]:
    """Return the partitions that a job may run in: those named, or the site's default."""
    if slurm.partition is None:
        return [partition for partition in partitions if partition.default]
    return [partition for partition in partitions if partition.name in slurm.partition.split(",")]


def time_limit(partitions: Sequence[Partition]) -> int | None:
    """Return the most minutes that one of the partitions allows; None when one has no limit."""
    limits = [partition.minutes for partition in partitions if partition.minutes is not None]
    return max(limits) if len(limits) == len(partitions) else None


def threads(node: Node, wanted: int) -> int:
    """Return the CPUs to ask for on a node: as many as wanted, as far as its workers have so many."""
    return wanted if node.slurm is None else min(wanted, node.threads)


def workers_memory_mb(node: Node) -> int:
    """Return the memory that the workers of a node need to train or to be measured, in MB."""
    return 500 + 1500 * sum(worker.count for worker in node.workers)
