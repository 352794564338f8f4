"""A profile of real steps on two workers of this machine, one of them emulated four times slower."""

import os
import subprocess
import sys
from statistics import median

import pytest
import yaml

from landbalance.files import read_json
from landbalance.profiles import read_profile
from stores import write_store

pytestmark = pytest.mark.slow


def project(folder, model, **store):
    tiles = write_store(folder / "results" / "tile" / "d", size=32, **store)
    info = read_json(tiles / "statistics.json")
    scenes = {"s": {"bands": {band: f"{band}.tif" for band in info["bands"]}}}
    config = {
        "datasets": {
            "d": {
                "task": info["task"], "sources": [{"path": ".", "licence": "none"}], "scenes": scenes,
                "labels": {"path": "l.gpkg", "field": "f"}, "classes": info["classes"], "tiles": {"size": 32},
                "split": {"by": "block", "size": 32},
            }
        },
        "models": {"m": model},
        "training": {"t": {"epochs": 1, "batch_size": 8}},
        "experiments": {"e": {"dataset": "d", "model": "m", "training": "t"}},
        "profile": {"repeats": 5},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    workers = [{"device": "cpu"}, {"device": "cpu", "slowdown": 4}]
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"nodes": [{"name": "n", "workers": workers}]}))


def profile(folder):
    command = [sys.executable, "-m", "landbalance", "profile", "d", "m", "n", "--cluster", "cluster.yaml"]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


def test_every_timing_is_kept_and_the_emulated_worker_is_slower(tmp_path):
    project(tmp_path, {"architecture": "unet", "depth": 3, "width": 8, "spectral": 8})
    run = profile(tmp_path)
    assert run.returncode == 0, run.stderr
    found = read_profile(tmp_path / "results" / "profile" / "d" / "m" / "n.json")
    fast, slow = found.curves
    assert fast.batch_sizes == slow.batch_sizes == [1, 2, 4, 8]
    assert all(len(timings) == 5 for curve in found.curves for timings in curve.seconds)
    assert (fast.emulated, slow.emulated) == (False, True)
    assert "emulated 4× slower" in slow.title
    assert median(slow.seconds[-1]) > 1.5 * median(fast.seconds[-1])
    assert found.allreduce.world_size == 2
    assert found.allreduce.collectives_per_step > 1


def test_a_size_that_batch_norm_cannot_take_is_left_out(tmp_path):
    project(tmp_path, {"architecture": "resnet18"}, task="classification")
    run = profile(tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("warning: batch size 1 is not measured") == 1
    assert read_profile(tmp_path / "results" / "profile" / "d" / "m" / "n.json").curves[0].batch_sizes == [2, 4, 8]
