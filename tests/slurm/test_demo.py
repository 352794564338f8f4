"""The demo by `snakemake --profile slurm` on a fast and two slow nodes, as a new user runs it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from landbalance.files import read_json
from slurm_cluster import NODES, SlurmCluster, left_behind
from slurm_demo import ASKING, CLUSTER, SHORTER, fresh_clone, snakemake, started

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what a fresh clone of the project holds, with another cluster.yaml."""
    return fresh_clone(tmp_path_factory.mktemp("demo") / "clone")


@pytest.fixture(scope="module")
def braked(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Return the cluster with its nodes as fast and slow as they are described."""
    for node in NODES:
        slurm.brake(node.name, node.percent)
    yield slurm
    for node in NODES:
        slurm.brake(node.name, 0)


@pytest.fixture(scope="module")
def done(clone: Path, braked: SlurmCluster) -> str:
    """Return what Snakemake said when the demo ran."""
    result = snakemake(clone, "--profile", "slurm", *SHORTER, command=ASKING)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_everything_is_there(done: str, clone: Path) -> None:
    for path in ("report/index.html", "report/havel.html", "map/havel/havel-2017-02-16.tif", "train/havel/model.json"):
        assert (clone / "results" / path).exists()
    assert not list((clone / "results/train").rglob("slurm-*.log"))


def test_each_stage_ran_on_the_right_kind_of_node(done: str, clone: Path, slurm: SlurmCluster) -> None:
    lines = slurm.run("squeue", "--noheader", "--states=all", "--Format=comment:80,nodelist:40,state:20").splitlines()
    nodes: dict[str, set[str]] = {}
    for comment, where, state in (line.split() for line in lines):
        if comment.startswith("rule_") and state == "COMPLETED":
            nodes.setdefault(comment.removeprefix("rule_").partition("_wildcards_")[0], set()).add(where)
    assert nodes["tile_scene"] == nodes["tile"] == nodes["evaluate"] == nodes["map"] == {"fast1"}
    assert len(nodes["profile"]) == 2
    assert "fast1" in nodes["profile"]
    # The others ran where Snakemake does.
    assert set(nodes) == {"tile_scene", "tile", "profile", "evaluate", "map"}


def test_training_ran_over_all_nodes_with_unequal_shares(done: str, clone: Path) -> None:
    run = read_json(clone / "results/train/havel/run.json")
    shares = {(worker["node"], worker["node_index"]): worker["share"] for worker in run["workers"]}
    assert set(shares) == {("quick", 0), ("old", 0), ("old", 1)}
    assert sum(shares.values()) == 32
    # A thread has 100, 25 and 25 % of a core; how much of it they get depends on what else this machine does.
    assert shares["quick", 0] >= max(shares["old", 0], shares["old", 1])
    timing = pd.read_parquet(clone / "results/train/havel/timing.parquet")
    assert timing.groupby("rank")["samples"].max().tolist() == [share for share in shares.values() if share]


def due(clone: Path, *arguments: str) -> set[str]:
    """Return the stages that a dry run announces."""
    said = snakemake(clone, "--dry-run", "--printshellcmds", *arguments).stdout
    commands = [line.partition("landbalance ")[2].split() for line in said.splitlines() if "Shell command:" in line]
    return {words[0] for words in commands if words}


def test_nothing_is_left_to_do_on_this_or_another_machine(done: str, clone: Path) -> None:
    for profile in ("slurm", "local"):
        assert "Nothing to be done" in snakemake(clone, "--profile", profile, "--dry-run", *SHORTER).stdout


def test_a_changed_site_trains_again_only_when_asked(done: str, clone: Path) -> None:
    path = clone / "profiles/slurm/cluster.yaml"
    described = yaml.safe_load(CLUSTER)
    described["nodes"][1]["count"] = 1
    try:
        path.write_text(yaml.safe_dump(described))
        assert due(clone, "--profile", "slurm", *SHORTER) == {"plan", "report"}
        path.write_text(yaml.safe_dump({**described, "retrain": True}))
        again = {"plan", "train", "evaluate", "map", "report"}
        assert due(clone, "--profile", "slurm", *SHORTER) == again
    finally:
        path.write_text(CLUSTER)


def until(found: Callable[[], bool], seconds: float = 90) -> None:
    """Return when something is so."""
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def quick(slurm: SlurmCluster) -> Iterator[None]:
    """Lift the brakes for a while: what is tested here does not depend on speed."""
    for node in NODES:
        slurm.brake(node.name, 0)
    yield
    for node in NODES:
        slurm.brake(node.name, node.percent)


def killed(clone: Path, *arguments: str, when: Callable[[], bool]) -> None:
    """Start Snakemake, kill it, and take its lock away as the next one asks to; its local jobs go on, as they do."""
    with (clone / "killed.log").open("w") as output:
        process = started(clone, *arguments, output=output)
    until(when)
    process.kill()
    process.wait()
    assert snakemake(clone, "--profile", "slurm", "--unlock").returncode == 0


def test_snakemake_killed_while_a_job_runs(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The job that it left is cancelled before the next Snakemake submits it again: never do two write one output."""
    clone = fresh_clone(tmp_path / "clone")
    target = ["--profile", "slurm", "--", "results/tile/havel/scenes/havel-2017-02-16.json"]
    killed(clone, *target, when=lambda: "RUNNING" in slurm.jobs().values())
    (orphan,) = slurm.jobs()
    again = snakemake(clone, *target, command=ASKING)
    assert again.returncode == 0, again.stdout
    assert f"job {orphan} (rule_tile_scene_wildcards_" in again.stdout
    assert "was left by a Snakemake that was killed, and is cancelled" in again.stdout
    assert "JobState=CANCELLED" in slurm.run("scontrol", "show", "job", orphan)
    assert slurm.jobs() == {}


def test_snakemake_killed_while_a_training_runs(done: str, clone: Path, slurm: SlurmCluster, quick: None) -> None:
    """The training goes on; the next Snakemake follows it, and what was left of the first one ends."""
    options = ["--config", "training={full: {epochs: 2}, short: {epochs: 6}}", "profile={seconds: 10}"]
    target = ["--profile", "slurm", *options, "--", "results/train/havel-equal/model.safetensors"]
    log = clone / "logs/train/havel-equal.log"
    log.unlink()
    killed(clone, *target, when=lambda: log.exists() and "epoch 1/6" in log.read_text())
    (job,) = slurm.jobs()
    again = snakemake(clone, *target, command=ASKING)
    assert again.returncode == 0, again.stdout
    assert f"job {job} of this training is there already (running): following it" in again.stdout
    assert "submitted as job" not in again.stdout
    assert read_json(clone / "results/train/havel-equal/run.json")["resumed"] == 0
    assert slurm.jobs() == {}
    until(lambda: not left_behind(clone), 30)


def test_a_mistake_in_the_description_stops_before_anything_is_submitted(clone: Path, slurm: SlurmCluster) -> None:
    (clone / "bad.yaml").write_text(CLUSTER.replace("constraint: slow", "constraint: old"))
    before = slurm.run("squeue", "--noheader", "--states=all", "--format=%A")
    result = snakemake(clone, "--profile", "slurm", *SHORTER, "cluster=bad.yaml")
    assert result.returncode == 1
    assert "nodes.old.slurm.constraint: no node of partition all has old; its nodes have fast, slow." in result.stdout
    assert slurm.run("squeue", "--noheader", "--states=all", "--format=%A") == before
