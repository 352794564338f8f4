import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.plan import run
from landbalance.profiles import NodeProfile


@pytest.fixture
def draw(
    tmp_path: Path,
    make_config: Callable[..., Config],
    make_cluster: Callable[..., Cluster],
    make_profile: Callable[..., NodeProfile],
) -> Callable[[int], Path]:
    def drawn(count: int) -> Path:
        cluster = make_cluster(local=(count, [{"device": "cpu"}, {"device": "cpu", "slowdown": 3.0}]))
        profile = make_profile(cluster.nodes[0], [(0.0, 0.1), (0.0, 0.3)])
        run("demo", make_config(batch_size=16 * count), cluster, {"local": profile}, 100, tmp_path / "demo.json")
        return tmp_path / "demo.svg"

    return drawn


def test_shows_each_worker_under_both_splits(draw: Callable[[int], Path]) -> None:
    text = draw(1).read_text()
    ElementTree.fromstring(text)
    for label in ("rank 0: local[0]", "cpu, 1 thread, emulated 3× slower", "12", "4", "8"):
        assert f"<!-- {label} -->" in text
    assert "step with communication, this plan: 1.20 s" in text
    assert "step with communication, equal shares: 2.40 s" in text
    assert "<dc:date>" not in text


def test_many_workers_stand_by_kind(draw: Callable[[int], Path]) -> None:
    text = draw(20).read_text()
    assert "<!-- 20 × local -->" in text
    assert "rank" not in text
