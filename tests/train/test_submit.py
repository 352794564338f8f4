"""Submitting and following a training, without Slurm: its commands are stand-ins that answer from files."""

import json
import re
from pathlib import Path

import pytest

from landbalance import cluster
from landbalance.cluster import Cluster
from landbalance.cluster.inventory import Partition, SlurmNode
from landbalance.cluster.request import Component
from landbalance.errors import UserError
from landbalance.plans import Plan, PlannedWorker
from landbalance.train import allocation, jobs, submit
from landbalance.train.allocation import description
from projects import PREDICTION

LINE = (
    "JobId={job} JobName=x JobState={state} Reason={reason} Requeue=1 Restarts={restarts} BatchFlag=1 "
    "ExitCode={status}:0 RunTime=01:02:03 TimeLimit=01:00:00 NodeList={hosts} BatchHost=a"
)


def line(state: str, hosts: str = "a", reason: str = "None", restarts: int = 0, status: int = 0, job: int = 7) -> str:
    return LINE.format(job=job, state=state, reason=reason, restarts=restarts, status=status, hosts=hosts)


def test_state_of_a_job() -> None:
    state = jobs.state_of([line("FAILED", status=143, restarts=2)])
    assert (state.state, state.exit_status, state.restarts, state.hosts, state.minutes) == ("FAILED", 143, 2, "a", 62)
    assert state.ended
    assert jobs.state_of([line("FAILED").replace("RunTime=", "RunTime=1-")]).minutes == 24 * 60 + 62
    assert not jobs.state_of([line("PENDING", hosts="(null)", reason="BeginTime")]).ended


def test_a_component_that_lost_its_node_decides() -> None:
    """Slurm calls the other components of a heterogeneous job cancelled."""
    state = jobs.state_of([line("CANCELLED"), line("NODE_FAIL", hosts="b[1-2]", job=8)])
    assert (state.state, state.hosts) == ("NODE_FAIL", "a,b[1-2]")


@pytest.mark.parametrize(
    ("log", "hosts"),
    [
        ("slurmstepd-f1: error: StepId=11.0 exceeded memory limit (9 > 1), being killed", "f1"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of …", "a"),
        ("slurmstepd-f1: error: *** STEP 11.0 ON f1 CANCELLED ***", None),
    ],
)
def test_out_of_memory_is_read_from_the_log(tmp_path: Path, log: str, hosts: str | None) -> None:
    """Slurm's own state is a mere FAILED."""
    (tmp_path / "log").write_text(f"before\n{log}\n")
    found = jobs.with_memory(jobs.state_of([line("FAILED", status=1)]), tmp_path / "log")
    assert (found.state, found.hosts) == (("OUT_OF_MEMORY", hosts) if hosts else ("FAILED", "a"))


def machine(name: str, *features: str, state: str = "IDLE", gpus: int = 0) -> SlurmNode:
    return SlurmNode(name, f"10.0.0.{name[-1]}", ("all",), features, "", gpus, 4, 8000, state)


ONE = Component(("quick", "old"), (1, 2), "[fast*1&slow*2]", 1, 2000, 240, cluster.Slurm())
TWO = [
    Component(("quick",), (1,), "fast", 1, 2000, 240, cluster.Slurm()),
    Component(("old",), (2,), "slow", 1, 2000, 240, cluster.Slurm()),
]


@pytest.mark.parametrize(
    ("components", "down", "left"),
    [
        ([ONE], [], ["[fast*1&slow*2]"]),
        ([ONE], ["s2"], ["[fast*1&slow*1]"]),
        ([ONE], ["f1"], ["slow"]),
        ([ONE], ["s1", "s2"], ["fast"]),
        (TWO, ["s2"], ["fast", "slow"]),
        (TWO, ["s1", "s2"], ["fast"]),
    ],
)
def test_nodes_that_are_down_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, components: list[Component], down: list[str], left: list[str]
) -> None:
    names = {"f1": "fast", "s1": "slow", "s2": "slow", "s3": "other"}
    nodes = [machine(name, feature, state="DOWN" if name in down else "IDLE") for name, feature in names.items()]
    monkeypatch.setattr(submit, "slurm_nodes", lambda: nodes)
    monkeypatch.setattr(submit, "slurm_partitions", lambda: [Partition("all", True, 60)])
    found = submit._at_hand(components)
    assert [part.constraint for part in found] == left
    assert sum(part.nodes for part in found) == 3 - len(down)
    assert (found == components) is (not down)


