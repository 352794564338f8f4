"""The demo by `snakemake --profile slurm` on a fast and two slow nodes, as a new user runs it."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from landbalance.files import read_json
from slurm_cluster import NODES, SlurmCluster
from slurm_demo import CLUSTER, SHORTER, fresh_clone, snakemake

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
    result = snakemake(clone, "--profile", "slurm", *SHORTER)
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
    assert nodes["tile"] == nodes["evaluate"] == nodes["map"] == {"fast1"}
    assert len(nodes["profile"]) == 2
    assert "fast1" in nodes["profile"]
    assert set(nodes) == {"tile", "profile", "evaluate", "map"}  # the others ran where Snakemake does


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


def test_a_mistake_in_the_description_stops_before_anything_is_submitted(clone: Path, slurm: SlurmCluster) -> None:
    (clone / "bad.yaml").write_text(CLUSTER.replace("constraint: slow", "constraint: old"))
    before = slurm.run("squeue", "--noheader", "--states=all", "--format=%A")
    result = snakemake(clone, "--profile", "slurm", *SHORTER, "cluster=bad.yaml")
    assert result.returncode == 1
    assert "nodes.old.slurm.constraint: no node of partition all has old; its nodes have fast, slow." in result.stdout
    assert slurm.run("squeue", "--noheader", "--states=all", "--format=%A") == before
