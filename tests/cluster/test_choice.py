"""Which kind of node a stage is sent to."""

import json
from pathlib import Path
from typing import Any

import pytest

from landbalance.cluster import Cluster
from landbalance.cluster.choice import fastest_node, general_node, memory_mb

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