def training(folder: Path, identity: str = "settings") -> submit.Training:
    return submit.Training("e", folder, ["landbalance", "train", "e"], identity)


class Slurm:
    """A stand-in for the commands: it takes any job, which ends as the test wants it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.queue, self.states, self.submitted, self.cancelled = folder, "", [], 0, []
        self.nodes = [machine("f1", "fast"), machine("s1", "slow"), machine("s2", "slow")]
        monkeypatch.setattr(submit, "asked", self.answer)
        monkeypatch.setattr(submit, "slurm_nodes", lambda names=(): self.nodes)
        monkeypatch.setattr(submit, "slurm_partitions", lambda: [Partition("all", True, 60)])
        monkeypatch.setattr(submit, "requested", lambda plan, cluster, attempt, partitions: [ONE])
        monkeypatch.setattr(submit, "host_names", lambda listed: [])
        monkeypatch.setattr(submit, "job_state", lambda job: self.states.pop(0)())
        monkeypatch.setattr(submit, "_cancelled", self.cancelled.append)
        monkeypatch.setattr(submit, "_POLL_SECONDS", (0.0, 0.0))

    def answer(self, *command: str) -> str:
        if command[0] == "squeue":
            return self.queue
        assert command[0] == "sbatch"
        self.submitted += 1
        return f"{self.submitted}\n"

    def run(self, identity: str = "settings") -> None:
        submit.train_on_slurm(training(self.folder, identity), plan(), CLUSTER, 1)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path, monkeypatch)


def plan() -> Plan:
    return Plan(experiment="e", arm="balanced", batch_size=8, workers=[], predicted=PREDICTION)


def forgotten() -> jobs.JobState:
    return jobs.JobState("")


def test_no_node_is_left(slurm: Slurm) -> None:
    slurm.nodes = [machine("f1", "fast", state="DOWN")]
    with pytest.raises(UserError, match="no node of the plan is available"):
        slurm.run()
    assert slurm.submitted == 0


def test_no_job_stays_when_all_its_nodes_are_gone(slurm: Slurm) -> None:
    def gone() -> jobs.JobState:
        slurm.nodes = [machine("f1", "fast", state="DOWN")]
        return jobs.JobState("PENDING")

    slurm.states = [gone]
    with pytest.raises(UserError, match="no node of the plan is available"):
        slurm.run()
    assert slurm.cancelled == ["1"]


def test_an_old_model_and_a_forgotten_job_are_no_success(slurm: Slurm) -> None:
    (slurm.folder / "model.safetensors").write_text("of other settings")
    slurm.states = [forgotten]
    with pytest.raises(UserError, match="job 1 is not known to Slurm any more, and left no model"):
        slurm.run()


def test_a_forgotten_job_that_left_a_new_model_did_its_work(slurm: Slurm) -> None:
    def trained() -> jobs.JobState:
        (slurm.folder / "model.safetensors").write_text("new")
        return forgotten()

    slurm.states = [trained]
    slurm.run()


@pytest.mark.parametrize(("identity", "followed"), [("settings", True), ("other settings", False)])
def test_only_a_job_with_the_same_settings_is_followed(slurm: Slurm, identity: str, followed: bool) -> None:
    slurm.states = [forgotten, forgotten]
    with pytest.raises(UserError):
        slurm.run()
    (comment,) = re.findall("--comment=(\\w+)", (slurm.folder / "job.sh").read_text())
    slurm.queue = f"1|{comment}|RUNNING\n"
    with pytest.raises(UserError):
        slurm.run(identity)
    assert (slurm.submitted, slurm.cancelled) == ((1, []) if followed else (2, ["1"]))


def test_what_the_job_says_is_not_waited_for_longer_than_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, slept = tmp_path / "log", []
    monkeypatch.setattr(submit.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: (slept.append(seconds), log.write_text("." * len(slept))))
    assert submit._says_more(log, shown=3, seconds=10.0)
    assert slept == [1.0] * 4
    assert not submit._says_more(log, shown=1000, seconds=2.5)
    assert slept[4:] == [1.0, 1.0, 0.5]


def test_who_was_left_over_follows_no_more(slurm: Slurm) -> None:
    """After SIGKILL to Snakemake, its `landbalance train` lives on beside that of the next Snakemake."""

    def taken_over() -> jobs.JobState:
        (slurm.folder / "follower").write_text("another host, another process")
        return jobs.JobState("RUNNING")

    slurm.states = [taken_over]
    with pytest.raises(UserError, match="job 1 is followed by another process now"):
        slurm.run()
    assert slurm.cancelled == []
    assert (slurm.folder / "follower").read_text() == "another host, another process"


# --- inside the job ---

CLUSTER = Cluster.model_validate(
    {
        "nodes": [
            {"name": name, "count": 2, "workers": [{"device": "cpu"}], "slurm": {"constraint": feature}}
            for name, feature in (("quick", "fast"), ("old", "slow"))
        ]
    }
)


def test_kinds_are_told_by_component_or_by_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order Slurm lists nodes in, ranks follow the description."""
    monkeypatch.setattr(allocation, "host_names", lambda listed: listed.split(","))
    nodes = {"x1": machine("x1", "slow"), "x2": machine("x2", "fast", "ib")}
    monkeypatch.setattr(allocation, "slurm_nodes", lambda names: [nodes[name] for name in names])
    one = json.loads(description([ONE]))
    assert allocation._kinds_of_hosts(CLUSTER, one, {"SLURM_JOB_NODELIST": "x1,x2"}) == {"x2": "quick", "x1": "old"}
    two = json.loads(description(TWO))
    environment = {"SLURM_JOB_NODELIST_HET_GROUP_0": "x1", "SLURM_JOB_NODELIST_HET_GROUP_1": "x2"}
    assert allocation._kinds_of_hosts(CLUSTER, two, environment) == {"x1": "quick", "x2": "old"}
    nodes["x2"] = machine("x2", "other")
    with pytest.raises(UserError, match=r"x2, whose features other fit no kind"):
        allocation._kinds_of_hosts(CLUSTER, one, {"SLURM_JOB_NODELIST": "x1,x2"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"a": ("failed", "worker 0 was killed."), "b": ("lost", "…")}, "a: worker 0 was killed."),
        ({"a": ("lost", "…"), "b": ("silent", "")}, "no word from b: it died or hangs"),
        ({"a": ("lost", "worker 0 lost contact."), "b": ("done", "")}, "a: worker 0 lost contact."),
    ],
)
def test_who_is_to_blame(words: dict[str, tuple[str, str]], said: str) -> None:
    with pytest.raises(UserError) as caught:
        allocation._judged(words)
    assert str(caught.value).startswith(said)
    assert "Run again to go on from the last checkpoint" in str(caught.value)


