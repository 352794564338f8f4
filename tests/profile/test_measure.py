"""A profile of real steps on two workers of this machine, one of them emulated four times slower."""

import os
import shutil
import subprocess
import sys
import time
from statistics import median

import psutil
import pytest
import yaml

from landbalance.cluster import load_cluster
from landbalance.config import load_config
from landbalance.files import read_json, write_json
from landbalance.layout import Layout
from landbalance.profile import job
from landbalance.profile.picture import draw_profile
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
        "profile": {"seconds": 300, "tolerance": 0.5},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    workers = [{"device": "cpu"}, {"device": "cpu", "slowdown": 4}]
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"nodes": [{"name": "n", "workers": workers}]}))


def profile(folder):
    command = [sys.executable, "-m", "landbalance", "profile", "d", "m", "n", "--cluster", "cluster.yaml"]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A finished run: its folder, its output, and the profile."""
    folder = tmp_path_factory.mktemp("unet")
    project(folder, {"architecture": "unet", "depth": 3, "width": 8, "spectral": 8})
    run = profile(folder)
    assert run.returncode == 0, run.stderr
    return folder, run.stderr, read_profile(folder / "results" / "profile" / "d" / "m" / "n.json")


def test_the_emulated_worker_is_slower(measured):
    _, _, found = measured
    fast, slow = found.curves
    assert (fast.emulated, slow.emulated) == (False, True)
    assert "emulated 4× slower" in slow.title
    size = min(set(fast.batch_sizes) & set(slow.batch_sizes))
    at = [median(curve.seconds[curve.batch_sizes.index(size)]) for curve in found.curves]
    assert at[1] > 1.5 * at[0]


def test_every_timing_is_kept(measured):
    """The curves hold what the rounds took: a time of computing per worker and step."""
    _, _, found = measured
    assert [4, 4] in [taken.samples for taken in found.rounds]
    for entry, curve in enumerate(found.curves):
        for size, timings in zip(curve.batch_sizes, curve.seconds, strict=True):
            steps = [len(taken.step_seconds) for taken in found.rounds if taken.samples[entry] == size]
            assert len(timings) == sum(steps) > 0


def test_a_step_is_as_long_as_the_slowest_worker_computes_and_waits(measured):
    _, _, found = measured
    for taken in found.rounds:
        times = [
            min(curve.seconds[curve.batch_sizes.index(size)])
            for curve, size in zip(found.curves, taken.samples, strict=True)
            if size
        ]
        assert min(taken.step_seconds) >= 0.99 * max(times)


def test_communication_and_memory_are_measured(measured):
    _, _, found = measured
    summed = found.allreduce
    assert summed.world_size == 2
    assert summed.collectives_per_step > 1
    assert summed.bytes[0] == 4 and summed.bytes[-1] == summed.gradient_bytes
    assert all(len(timings) == len(summed.seconds) for timings in summed.timings)
    assert summed.latency > 0 or summed.bytes_per_second is not None
    for curve in found.curves:
        assert curve.threads == 1
        assert curve.largest_batch is None or curve.largest_batch > 8
        assert curve.memory.batch_sizes == [1, 2, 4, 8]


def test_the_profile_names_the_machine(measured):
    _, _, found = measured
    assert found.machine.torch.startswith(found.machine.libraries["torch"])
    assert found.machine.libraries["instructions"]
    assert found.curves[0].device_name == found.machine.processor


def test_a_picture_stands_beside_it(measured):
    folder, _, found = measured
    path = folder / "results" / "profile" / "d" / "m" / "n.svg"
    text = path.read_text()
    assert "emulated 4× slower" in text and "samples a second" in text
    draw_profile(found, folder / "again.svg")
    assert (folder / "again.svg").read_text() == text


def test_lines_say_what_was_measured(measured):
    _, output, _ = measured
    assert "samples by worker" in output
    assert "4 + 4" in output


@pytest.mark.parametrize(
    ("change", "again", "starts", "said"),
    [
        (None, False, 0, "is kept: nothing that it depends on has changed"),
        (None, True, 2, "2 workers together"),
        ("machine", False, 2, "is measured again: changed: machine"),
        ("damage", False, 2, "2 workers together"),
    ],
)
def test_it_is_kept_until_something_changes(measured, monkeypatch, caplog, tmp_path, change, again, starts, said):
    folder = shutil.copytree(measured[0], tmp_path / "copy")
    path = folder / "results" / "profile" / "d" / "m" / "n.json"
    content = read_json(path)
    if change == "machine":
        write_json(path, content | {"depends_on": content["depends_on"] | {"machine": "another one"}})
    if change == "damage":
        path.write_text("{")
    caplog.set_level("INFO")
    started = []
    monkeypatch.setattr(job, "run_workers", lambda command, workers: started.extend(workers))
    config, cluster = load_config(folder / "config.yaml"), load_cluster(folder / "cluster.yaml")
    job.run("d", "m", "n", config, cluster, Layout(folder / "results"), ["-"], again)
    assert len(started) == starts
    assert any(said in message for message in caplog.messages)


def test_batch_norm_on_single_pixels(tmp_path):
    """A step apart on one sample is left out; together the workers have two pixels."""
    project(tmp_path, {"architecture": "resnet18"}, task="classification")
    text = (tmp_path / "config.yaml").read_text().replace("tolerance: 0.5", "tolerance: 0.9\n  repeats: 3")
    (tmp_path / "config.yaml").write_text(text)
    run = profile(tmp_path)
    assert run.returncode == 0, run.stderr
    found = read_profile(tmp_path / "results" / "profile" / "d" / "m" / "n.json")
    assert found.curves[0].memory.batch_sizes == [2, 4, 8]
    assert found.allreduce.collectives_per_step == 41


def test_without_tiles_to_train_on_it_says_so(tmp_path):
    project(tmp_path, {"architecture": "unet", "depth": 3, "width": 8}, train=0)
    run = profile(tmp_path)
    assert run.returncode == 1
    assert "no tile is in the train split" in run.stderr


def test_a_killed_worker_is_named_alone(measured, tmp_path):
    """The other one only lost contact, and is not to blame."""
    folder = shutil.copytree(measured[0], tmp_path / "copy")
    text = (folder / "config.yaml").read_text().replace("tolerance: 0.5", "tolerance: 0.0001")  # it would take long
    (folder / "config.yaml").write_text(text)
    command = [sys.executable, "-m", "landbalance", "profile", "d", "m", "n", "--cluster", "cluster.yaml"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    second = None
    while second is None and time.monotonic() < deadline:
        time.sleep(0.1)
        children = psutil.Process(process.pid).children()
        second = next((child for child in children if child.environ().get("RANK") == "1"), None)
    # They have met when one link leads to the store and one to the other worker; then they measure.
    while sum(link.status == psutil.CONN_ESTABLISHED for link in second.net_connections()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)
    second.kill()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert said.splitlines()[-1].endswith(
        "worker 1 (cpu, 1 thread, emulated 4× slower) was killed by SIGKILL (out of memory?); all other workers were "
        "ended."
    )
