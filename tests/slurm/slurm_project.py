"""A small project that trains on Slurm's nodes, and the command that does so as one would start it by hand."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from landbalance.cluster import Node, load_cluster
from landbalance.config import load_config
from landbalance.files import write_json
from landbalance.plan import planned
from landbalance.profiles import AllReduce, Curve, Machine, NodeProfile
from projects import write_project

SECONDS = {"quick": 0.01, "old": 0.04}
"""What a sample takes on each kind of node, as its profile says."""


def node(name: str, feature: str, count: int = 1, slowdown: float = 2.0, **slurm: Any) -> dict[str, Any]:
    """Return a kind of node for a cluster description; its one worker idles between steps, so that runs last."""
    worker = {"device": "cpu", "threads": 1, "slowdown": slowdown}
    return {"name": name, "count": count, "workers": [worker], "slurm": {"constraint": feature, "minutes": 10, **slurm}}


class Project:
    """A folder with a configuration, tiles, profiles, a cluster description and a plan."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = root / "results"
        write_project(
            root,
            # float64, so that the split changes the result by less than any tolerance one would set by hand.
            model={"norm": "group", "precision": "float64"},
            training={
                "epochs": 10, "checkpoint_seconds": 0, "timeout_seconds": 20,
                "optimiser": {"name": "sgd", "learning_rate": 0.01},
            },
            train=40,
        )  # fmt: skip
        self.describe([node("quick", "fast"), node("old", "slow", count=2)])

    def describe(self, nodes: list[dict[str, Any]], seconds: dict[str, float] = SECONDS) -> None:
        """Write the cluster description, profiles of its nodes, on which a sample takes `seconds`, and the plan."""
        (self.root / "cluster.yaml").write_text(yaml.safe_dump({"nodes": nodes}))
        cluster = load_cluster(self.root / "cluster.yaml")
        profiles = {kind.name: _profile(kind, seconds[kind.name]) for kind in cluster.nodes}
        for name, profile in profiles.items():
            write_json(self.results / "profile" / "d" / "m" / f"{name}.json", profile.model_dump(mode="json"))
        self.plan = planned("e", load_config(self.root / "config.yaml"), cluster, profiles, 40)
        write_json(self.results / "plan" / "e.json", self.plan.model_dump(mode="json"))

    @property
    def folder(self) -> Path:
        """Return the folder of the training."""
        return self.results / "train" / "e"

    def start(self, *options: str) -> "Training":
        """Start the command that trains, as a user or Snakemake does on the login node."""
        return Training(self, list(options))


class Training:
    """A running `landbalance train`, outside Slurm."""

    def __init__(self, project: Project, options: list[str]) -> None:
        self.project = project
        self.log = project.root / f"log-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "landbalance", "train", "e", "--cluster", "cluster.yaml", *options]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=project.root, stdout=output, stderr=output)

    @property
    def said(self) -> str:
        """Return what it has said so far."""
        return self.log.read_text()

    def until(self, what: str, seconds: float = 90) -> "Training":
        """Return when it, or the job's own log, has said something."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            logs = [self.log, *self.project.folder.glob("slurm-*.log")]
            if any(what in path.read_text(errors="replace") for path in logs if path.exists()):
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{what!r} was not said:\n{self.said}")

    def until_it_trains(self) -> "Training":
        """Return when a checkpoint is there."""
        return self.until("epoch 1/")

    def end(self, seconds: float = 120) -> int:
        """Return the exit status."""
        return self.process.wait(seconds)


def _profile(node: Node, seconds: float) -> NodeProfile:
    """Return timings of a node, on whose workers each sample takes as long."""
    sizes = [1, 2, 4, 8]
    curves = [
        Curve(
            title=worker.title, device=worker.device, device_name="any", count=worker.count, emulated=worker.emulated,
            batch_sizes=sizes, seconds=[[seconds * size] * 3 for size in sizes], largest_batch=None,
        )
        for worker in node.workers
    ]  # fmt: skip
    return NodeProfile(
        dataset="d", model="m", node=node.name, measured="2026-01-01T00:00:00+00:00", bands=2, tile_size=16,
        curves=curves, machine=Machine(processor="any", cores=1, memory_bytes=1, python="3", torch="2"),
        allreduce=AllReduce(
            backend="gloo", world_size=2, gradient_bytes=1, seconds=[0.001], latency_seconds=[0.0005],
            collectives_per_step=1,
        ),
    )  # fmt: skip
