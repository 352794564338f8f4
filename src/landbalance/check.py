"""Does a run fit this machine? Asked before any work is spent."""

from pathlib import Path

from landbalance.bundle import WEIGHTS
from landbalance.cluster import Cluster
from landbalance.cluster.fit import misfits
from landbalance.cluster.inventory import slurm_nodes, slurm_partitions
from landbalance.config import Config
from landbalance.errors import UserError
from landbalance.layout import Layout


def check_run(config: Config, cluster: Cluster, origin: str, cluster_origin: str) -> None:
    """Stop when an input or a kind of node is missing, a share would be empty, nodata is a class, or a GPU not there.

    Parameters
    ----------
    origin, cluster_origin : str
        The files that the settings came from, for messages.

    Raises
    ------
    UserError
        With a line for each mistake.
    """
    mistakes = [
        *(f"{origin}: {mistake}" for mistake in (*_missing_sources(config), *_missing_weights(config))),
        *(f"{origin}: {mistake}" for mistake in _missing_nodes(config, cluster)),
        *(f"{origin}: {mistake}" for mistake in (*_small_batches(config, cluster), *_nodata(config))),
        *(f"{cluster_origin}: {mistake}" for mistake in _missing_devices(cluster)),
    ]
    if mistakes:
        raise UserError("\n".join(mistakes))


def check_site(cluster: Cluster, origin: str) -> None:
    """Stop when Slurm could not give what the description asks for; nothing is checked where Slurm does not answer.

    Raises
    ------
    UserError
        With a line for each mistake.
    """
    if not cluster.from_slurm:
        return
    try:
        nodes, partitions = slurm_nodes(), slurm_partitions()
    except UserError:
        return  # a dry run on another machine; a submission will say what is wrong
    if mistakes := misfits(cluster, nodes, partitions):
        raise UserError("\n".join(f"{origin}: {mistake}" for mistake in mistakes))


def _missing_sources(config: Config) -> list[str]:
    used = {experiment.dataset for experiment in config.experiments.values()}
    return [
        f"datasets.{name}.sources.{number}.path: {source.path} is not there (from {Path.cwd()}). Correct the path."
        for name, dataset in config.datasets.items()
        if name in used
        for number, source in enumerate(dataset.sources)
        if source.path is not None and not Path(source.path).expanduser().exists()
    ]


def _missing_weights(config: Config) -> list[str]:
    used = {experiment.model for experiment in config.experiments.values()}
    made = [Layout().train(name) / WEIGHTS for name in config.experiments]  # by this very run, before they are needed
    return [
        f"models.{name}.weights: {model.weights} is not there (from {Path.cwd()}). Correct the path."
        for name, model in config.models.items()
        if name in used and model.weights is not None and Path(model.weights) not in made
        if not Path(model.weights).expanduser().is_file()
    ]


def _nodata(config: Config) -> list[str]:
    used = {config.experiments[name].dataset for name in config.experiments}
    classes = max((len(config.datasets[name].classes) for name in used if config.datasets[name].scenes), default=0)
    if config.map.nodata >= classes:
        return []
    return [f"map.nodata: found {config.map.nodata}, which is the code of a class; allowed: {classes} … 255. Take 255."]


def _missing_nodes(config: Config, cluster: Cluster) -> list[str]:
    mistakes = []
    for name, experiment in config.experiments.items():
        try:
            cluster.limited_to(experiment.nodes)
        except UserError as error:
            mistakes.append(f"experiments.{name}.nodes: {error}")
    return mistakes


def _small_batches(config: Config, cluster: Cluster) -> list[str]:
    mistakes = []
    for name, experiment in config.experiments.items():
        nodes = [node for node in cluster.nodes if not experiment.nodes or node.name in experiment.nodes]
        workers = sum(node.count * worker.count for node in nodes for worker in node.workers)
        batch_size = config.training[experiment.training].batch_size
        if experiment.arm == "equal" and batch_size < workers:
            mistakes.append(
                f"training.{experiment.training}.batch_size: found {batch_size}, but experiment {name} gives equal "
                f"shares to {workers} workers; allowed: {workers} or more. Raise it, use fewer workers, or the arm "
                "balanced, which leaves workers out."
            )
    return mistakes


def _missing_devices(cluster: Cluster) -> list[str]:
    """Return what is wrong with the nodes that Slurm does not give: those are this machine."""
    wanted = {
        node.name: sum(worker.count for worker in node.workers if worker.device == "cuda")
        for node in cluster.nodes
        if node.slurm is None
    }
    if not any(wanted.values()):
        return []
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [
        f"nodes.{name}: {count} workers with device: cuda, but torch finds {found} GPUs on this machine. Use device: "
        "cpu, or say under `slurm` how to get a node that has them."
        for name, count in wanted.items()
        if count > found
    ]
