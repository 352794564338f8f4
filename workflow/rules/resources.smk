"""What jobs ask for: the node that is right for each stage, its cores, memory and time limit."""

from landbalance.cluster import Slurm
from landbalance.cluster.choice import (
    EVALUATE_MB,
    fastest_node,
    general_node,
    memory_mb,
    minutes,
    threads,
    workers_memory_mb,
)
from landbalance.cluster.inventory import slurm_partitions


def measured(wildcards):
    """Return the kind of node that a job measures."""
    return node_called(wildcards.node)


def general(wildcards):
    """Return the kind of node for work that needs nothing special."""
    return general_node(CLUSTER)


def fastest(wildcards):
    """Return the kind of node with the fastest worker of an experiment's plan."""
    return fastest_node(CLUSTER, RESULTS / "plan" / f"{wildcards.experiment}.json")


def node_threads(wildcards):
    """Return all cores of this machine, so that nothing runs beside a measurement or a training.

    On a cluster, where cores are not counted, it is what the workers of the node need.
    """
    node = node_called(wildcards.node) if "node" in wildcards.keys() else CLUSTER.nodes[0]
    return workflow._cores or node.threads


def cores(node_of, wanted=4):
    """Return a function that gives the cores of a job: `wanted`, as far as there are as many."""

    def resource(wildcards):
        return threads(node_of(wildcards), wanted)

    return resource


def tile_cores(wildcards):
    """Return the cores for the tile stage: images in folders are decoded by several, scenes are cut by then."""
    return 1 if CONFIG.datasets[wildcards.dataset].cut_scenes else cores(general)(wildcards)


def slurm(key, node_of):
    """Return a function of a rule's wildcards that gives what Slurm needs for its node."""

    def resource(wildcards):
        return getattr(node_of(wildcards).slurm, key, None)

    return resource


def time_limit(node_of):
    """Return a function that gives the time limit of a job in minutes."""

    def resource(wildcards, attempt):
        return minutes(node_of(wildcards).slurm or Slurm(), attempt, partitions() if attempt > 1 else [])

    return resource


@functools.cache
def partitions():
    """Return the cluster's partitions; none where Slurm does not answer."""
    try:
        return slurm_partitions()
    except UserError:
        return []


def memory(node_of, wanted=None):
    """Return a function that gives the memory of a job in MB: `wanted`, or what the node's workers need."""

    def resource(wildcards, attempt):
        node = node_of(wildcards)
        return memory_mb(node, wanted or workers_memory_mb(node), attempt)

    return resource


def alone(wildcards):
    """Return the option by which a node does nothing else while it is measured; None for an ordinary node."""
    return "--exclusive" if getattr(measured(wildcards).slurm, "exclusive", False) else None
