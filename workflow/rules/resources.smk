"""What jobs ask for: the node that is right for each stage, its memory, its time limit."""

from landbalance.cluster.choice import fastest_node, general_node, memory_mb, workers_memory_mb


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
    return workflow._cores or sum(worker.count * worker.threads for worker in node.workers)


def tile_threads(wildcards):
    """Return the cores for the tile stage: images in folders are decoded by several, scenes are cut by then."""
    return 1 if CONFIG.datasets[wildcards.dataset].cut_scenes else 4


def slurm(key, node_of, otherwise=None):
    """Return a function of a rule's wildcards that gives what Slurm needs for its node."""

    def resource(wildcards):
        return getattr(node_of(wildcards).slurm, key, otherwise)

    return resource


def memory(node_of, wanted=None):
    """Return a function that gives the memory of a job in MB: `wanted`, or what the node's workers need."""

    def resource(wildcards, attempt):
        node = node_of(wildcards)
        return memory_mb(node, wanted or workers_memory_mb(node), attempt)

    return resource


def alone(wildcards):
    """Return the option by which a node does nothing else while it is measured; None for an ordinary node."""
    return "--exclusive" if getattr(measured(wildcards).slurm, "exclusive", False) else None
