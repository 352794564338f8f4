"""Which kind of node is right for a stage."""

from pathlib import Path

from landbalance.cluster.description import Cluster, Node
from landbalance.files import read_json


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


def workers_memory_mb(node: Node) -> int:
    """Return the memory that the workers of a node need to train or to be measured, in MB."""
    return 500 + 1500 * sum(worker.count for worker in node.workers)
