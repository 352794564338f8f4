"""Profiling a node: its workers are started here, or this process is one of them."""

import logging
from collections.abc import Sequence

from landbalance.cluster import Cluster, Node, Worker
from landbalance.config import Config
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.place import place_in_job
from landbalance.layout import Layout

_log = logging.getLogger(__name__)


def run(
    dataset: str, model: str, node: str, config: Config, cluster: Cluster, layout: Layout, command: Sequence[str]
) -> None:
    """Measure training steps of `model` on the tiles of `dataset`, on all workers of this node at once.

    Parameters
    ----------
    node : str
        The kind of node that this machine is, as named in the cluster description.
    command : sequence of str
        The command that starts one worker with the same settings.

    Raises
    ------
    UserError
        When a worker needs a device that is not there, or fails.
    """
    kind = cluster.node(node)
    if place_in_job() is not None:
        from landbalance.profile.measure import measure

        measure(dataset, model, kind, config, layout)
        return
    workers = expanded(kind)
    _log.info(
        "profile %s on %s: %d workers together: %s", model, node, len(workers), "; ".join(w.title for w in workers)
    )
    run_workers(command, [LocalWorker(worker.title, worker.threads) for worker in workers])


def expanded(node: Node) -> list[Worker]:
    """Return the workers of a node, one entry per process, in the order of their ranks."""
    return [worker for worker in node.workers for _ in range(worker.count)]


def batch_sizes(config: Config, dataset: str, model: str) -> list[int]:
    """Return the batch sizes to measure, ascending: the configured ones, or powers of two up to the largest batch."""
    if config.profile.batch_sizes:
        return sorted(set(config.profile.batch_sizes))
    largest = max(
        config.training[experiment.training].batch_size
        for experiment in config.experiments.values()
        if (experiment.dataset, experiment.model) == (dataset, model)
    )
    powers = [2**k for k in range(largest.bit_length()) if 2**k < largest]
    return [*powers, largest]
