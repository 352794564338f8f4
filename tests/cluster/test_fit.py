"""A description against what Slurm has: what does not fit is said, and a draft always fits."""

from typing import Any

import pytest
import yaml

from landbalance.cluster import Cluster
from landbalance.cluster.detect import draft
from landbalance.cluster.fit import misfits, shortages
from landbalance.cluster.inventory import Partition, SlurmNode
from landbalance.errors import UserError


def machine(name: str, *features: str, gpus: int = 0, cpus: int = 32, state: str = "IDLE", **changes: Any) -> SlurmNode:
    values: dict[str, Any] = {
        "partitions": ("accel", "all") if gpus else ("all",),
        "address": name,
        "gres": f"gpu:a100:{gpus}(S:0)" if gpus else "",
        "memory_mb": 64000,
    }
    return SlurmNode(name=name, features=features, gpus=gpus, cpus=cpus, state=state, **values | changes)


NODES = [
    machine("g1", "a100", "ib", gpus=4),
    machine("g2", "a100", "ib", gpus=4, state="DOWN*"),
    machine("v1", "v100", gpus=2, cpus=16),
    machine("c1", "skylake"),
    machine("c2", "skylake"),
    machine("c3", "skylake", state="IDLE+DRAIN"),
    machine("t1", "tiny", memory_mb=3800),
]
PARTITIONS = [Partition("all", True, 60), Partition("accel", False, None)]


def described(**changes: Any) -> Cluster:
    node: dict[str, Any] = {"name": "n", "workers": [{"device": "cpu", "threads": 16}], "slurm": {"minutes": 60}}
    slurm = {**node["slurm"], **changes.pop("slurm", {})}
    return Cluster.model_validate({"nodes": [{**node, **changes, "slurm": slurm}]})


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"slurm": {"partition": "gpus"}}, ["nodes.n.slurm.partition: no partition is called gpus", "all, accel"]),
        ({"slurm": {"constraint": "h100"}}, ["nodes.n.slurm.constraint: no node of partition all has h100", "skylake"]),
        ({"slurm": {"minutes": 61}}, ["slurm.minutes: found 61, but partition all allows 60"]),
        ({"count": 4, "slurm": {"constraint": "skylake"}}, ["nodes.n.count: found 4", "there are 3", "c1, c2, c3"]),
        ({"slurm": {"constraint": "v100", "gres": "gpu:3"}}, ["slurm.gres: found gpu:3", "holds 2 GPUs"]),
        (
            {"workers": [{"device": "cuda", "count": 4}], "slurm": {"constraint": "a100", "gres": "gpu:2"}},
            ["nodes.n.workers: 4 with device: cuda", 'write gres: "gpu:4"'],
        ),
        ({"workers": [{"device": "cpu", "threads": 40}]}, ["workers: 40 threads in all, but such a node has 32 CPUs"]),
        (
            {
                "workers": [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 16}],
                "slurm": {"constraint": "v100", "gres": "gpu:2"},
            },
            ["workers: 18 threads in all, one or more for each GPU, but such a node has 16 CPUs"],
        ),
        ({"slurm": {"memory_mb": 70000}}, ["slurm.memory_mb: 70000 MB", "64000 MB"]),
        ({"slurm": {"constraint": "tiny"}}, ["slurm.memory_mb: not given", "may ask for 6000 MB", "has 3800 MB"]),
        ({"workers": [{"device": "cpu", "count": 50}]}, ["workers: 75500 MB are asked for"]),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], parts: list[str]) -> None:
    said = "\n".join(misfits(described(**changes), NODES, PARTITIONS))
    assert [part for part in parts if part not in said] == [], said


def test_what_fits_is_silent() -> None:
    gpus = {
        "workers": [{"device": "cuda", "count": 4}],
        "slurm": {"partition": "accel", "gres": "gpu:4", "minutes": 9999},
    }
    assert misfits(described(**gpus), NODES, PARTITIONS) == []
    assert misfits(described(count=2, slurm={"constraint": "skylake"}), NODES, PARTITIONS) == []


def test_a_node_that_is_down_is_a_shortage_and_no_mistake() -> None:
    cluster = described(count=3, slurm={"constraint": "skylake"})
    assert misfits(cluster, NODES, PARTITIONS) == []
    assert shortages(cluster, NODES, PARTITIONS) == ["nodes.n: 2 of 3 are up: c3 is idle+drain"]


def test_a_draft_describes_all_nodes_that_are_up_and_fits() -> None:
    cluster = Cluster.model_validate(yaml.safe_load(draft(NODES, PARTITIONS)))
    found = {node.name: (node.count, [(w.device, w.count, w.threads) for w in node.workers]) for node in cluster.nodes}
    # A core for each GPU process is left by the CPU worker beside them.
    assert found == {
        "a100": (1, [("cuda", 4, 1), ("cpu", 1, 28)]),
        "v100": (1, [("cuda", 2, 1), ("cpu", 1, 14)]),
        "skylake": (2, [("cpu", 1, 32)]),
        "tiny": (1, [("cpu", 1, 32)]),
    }
    assert misfits(cluster, NODES, PARTITIONS) == []
    gpu = cluster.node("a100").slurm
    assert gpu is not None
    assert (gpu.partition, gpu.constraint, gpu.gres, gpu.minutes) == (None, "a100", "gpu:4", 60)


def test_a_draft_of_kinds_in_unlike_partitions_fits() -> None:
    nodes = [
        machine("n1", "old", cpus=2, memory_mb=3800, partitions=("long",)),
        machine("g1", "rome", "ib", cpus=6, memory_mb=14000, partitions=("gpuish",)),
    ]
    partitions = [Partition("long", True, 2880), Partition("gpuish", False, 45)]
    cluster = Cluster.model_validate(yaml.safe_load(draft(nodes, partitions)))
    found = {node.name: node.slurm and (node.slurm.partition, node.slurm.minutes) for node in cluster.nodes}
    assert found == {"rome": ("gpuish", 45), "old": (None, 240)}
    assert misfits(cluster, nodes, partitions) == []


def test_nodes_without_features_have_a_name_too() -> None:
    cluster = Cluster.model_validate(yaml.safe_load(draft([machine("x"), machine("y", cpus=8)], PARTITIONS)))
    assert [(node.name, node.count) for node in cluster.nodes] == [("cpu", 1), ("cpu-2", 1)]


def test_unlike_gpus_of_a_node_are_workers_of_unlike_sorts() -> None:
    mixed = machine("m1", gpus=3, gres="gpu:a100:2(S:0),gpu:v100:1(S:1)")
    (node,) = Cluster.model_validate(yaml.safe_load(draft([mixed], PARTITIONS))).nodes
    assert [(worker.device, worker.count) for worker in node.workers] == [("cuda", 2), ("cuda", 1), ("cpu", 1)]
    assert node.slurm is not None
    assert node.slurm.gres == "gpu:3"


def test_no_node_is_up() -> None:
    with pytest.raises(UserError, match="no node that is up"):
        draft([machine("x", state="DOWN")], PARTITIONS)
