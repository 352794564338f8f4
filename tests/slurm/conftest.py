"""A real Slurm cluster for all tests of this folder, and a small project that trains on it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_cluster import NODES, SlurmCluster
from slurm_project import Project

PARTITIONS = {"all": [node.name for node in NODES], "urgent": [node.name for node in NODES]}
FAST, *SLOW = NODES


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Return a running cluster: fast1, slow1 and slow2, without a brake; fast1 has what Slurm takes for two GPUs."""
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), [replace(FAST, gpus=2), *SLOW], PARTITIONS)
    try:
        cluster.start()
        for node in NODES:
            cluster.brake(node.name, 0)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(autouse=True)
def whole(slurm: SlurmCluster) -> Iterator[None]:
    """Leave the cluster as it was found: no job, all nodes up."""
    yield
    slurm.run("scancel", "--user=root")
    for name in slurm.nodes:
        slurm.go_on(name)
        if not slurm.processes(name):
            slurm.start_node(name)
        slurm.run("scontrol", "update", f"nodename={name}", "state=resume")
    slurm.wait_idle()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(scope="session")
def unbroken(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project whose training ran through on all three nodes."""
    project = Project(tmp_path_factory.mktemp("unbroken"))
    training = project.start()
    assert training.end() == 0, training.said
    return project
