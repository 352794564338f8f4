"""Whole training jobs by the command line, on two real workers, with what can go wrong on the way."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml

import projects
from landbalance.bundle import load_bundle
from landbalance.files import digest, read_json, write_json
from landbalance.plans import Plan, PlannedCurve, PlannedWorker

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def write_plan(results: Path, shares, device="cpu", slowdowns=None, curves=()):
    workers = [
        PlannedWorker(
            rank=rank, node="here", node_index=0, local_index=rank, title=f"worker {rank}", device=device, threads=1,
            slowdown=slowdown, emulated=slowdown > 1, share=share, micro_batch=None, speed=1, predicted_seconds=1,
            curve=0 if curves else None, left_out=None,
        )
        for rank, (share, slowdown) in enumerate(zip(shares, slowdowns or [1.0] * len(shares), strict=True))
    ]  # fmt: skip
    plan = Plan(
        experiment="e",
        arm="balanced",
        batch_size=sum(shares),
        workers=workers,
        predicted=projects.PREDICTION,
        curves=list(curves),
    )
    write_json(results / "plan" / "e.json", plan.model_dump(mode="json"))


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """What a job leaves that nothing disturbed: the digest of its model, and its history."""
    project = write_project(tmp_path_factory.mktemp("unbroken"))
    status, said = train(project)
    assert status == 0, said
    return model_digest(project), history(project)


def write_project(tmp_path, train_tiles=21):
    """Return a folder with a configuration, tiles and a plan of 5 + 3 samples; 6 steps of 2 epochs."""
    projects.write_project(tmp_path, training={"checkpoint_seconds": 0}, train=train_tiles)
    write_plan(tmp_path / "results", (5, 3))
    return tmp_path


def start(project, *, environment=None, config="config.yaml"):
    command = [sys.executable, "-m", "landbalance", "train", "e", "--config", config]
    return subprocess.Popen(
        command, cwd=project, env=os.environ | (environment or {}), stderr=subprocess.PIPE, text=True
    )


def train(project):
    process = start(project)
    _, said = process.communicate(timeout=200)
    return process.returncode, said


def wait_for_checkpoint(project, process):
    folder = project / "results" / "train" / "e" / "checkpoints"
    deadline = time.monotonic() + 120
    while not list(folder.glob("step-*.pt")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def changed(project, **training):
    config = yaml.safe_load((project / "config.yaml").read_text())
    config["training"]["t"] |= training
    (project / "config.yaml").write_text(yaml.safe_dump(config))


def history(project):
    return pd.read_parquet(project / "results" / "train" / "e" / "history.parquet")


def model_digest(project):
    return digest(project / "results" / "train" / "e" / "model.safetensors")


def test_a_job_writes_a_usable_bundle_and_a_row_per_step_and_worker(project):
    status, said = train(project)
    folder = project / "results" / "train" / "e"
    assert status == 0, said
    assert sorted(path.name for path in folder.iterdir()) == [
        "history.parquet", "model.json", "model.safetensors", "run.json", "timing.parquet",
    ]  # fmt: skip
    timing = pd.read_parquet(folder / "timing.parquet")
    assert timing.groupby(["epoch", "step"])["samples"].sum().tolist() == [8, 8, 5] * 2
    assert timing["rank"].value_counts().to_dict() == {0: 6, 1: 6}
    assert (timing["step_seconds"] >= timing["compute_seconds"]).all()
    history = pd.read_parquet(folder / "history.parquet")
    assert history["epoch"].tolist() == [1, 2]
    network, card = load_bundle(folder)
    assert card.reflectance  # the scene says what its numbers mean
    assert card.bands == ["B00", "B01"]
    assert not network.training


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_job_goes_on_and_gives_the_model_of_an_unbroken_one(project, unbroken, ending):
    """C26: killed or preempted, then retried."""
    process = start(project)
    wait_for_checkpoint(project, process)
    workers = psutil.Process(process.pid).children(recursive=True)
    if ending == signal.SIGKILL:
        workers[-1].kill()
    else:
        process.terminate()
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1, said
    expected = (
        "was killed by SIGKILL"
        if ending == signal.SIGKILL
        else "stopped on request. Run the same command again to go on from the last checkpoint."
    )
    assert expected in said
    assert "Traceback" not in said
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
    assert not (project / "results" / "train" / "e" / "model.safetensors").exists()

    status, said = train(project)
    assert status == 0, said
    assert "going on from a checkpoint" in said
    assert model_digest(project) == unbroken[0]
    assert read_json(project / "results" / "train" / "e" / "run.json")["resumed"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_hangs_is_named_and_ends_the_job_in_the_stated_time(project, rank):
    """Worker 0 also serves the store by which the others find out who is to blame."""
    changed(project, timeout_seconds=5)
    process = start(project)
    wait_for_checkpoint(project, process)
    workers = psutil.Process(process.pid).children(recursive=True)
    stuck = next(worker for worker in workers if worker.environ().get("RANK") == str(rank))
    stuck.suspend()
    began = time.monotonic()
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1, said
    assert time.monotonic() - began < 60  # 5 and some on an idle machine, not half an hour
    named = f"worker {rank} (worker {rank})"
    assert f"worker {1 - rank} lost contact with the others: {named} gives no sign of life" in said
    assert f"{named} stalled; all other workers were ended" in said
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)


def test_a_deterministic_run_gives_the_same_model_file_again(project, unbroken):
    changed(project, deterministic=True)
    assert train(project)[0] == 0
    assert model_digest(project) == unbroken[0]


def test_gradients_sent_in_bfloat16_train_nearly_the_same(project, unbroken):
    changed(project, reduction="bfloat16")
    assert train(project)[0] == 0
    found, wanted = history(project)["train_loss"], unbroken[1]["train_loss"]
    assert not found.equals(wanted)
    assert found.tolist() == pytest.approx(wanted.tolist(), rel=0.02)


def test_shares_leave_a_worker_that_is_slower_than_planned_and_the_losses_stay(tmp_path):
    """The plan believes in two equal workers; one of them is four times slower."""
    curve = PlannedCurve(samples=[1, 8], seconds=[0.01, 0.08], slope=0.01, cap=None, measured=8)
    losses, changes = {}, {}
    for rebalance in (True, False):
        folder = tmp_path / str(rebalance)
        folder.mkdir()
        write_project(folder, train_tiles=400)
        write_plan(folder / "results", (4, 4), slowdowns=(1.0, 4.0), curves=[curve])
        text = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(text.replace("width: 8", "width: 8\n    precision: float64"))
        changed(folder, rebalance=rebalance, checkpoint_seconds=60)
        status, said = train(folder)
        assert status == 0, said
        losses[rebalance] = history(folder)["train_loss"]
        changes[rebalance] = read_json(folder / "results" / "train" / "e" / "run.json")["changes"]
        timing = pd.read_parquet(folder / "results" / "train" / "e" / "timing.parquet")
        last = timing[timing["epoch"] == 1].groupby("rank")["samples"].median()
        assert bool(last[1] < 4) == rebalance
    assert changes[False] == []
    assert "worker 1 (worker 1) computes 4 samples in" in changes[True][0]["reason"]
    assert losses[True].tolist() == pytest.approx(losses[False].tolist(), rel=1e-9)


def test_a_gpu_that_is_not_there_is_told_before_training(project):
    import torch

    shares = (8,) * (torch.cuda.device_count() + 1) if torch.cuda.is_available() else (8,)
    write_plan(project / "results", shares, device="cuda")
    config = yaml.safe_load((project / "config.yaml").read_text())
    config["training"]["t"]["batch_size"] = sum(shares)
    (project / "config.yaml").write_text(yaml.safe_dump(config))
    status, said = train(project)
    assert status == 1
    assert "device: cuda" in said
    assert "Traceback" not in said


def test_a_plan_for_another_batch_is_refused(project):
    write_plan(project / "results", (5, 4))
    status, said = train(project)
    assert status == 1
    assert "batch_size 9, but the configuration says balanced and 8" in said


def test_workers_with_other_settings_are_named(project):
    other = (project / "config.yaml").read_text().replace("width: 8", "width: 16")
    (project / "other.yaml").write_text(other)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        start(project, environment={**place, "RANK": str(rank)}, config=config)
        for rank, config in enumerate(("config.yaml", "other.yaml"))
    ]
    said = [process.communicate(timeout=100)[1] for process in processes]
    assert [process.returncode for process in processes] == [1, 1]
    assert "worker 1 (worker 1) has another settings or tiles than worker 0" in said[0]


@pytest.fixture
def two_machines():
    """Yield two network namespaces, machines as far as the network goes: a cable joins them, and no other way."""
    names = [f"landbalance-{os.getpid()}-{letter}" for letter in "ab"]
    try:
        if reason := ip(f"netns add {names[0]}"):
            pytest.skip(f"needs root and network namespaces: ip netns add: {reason}")
        assert not ip(f"netns add {names[1]}")
        if reason := ip(f"link add cable netns {names[0]} type veth peer name cable netns {names[1]}"):
            pytest.skip(f"needs pairs of virtual network cards: ip link add type veth: {reason}")
        for number, name in enumerate(names):
            assert not ip(f"-n {name} address add 10.11.12.{number + 1}/24 dev cable")
            assert not ip(f"-n {name} link set lo up")
            assert not ip(f"-n {name} link set cable up")
        yield names
    finally:
        for name in names:
            ip(f"netns delete {name}")


def ip(arguments):
    """Run `ip` of Linux; return what it has against it, nothing when it worked."""
    try:
        done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no such command (Debian's package iproute2)"
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


def check_documented_lines(project, address, interface, prefixes=((), ())):
    """Run the guide's two lines, each behind a prefix: two workers on the first node, one on the second."""
    write_plan(project / "results", (4, 3, 1))
    path = project / "results" / "plan" / "e.json"
    plan = read_json(path)
    plan["workers"][2] |= {"node_index": 1, "local_index": 0}
    write_json(path, plan)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    text = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("torchrun ")]
    processes = []
    for line, prefix in zip(lines, prefixes, strict=True):
        words = line.replace("node-a", address).replace("29500", str(port)).replace("havel", "e").split()
        command = [*prefix, str(Path(sys.executable).with_name("torchrun")), *words[1:]]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": interface}
        processes.append(subprocess.Popen(command, cwd=project, env=environment, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    run = read_json(project / "results" / "train" / "e" / "run.json")
    assert [(worker["node_index"], worker["share"]) for worker in run["workers"]] == [(0, 4), (0, 3), (1, 1)]
    assert (project / "results" / "train" / "e" / "model.safetensors").exists()


def test_documented_torchrun_lines(project):
    """Both machines are this one here. Ranks follow the plan."""
    check_documented_lines(project, "127.0.0.1", "lo")


def test_documented_torchrun_lines_on_two_machines(project, two_machines):
    """Each launcher sees only its own network card, and the other's address at the end of the cable."""
    check_documented_lines(project, "10.11.12.1", "cable", [("ip", "netns", "exec", name) for name in two_machines])
