"""The cluster description: what is read, what is refused, what workers are called."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from landbalance.cluster import Cluster, Slurm, Worker, load_cluster
from landbalance.errors import UserError

ROOT = Path(__file__).parents[2]


def load(folder: Path, value: Any) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return load_cluster(path)


def node(**changes: Any) -> dict[str, Any]:
    return {"name": "cpu", "workers": [{"device": "cpu"}], **changes}


def test_unequal_nodes(tmp_path: Path) -> None:
    """C20: nodes with 8 and 2 GPUs have 8 and 2 workers, not 5 and 5."""
    cluster = load(
        tmp_path,
        {
            "nodes": [
                node(name="big", workers=[{"device": "cuda", "count": 8}], slurm={"gres": "gpu:8"}),
                node(
                    name="small",
                    count=3,
                    workers=[{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 16}],
                    slurm={},
                ),
            ]
        },
    )
    assert [(kind.name, kind.count, [w.count for w in kind.workers]) for kind in cluster.nodes] == [
        ("big", 1, [8]),
        ("small", 3, [2, 1]),
    ]
    assert cluster.node("small").workers[1].threads == 16
    assert cluster.node("big").slurm is not None
    assert cluster.node("big").slurm.gres == "gpu:8"
    assert cluster.node("small").slurm == Slurm()
    assert cluster.from_slurm


@pytest.mark.parametrize(
    ("worker", "title", "emulated"),
    [
        (Worker(device="cuda"), "cuda", False),
        (Worker(device="cpu"), "cpu, 1 thread", False),
        (Worker(device="cpu", threads=2, slowdown=3.0), "cpu, 2 threads, emulated 3× slower", True),
        (Worker(device="cuda", slowdown=1.5), "cuda, emulated 1.5× slower", True),
    ],
)
def test_title_says_emulated(worker: Worker, title: str, emulated: bool) -> None:
    assert worker.title == title
    assert worker.emulated is emulated


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({"nodes": []}, ["nodes", "at least 1"]),
        ({"node": []}, ["node: no such setting", "did you mean nodes?"]),
        ({"nodes": [node(workers=[])]}, ["nodes.0.workers", "at least 1"]),
        ({"nodes": [node(workers=[{"device": "gpu"}])]}, ["nodes.0.workers.0.device: found 'gpu'", "'cpu' or 'cuda'"]),
        ({"nodes": [node(workers=[{"device": "cpu", "count": 0}])]}, ["nodes.0.workers.0.count: found 0"]),
        ({"nodes": [node(workers=[{"device": "cpu", "slowdown": 0.5}])]}, ["slowdown: found 0.5"]),
        ({"nodes": [node(workers=[{"device": "cpu", "thread": 2}])]}, ["thread: no such", "did you mean threads?"]),
        ({"nodes": [node(slurm={"partitions": "a"})]}, ["nodes.0.slurm.partitions", "did you mean partition?"]),
        ({"nodes": [node(name="my node")]}, ["nodes.0.name: found 'my node'", "letters, digits"]),
        ({"nodes": [node(count="2")]}, ["nodes.0.count: found '2'", "integer"]),
        ({"nodes": [node(), node()]}, ["nodes", "several kinds are called cpu", "raise `count`"]),
        (
            {"nodes": [node(), node(name="big", slurm={})]},
            ["nodes: cpu has no `slurm`, but others have", "`slurm: {}` if nothing special"],
        ),
        ([], ["a mapping of keys to values is wanted"]),
    ],
)
def test_mistakes(tmp_path: Path, value: Any, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, value)
    assert str(caught.value).startswith(f"{tmp_path / 'cluster.yaml'}: ")
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not found"):
        load_cluster(tmp_path / "cluster.yaml")


@pytest.mark.parametrize("site", ["local", "default", "slurm"])
def test_shipped_descriptions(site: str) -> None:
    cluster = load_cluster(ROOT / "profiles" / site / "cluster.yaml")
    assert sum(worker.count for kind in cluster.nodes for worker in kind.workers) >= 2
