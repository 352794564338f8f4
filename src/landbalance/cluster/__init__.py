"""The cluster: its description, and what Slurm says of it."""

from landbalance.cluster.description import Cluster, Node, Slurm, Worker, load_cluster

__all__ = ["Cluster", "Node", "Slurm", "Worker", "load_cluster"]
