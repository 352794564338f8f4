"""Does a cluster description fit the cluster? Asked of Slurm, before anything is submitted."""

from collections.abc import Sequence

from landbalance.cluster.choice import EVALUATE_MB, time_limit, workers_memory_mb
from landbalance.cluster.description import Cluster, Node
from landbalance.cluster.inventory import Partition, SlurmNode, gpu_count, has_features


def misfits(cluster: Cluster, nodes: Sequence[SlurmNode], partitions: Sequence[Partition]) -> list[str]:
    """Return a line for each thing in the description that Slurm could not give, and how to mend it."""
    if not cluster.from_slurm:
        return [
            "nodes: none has `slurm`, so all workers are on this machine; add `slurm: {}` to nodes that Slurm gives"
        ]
    return [f"nodes.{node.name}.{mistake}" for node in cluster.nodes for mistake in _misfits(node, nodes, partitions)]


def shortages(cluster: Cluster, nodes: Sequence[SlurmNode], partitions: Sequence[Partition]) -> list[str]:
    """Return a line for each kind of node of which not all are up; training makes do with those that are."""
    found = []
    for node in cluster.nodes:
        fitting = _fitting(node, nodes, partitions)
        gone = [f"{item.name} is {item.state.lower()}" for item in fitting if not item.available]
        if node.count > len(fitting) - len(gone):
            found.append(f"nodes.{node.name}: {len(fitting) - len(gone)} of {node.count} are up: {', '.join(gone)}")
    return found


def _misfits(node: Node, nodes: Sequence[SlurmNode], partitions: Sequence[Partition]) -> list[str]:
    slurm = node.slurm
    assert slurm is not None
    named = slurm.partition.split(",") if slurm.partition else [item.name for item in partitions if item.default]
    known = {partition.name: partition for partition in partitions}
    if unknown := [name for name in named if name not in known]:
        return [f"slurm.partition: no partition is called {', '.join(unknown)}; there are {', '.join(known)}."]
    if not named:
        return [f"slurm.partition: the site has no default partition; name one of {', '.join(known)}."]
    fitting = _fitting(node, nodes, partitions)
    if not fitting:
        found = sorted({word for item in nodes if set(named) & set(item.partitions) for word in item.features})
        return [
            f"slurm.constraint: no node of partition {slurm.partition or named[0]} has {slurm.constraint}; its nodes "
            f"have {', '.join(found) or 'no features'}."
        ]
    return [
        *_time_misfit(slurm.minutes, [known[name] for name in named]),
        *_count_misfit(node.count, fitting),
        *_size_misfits(node, fitting),
    ]


def _time_misfit(minutes: int, partitions: Sequence[Partition]) -> list[str]:
    limit = time_limit(partitions)
    if limit is not None and minutes > limit:
        names = ", ".join(partition.name for partition in partitions)
        return [f"slurm.minutes: found {minutes}, but partition {names} allows {limit} at most."]
    return []


def _count_misfit(count: int, fitting: Sequence[SlurmNode]) -> list[str]:
    if count <= len(fitting):
        return []
    return [
        f"count: found {count}, but there are {len(fitting)} such nodes ({', '.join(item.name for item in fitting)})."
    ]


def _fitting(node: Node, nodes: Sequence[SlurmNode], partitions: Sequence[Partition]) -> list[SlurmNode]:
    """Return the nodes that Slurm may give for this kind, up or not."""
    slurm = node.slurm
    assert slurm is not None
    named = slurm.partition.split(",") if slurm.partition else [item.name for item in partitions if item.default]
    return [
        item for item in nodes if set(named) & set(item.partitions) and has_features(slurm.constraint, item.features)
    ]


def _size_misfits(node: Node, fitting: Sequence[SlurmNode]) -> list[str]:
    """Return what of GPUs, cores and memory no `count` of the nodes have."""
    slurm = node.slurm
    assert slurm is not None
    mistakes = []
    cuda = sum(worker.count for worker in node.workers if worker.device == "cuda")
    wanted = gpu_count(slurm.gres or "")
    gpus = _least_of_most([item.gpus for item in fitting], node.count)
    if wanted > gpus:
        mistakes.append(f"slurm.gres: found {slurm.gres}, but such a node holds {gpus} GPUs.")
    if cuda > wanted:
        mistakes.append(
            f'workers: {cuda} with device: cuda, but slurm.gres asks for {wanted} GPUs; write gres: "gpu:{cuda}".'
        )
    cpus = _least_of_most([item.cpus for item in fitting], node.count)
    if node.threads > cpus:
        each = ", one or more for each GPU" if cuda else ""
        mistakes.append(f"workers: {node.threads} threads in all{each}, but such a node has {cpus} CPUs.")
    memory = _least_of_most([item.memory_mb for item in fitting], node.count)
    asked = slurm.memory_mb or workers_memory_mb(node)
    if asked > memory:
        key = "slurm.memory_mb" if slurm.memory_mb else "workers"
        mistakes.append(f"{key}: {asked} MB are asked for, but such a node has {memory} MB.")
    elif slurm.memory_mb is None and memory < EVALUATE_MB:
        mistakes.append(
            f"slurm.memory_mb: not given, so that a job may ask for {EVALUATE_MB} MB, but such a node has {memory} MB; "
            "say how much a job may ask for."
        )
    return mistakes


def _least_of_most(values: Sequence[int], count: int) -> int:
    """Return what `count` nodes have at least, if those with the most are taken."""
    return sorted(values, reverse=True)[min(count, len(values)) - 1]
