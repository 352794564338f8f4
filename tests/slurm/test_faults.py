"""What can go wrong while a training runs on three nodes: who is named, that nothing stays behind, how it goes on."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from safetensors.numpy import load_file

from landbalance.files import read_json
from slurm_cluster import SlurmCluster, left_behind
from slurm_project import Project, Training, node

pytestmark = pytest.mark.slurm


def difference(one: Project, other: Project) -> float:
    """Return the largest difference between two models' weights."""
    first, second = (load_file(project.folder / "model.safetensors") for project in (one, other))
    assert first.keys() == second.keys()
    return max(float(abs(first[key] - second[key]).max()) for key in first)


def workers(slurm: SlurmCluster, name: str) -> list[psutil.Process]:
    """Return the processes of a node that train."""
    return [process for process in slurm.processes(name) if "RANK" in process.environ()]


def check_ended(project: Project, slurm: SlurmCluster, seconds: float = 40) -> None:
    """No job, no process and no half-written output is left within the time."""
    deadline = time.monotonic() + seconds
    while (slurm.jobs() or left_behind(project.root)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert slurm.jobs() == {}
    assert left_behind(project.root) == []
    assert not list(project.folder.glob("model*"))
    assert not list(project.folder.glob(".*.part"))


def check_goes_on(project: Project, unbroken: Project) -> Training:
    """Run it again: it goes on from a checkpoint, and the model is that of an unbroken run."""
    training = project.start("--attempt", "2")
    assert training.end(180) == 0, training.said
    assert "going on from a checkpoint" in training.said
    assert read_json(project.folder / "run.json")["resumed"] >= 1
    assert difference(project, unbroken) < 1e-9
    assert not (project.folder / "checkpoints").exists()
    return training


def test_all_workers_train_as_one_job(unbroken: Project) -> None:
    run = read_json(unbroken.folder / "run.json")
    assert [(worker["node"], worker["node_index"]) for worker in run["workers"]] == [
        ("quick", 0),
        ("old", 0),
        ("old", 1),
    ]
    assert sorted(path.name for path in unbroken.folder.iterdir()) == [
        "history.parquet", "job.sh", "model.json", "model.safetensors", "run.json", "timing.parquet",
    ]  # fmt: skip


def test_kinds_that_differ_in_more_are_a_heterogeneous_job(project: Project, unbroken: Project) -> None:
    """Here with tiles copied to each node's own disk."""
    scratch = project.root / "scratch"
    scratch.mkdir()
    more = {"memory_mb": 1900, "scratch": str(scratch)}
    project.describe([node("quick", "fast"), node("old", "slow", count=2, **more)])
    training = project.start()
    assert training.end() == 0, training.said
    assert training.said.count(f"tiles copied to {scratch}") == 2
    assert list(scratch.iterdir()) == []
    assert "#SBATCH hetjob" in (project.folder / "job.sh").read_text()
    assert difference(project, unbroken) < 1e-9


def test_worker_killed(project: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    training = project.start().until_it_trains()
    workers(slurm, "slow1")[0].kill()
    assert training.end(60) == 1
    assert "slow1: worker 1 (cpu, 1 thread, emulated 2× slower) was killed by SIGKILL" in training.said
    check_ended(project, slurm)
    check_goes_on(project, unbroken)


def test_node_dies_and_training_goes_on_with_those_left(
    project: Project, slurm: SlurmCluster, unbroken: Project
) -> None:
    training = project.start().until_it_trains()
    slurm.kill("slow2")
    slurm.run("scontrol", "update", "nodename=slow2", "state=down", "reason=test")  # not to wait for SlurmdTimeout
    assert training.end(240) == 0, training.said
    assert "no word from slow2: it died or hangs" in training.said
    assert "not all nodes are available (1 of 1 quick, 1 of 2 old)" in training.said
    assert "planning anew from the profiles at hand" in training.said
    assert "going on from a checkpoint" in training.said
    assert difference(project, unbroken) < 1e-9


def test_node_hangs(project: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    training = project.start().until_it_trains()
    slurm.hang("slow2")
    assert training.end(240) == 0, training.said
    assert "no word from slow2: it died or hangs" in training.said
    assert "planning anew from the profiles at hand" in training.said
    assert difference(project, unbroken) < 1e-9


def test_nodes_that_are_too_slow_are_left_out(project: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    """They are not even asked for: others may use them, and the model is the same without them."""
    project.describe([node("quick", "fast"), node("old", "slow", count=2)], {"quick": 0.01, "old": 5.0})
    training = project.start().until_it_trains()
    (job,) = slurm.jobs()
    assert slurm.run("squeue", "--noheader", f"--jobs={job}", "--format=%N") == "fast1"
    assert training.end() == 0, training.said
    assert f"submitted as job {job} on 1 quick" in training.said
    workers = read_json(project.folder / "run.json")["workers"]
    left_out = {worker["node"]: worker["left_out"] for worker in workers if worker["rank"] is None}
    assert "with it a step would take" in left_out["old"]
    assert difference(project, unbroken) < 1e-9


def test_time_limit_is_no_failure(project: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    """Slurm tells the workers a minute before; they write a checkpoint, and another job goes on."""
    slow = [node("quick", "fast", slowdown=36.0), node("old", "slow", count=2, slowdown=36.0)]
    project.describe(slow)  # Slurm looks at time limits each half minute
    training = project.start().until_it_trains()
    (job,) = slurm.jobs()
    slurm.run("scontrol", "update", f"jobid={job}", "timelimit=1")
    training.until(f"job {job} was asked to stop")
    project.describe([node("quick", "fast"), node("old", "slow", count=2)])  # the rest may be fast
    assert training.end(180) == 0, training.said
    assert f"job {job} was asked to stop" in training.said
    assert "going on from its checkpoint in another job" in training.said
    assert difference(project, unbroken) < 1e-9


def test_out_of_memory(project: Project, slurm: SlurmCluster) -> None:
    project.describe([node("quick", "fast", memory_mb=150), node("old", "slow", count=2, memory_mb=150)])
    training = project.start()
    assert training.end(60) == 1
    message = training.said.splitlines()[-1]
    assert re.search(r"ran out of memory on (fast1|slow\S+).* \(`memory_mb`", message), message
    check_ended(project, slurm)


def test_cancelled_from_outside(project: Project, slurm: SlurmCluster) -> None:
    training = project.start().until_it_trains()
    (job,) = slurm.jobs()
    slurm.run("scancel", job)
    assert training.end(60) == 1
    assert f"job {job} was cancelled on fast1,slow[1-2]" in training.said
    check_ended(project, slurm)


def test_stopped_by_the_user(project: Project, slurm: SlurmCluster) -> None:
    """Ctrl-C, or SIGTERM, which the command takes for the same."""
    training = project.start().until_it_trains()
    training.process.send_signal(signal.SIGTERM)
    assert training.end(60) == 130
    check_ended(project, slurm)
    assert list((project.folder / "checkpoints").glob("step-*.pt"))


def test_preempted_and_requeued(project: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    training = project.start().until_it_trains()
    (job,) = slurm.jobs()
    slurm.run("sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")
    training.until(f"job {job} was put back into the queue", 60)
    assert training.end(180) == 0, training.said
    assert "going on from a checkpoint" in training.said
    assert difference(project, unbroken) < 1e-9


def test_neither_submitter_nor_controller_is_needed(project: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    """The job goes on; whoever comes next follows it, instead of starting a second one, also when Slurm is away."""
    training = project.start().until_it_trains()
    (job,) = slurm.jobs()
    training.process.kill()
    training.end()
    again = project.start()
    again.until(f"job {job} of this training is there already (running): following it")
    slurm.kill_controller()
    time.sleep(3)
    slurm.start_controller()
    assert again.end(120) == 0, again.said
    assert "submitted as job" not in again.said
    assert "going on from a checkpoint" not in again.said
    assert difference(project, unbroken) < 1e-9


@pytest.fixture
def small_disk(tmp_path: Path) -> Project:
    """Return a project on a file system that holds little more than it."""
    (tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(tmp_path / "disk")], check=True)
    try:
        yield Project(tmp_path / "disk")
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path / "disk")], check=True)


def test_full_disk(small_disk: Project, slurm: SlurmCluster, unbroken: Project) -> None:
    training = small_disk.start().until_it_trains()
    filler = small_disk.root / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(os.urandom(1 << 16))
        except OSError:
            pass
    assert training.end(60) == 1
    assert "fast1: worker 0" in training.said
    filler.unlink()
    check_ended(small_disk, slurm)
    check_goes_on(small_disk, unbroken)
