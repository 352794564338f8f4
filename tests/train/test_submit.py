"""Submitting and following a training, without Slurm: its commands are stand-ins that answer from files."""

import json
from pathlib import Path

import pytest

from landbalance.cluster import Cluster, Slurm
from landbalance.cluster.inventory import Partition, SlurmNode
from landbalance.cluster.request import Component
from landbalance.errors import UserError
from landbalance.train import allocation, submit
from landbalance.train.allocation import description

LINE = (
    "JobId={job} JobName=x JobState={state} Reason={reason} Requeue=1 Restarts={restarts} BatchFlag=1 "
    "ExitCode={status}:0 RunTime=01:02:03 TimeLimit=01:00:00 NodeList={hosts} BatchHost=a"
)


def line(state: str, hosts: str = "a", reason: str = "None", restarts: int = 0, status: int = 0, job: int = 7) -> str:
    return LINE.format(job=job, state=state, reason=reason, restarts=restarts, status=status, hosts=hosts)


def test_state_of_a_job() -> None:
    state = submit._state_of([line("FAILED", status=143, restarts=2)])
    assert (state.state, state.exit_status, state.restarts, state.hosts, state.minutes) == ("FAILED", 143, 2, "a", 62)
    assert state.ended
    assert not submit._state_of([line("PENDING", hosts="(null)", reason="BeginTime")]).ended


def test_a_component_that_lost_its_node_decides() -> None:
    """Slurm calls the other components of a heterogeneous job cancelled."""
    state = submit._state_of([line("CANCELLED"), line("NODE_FAIL", hosts="b[1-2]", job=8)])
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
    found = submit._with_memory(submit._state_of([line("FAILED", status=1)]), tmp_path / "log")
    assert (found.state, found.hosts) == (("OUT_OF_MEMORY", hosts) if hosts else ("FAILED", "a"))


def machine(name: str, *features: str, state: str = "IDLE", gpus: int = 0) -> SlurmNode:
    return SlurmNode(name, f"10.0.0.{name[-1]}", ("all",), features, "", gpus, 4, 8000, state)


ONE = Component(("quick", "old"), (1, 2), "[fast*1&slow*2]", 1, 2000, Slurm())
TWO = [Component(("quick",), (1,), "fast", 1, 2000, Slurm()), Component(("old",), (2,), "slow", 1, 2000, Slurm())]


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


def test_no_node_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "slurm_nodes", lambda: [machine("f1", "fast", state="DOWN")])
    monkeypatch.setattr(submit, "slurm_partitions", lambda: [Partition("all", True, 60)])
    with pytest.raises(UserError, match="no node of the plan is available"):
        submit._at_hand([ONE])


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


def test_another_gpu_than_was_measured_stops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho Tesla V100\necho Tesla V100\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    allocation._check_gpus("Tesla V100")
    allocation._check_gpus(None)
    with pytest.raises(UserError, match=r"has Tesla V100, but its kind was measured on Tesla A100.*forcerun profile"):
        allocation._check_gpus("Tesla A100")
