"""Which kind of node a stage is sent to."""

import json
from pathlib import Path
from typing import Any

import pytest

from landbalance.cluster import Cluster, Slurm
from landbalance.cluster.choice import fastest_node, general_node, memory_mb, minutes, threads
from landbalance.cluster.inventory import Partition

GPU: dict[str, Any] = {"name": "gpu", "workers": [{"device": "cuda"}, {"device": "cpu"}], "slurm": {"memory_mb": 9000}}
OLD: dict[str, Any] = {"name": "old", "workers": [{"device": "cpu"}], "slurm": {}}
NEW: dict[str, Any] = {"name": "new", "workers": [{"device": "cpu"}], "slurm": {}}


def cluster(*nodes: dict[str, Any]) -> Cluster:
    return Cluster.model_validate({"nodes": list(nodes)})


def test_ordinary_work_goes_to_a_node_without_a_gpu() -> None:
    assert general_node(cluster(GPU, OLD, NEW)).name == "old"
    assert general_node(cluster(GPU)).name == "gpu"


def test_the_plan_says_which_node_is_fastest(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert fastest_node(cluster(GPU, OLD, NEW), plan).name == "old"
    workers = [("gpu", 5.0), ("old", 3.0), ("new", 9.0), ("new", 1.0), ("gone", 99.0)]
    plan.write_text(json.dumps({"workers": [{"node": node, "speed": speed} for node, speed in workers]}))
    assert fastest_node(cluster(GPU, OLD, NEW), plan).name == "new"
    assert fastest_node(cluster(GPU, OLD), plan).name == "gpu"


@pytest.mark.parametrize(("wanted", "attempt", "asked"), [(4000, 1, 4000), (4000, 2, 8000), (4000, 3, 9000)])
def test_memory_grows_up_to_what_the_node_has(wanted: int, attempt: int, asked: int) -> None:
    assert memory_mb(cluster(GPU).nodes[0], wanted, attempt) == asked


@pytest.mark.parametrize(
    ("partition", "asked"),
    [
        (None, [100, 200, 250]),  # the default one
        ("long", [100, 200, 300]),
        ("short,long", [100, 200, 300]),
        ("short", [100, 120, 120]),
        ("elsewhere", [100, 100, 100]),  # Slurm tells of none: more might be refused
    ],
)
def test_time_limit_grows_up_to_the_partitions(partition: str | None, asked: list[int]) -> None:
    partitions = [Partition("main", True, 250), Partition("long", False, None), Partition("short", False, 120)]
    slurm = Slurm(partition=partition, minutes=100)
    assert [minutes(slurm, attempt, partitions) for attempt in (1, 2, 3)] == asked


def test_no_more_cores_than_the_workers_of_a_node_have() -> None:
    workers = [{"device": "cpu", "count": 2}]
    small, big, here = (
        cluster({"name": "n", "workers": [{**worker, "threads": count} for worker in workers], **slurm}).nodes[0]
        for count, slurm in ((1, {"slurm": {}}), (8, {"slurm": {}}), (1, {}))
    )
    # On this machine Snakemake itself counts the cores.
    assert [threads(node, 4) for node in (small, big, here)] == [2, 4, 4]