def test_success_and_a_stop_on_request_are_no_failure() -> None:
    assert allocation._judged({"a": ("done", ""), "b": ("done", "")}) == 0
    assert allocation._judged({"a": ("stopped", "…"), "b": ("stopped", "…")}) == 143


def gpu_worker(local_index: int, device: str) -> PlannedWorker:
    return PlannedWorker(
        rank=local_index, node="gpu", node_index=0, local_index=local_index, title=device, device=device, threads=1,
        slowdown=1.0, emulated=False, share=1, micro_batch=None, speed=1, predicted_seconds=1, left_out=None,
    )  # fmt: skip


def test_each_worker_is_compared_with_what_was_measured_in_its_place() -> None:
    """A node may have unlike GPUs, and CPU workers beside them."""
    site = allocation.Site(CLUSTER, lambda cluster: plan(), {"gpu": ["A100", "V100", None]})
    found = [allocation._measured_gpu(site, gpu_worker(place, "cuda")) for place in range(4)]
    assert found == ["A100", "V100", None, None]


def test_staging_does_not_blame_the_copy_for_what_goes_wrong_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "a")
    monkeypatch.setenv(allocation.TILES, "")
    (tmp_path / "tiles").mkdir()
    with pytest.raises(FileNotFoundError), allocation._staged(tmp_path / "tiles", str(tmp_path)):
        (tmp_path / "other").read_text()
    with pytest.raises(UserError, match="cannot be written"), allocation._staged(tmp_path / "gone", str(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["tiles"]
