from collections.abc import Callable
from typing import Any

import pytest

from landbalance.cluster import Cluster, Node
from landbalance.config import Config, parse_config
from landbalance.profiles import NodeProfile


@pytest.fixture
def make_config() -> Callable[..., Config]:
    """A configuration with one experiment, ``demo``."""

    def made(batch_size: int = 16, arm: str = "balanced", norm: str = "group") -> Config:
        return parse_config(
            {
                "datasets": {
                    "havel": {
                        "task": "segmentation",
                        "sources": [{"path": "data", "licence": "CC0"}],
                        "scenes": {"scene": {"bands": {"B02": "b.tif", "B03": "g.tif", "B04": "r.tif"}}},
                        "labels": {"path": "labels.gpkg", "field": "class"},
                        "classes": [
                            {"name": "Forest", "colour": "#1b7837", "values": [1]},
                            {"name": "Water", "colour": "#2166ac", "values": [2]},
                        ],
                        "tiles": {"size": 64},
                        "split": {"by": "block", "size": 128},
                    }
                },
                "models": {"unet": {"architecture": "unet", "norm": norm}},
                "training": {"short": {"epochs": 1, "batch_size": batch_size}},
                "experiments": {"demo": {"dataset": "havel", "model": "unet", "training": "short", "arm": arm}},
            }
        )

    return made


@pytest.fixture
def make_cluster() -> Callable[..., Cluster]:
    """A cluster of nodes given as name → (count, workers)."""

    def made(**nodes: tuple[int, list[dict[str, Any]]]) -> Cluster:
        return Cluster.model_validate(
            {"nodes": [{"name": name, "count": count, "workers": workers} for name, (count, workers) in nodes.items()]}
        )

    return made


@pytest.fixture
def make_profile() -> Callable[..., NodeProfile]:
    """A profile of a node whose workers take (fixed + each · b) seconds, at batch sizes 1, 2, 4, …, 64."""

    def made(
        node: Node,
        lines: list[tuple[float, float]],
        caps: list[int | None] | None = None,
        allreduce: tuple[float, float] | None = None,
        **changed: Any,
    ) -> NodeProfile:
        sizes = [1, 2, 4, 8, 16, 32, 64]
        curves = [
            {
                "title": worker.title,
                "device": worker.device,
                "device_name": "test",
                "count": worker.count,
                "emulated": worker.emulated,
                "batch_sizes": sizes,
                "seconds": [[fixed + each * size] * 3 for size in sizes],
                "largest_batch": cap,
            }
            for worker, (fixed, each), cap in zip(node.workers, lines, caps or [None] * len(lines), strict=True)
        ]
        world = sum(worker.count for worker in node.workers)
        value: dict[str, Any] = {
            "dataset": "havel",
            "model": "unet",
            "node": node.name,
            "measured": "2025-01-01T00:00:00+00:00",
            "machine": {"processor": "test", "cores": 4, "memory_bytes": 1, "python": "3", "torch": "2"},
            "bands": 3,
            "tile_size": 64,
            "curves": curves,
            "allreduce": None
            if allreduce is None
            else {
                "backend": "gloo",
                "world_size": world,
                "gradient_bytes": 4000,
                "seconds": [allreduce[0]] * 3,
                "latency_seconds": [allreduce[1]] * 3,
                "collectives_per_step": 0,
            },
        }
        return NodeProfile.model_validate(value | changed)

    return made
