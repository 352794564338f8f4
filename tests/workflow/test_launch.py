"""Starting the workflow: which configuration, which machines, and what a user sees when something is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from snakemake.utils import available_cpu_count

from landbalance.config import Map

if TYPE_CHECKING:
    from tests.workflow.conftest import Clone


def cluster_text(node: str) -> str:
    return yaml.safe_dump({"nodes": [{"name": node, "workers": [{"device": "cpu"}]}]})


def nodes(clone: Clone, *arguments: str, environment: dict[str, str] | None = None) -> set[str]:
    """Return the kinds of nodes that a dry run would measure."""
    due = clone.due(*arguments, environment=environment)
    return {command.split()[-1] for command in due if command.startswith("profile ")}


@pytest.fixture
def clone(clean: Clone, tmp_path: Path) -> Clone:
    """Return a clone with a second configuration and several cluster descriptions."""
    clone = clean.copy(tmp_path / "clone")
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    del config["experiments"]["havel-equal"]
    (clone.root / "one.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    (clone.root / "other.yaml").write_text(cluster_text("other"), encoding="utf-8")
    (clone.root / "profiles/slurm/cluster.yaml").write_text(cluster_text("big"), encoding="utf-8")
    return clone


# --- the configuration ---


def test_configfile_takes_the_place_of_the_demo(clone: Clone) -> None:
    """An experiment of config.yaml that the other file does not have is not run."""
    due = clone.due("--profile", "local", "--configfile", "one.yaml")
    assert "train havel" in due
    assert "train havel-equal" not in due


def test_stages_read_the_configuration_of_the_run(clone: Clone) -> None:
    """The frozen file holds what --configfile and --config say together; a dry run leaves none behind."""
    arguments = ("--configfile", "one.yaml", "--config", "map={window: 160}")
    dry = clone.snakemake("--dry-run", "-p", *arguments)
    (frozen,) = set(re.findall(r"--config (results/config/[0-9a-f]{12}\.yaml)", dry.output))
    assert not (clone.root / "results").exists()
    assert clone.snakemake(*arguments).status == 0
    config = yaml.safe_load((clone.root / frozen).read_text(encoding="utf-8"))
    assert config["map"] == Map(window=160).model_dump(mode="json")
    assert list(config["experiments"]) == ["havel"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--config", "map={window: 10}"], ["config.yaml + --config: map", "window (10)", "overlap (64)"]),
        (["--config", "reports={title: Other}"], ["reports: no such setting (did you mean report?)"]),
        (["--config", "map={window: [}"], ["--config map={window: [}", "not valid YAML"]),
        (["--configfile", "bad.yaml"], ["bad.yaml: training.full.epoch", "did you mean epochs?"]),
        (["--config", "cluster=gone.yaml"], ["gone.yaml: not found", "LANDBALANCE_CLUSTER"]),
        (["--config", "cluster=bad.yaml"], ["bad.yaml: datasets: no such setting", "allowed here: nodes"]),
    ],
)
def test_mistake_is_one_message(clone: Clone, arguments: list[str], parts: list[str]) -> None:
    config = (clone.root / "config.yaml").read_text(encoding="utf-8")
    (clone.root / "bad.yaml").write_text(config.replace("epochs: 30", "epoch: 30"), encoding="utf-8")
    result = clone.snakemake("--profile", "local", *arguments)
    assert result.status == 1
    assert result.output.splitlines()[-1].startswith("error: ") or "\nerror: " in result.output
    for part in parts:
        assert part in result.output
    assert "Traceback" not in result.output
    assert "File " not in result.output


# --- the cluster description ---


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, "local"),
        (["--profile", "local"], {}, "local"),
        (["--profile", "slurm"], {}, "big"),
        (["--profile=profiles/slurm"], {}, "big"),
        ([], {"SNAKEMAKE_PROFILE": "slurm"}, "big"),
        (["--profile", "local"], {"SNAKEMAKE_PROFILE": "slurm"}, "local"),
        (["--workflow-profile", "slurm"], {}, "big"),
        (["--profile", "slurm", "--configfile", "one.yaml"], {}, "big"),
        (["--profile", "slurm", "--config", "report={title: Other}"], {}, "big"),
        (["--profile", "slurm", "--configfile", "one.yaml", "--config", "report={title: Other}"], {}, "big"),
        (["--profile", "local"], {"LANDBALANCE_CLUSTER": "other.yaml"}, "other"),
        (["--profile", "local", "--config", "cluster=other.yaml"], {}, "other"),
        (["--config", "cluster=other.yaml", "report={title: Other}"], {"LANDBALANCE_CLUSTER": "gone.yaml"}, "other"),
    ],
)
def test_cluster_survives_every_mix(
    clone: Clone, arguments: list[str], environment: dict[str, str], expected: str
) -> None:
    assert nodes(clone, *arguments, environment=environment) == {expected}


@pytest.mark.parametrize("exported", [False, True])
def test_cluster_is_looked_up_in_the_shells_folder(clone: Clone, exported: bool) -> None:
    """--directory moves the results; paths on the command line stay as the user sees them, as for --configfile."""
    named = [] if exported else ["--config", "cluster=../other.yaml"]
    environment = {"LANDBALANCE_CLUSTER": "../other.yaml"} if exported else {}
    (clone.root / "shell").mkdir()
    arguments = ["-s", "../Snakefile", "--directory", "../away/far", "--configfile", "../one.yaml", *named]
    run = subprocess.run(
        [sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "rules", "--summary", *arguments],
        cwd=clone.root / "shell",
        env={**os.environ, "PYTHONPATH": str(clone.root / "src"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "results/profile/havel/unet/other.json" in run.stdout


def test_profile_in_the_users_folder(clone: Clone) -> None:
    """A bare name is also looked up where Snakemake looks, and its cluster description is taken."""
    home = clone.root.parent / "home"
    folder = home / ".config" / "snakemake" / "site"
    shutil.copytree(clone.root / "profiles/local", folder)
    (folder / "cluster.yaml").write_text(cluster_text("site"), encoding="utf-8")
    assert nodes(clone, "--profile", "site", environment={"XDG_CONFIG_HOME": str(home / ".config")}) == {"site"}


def test_named_profile_without_description(clone: Clone) -> None:
    """A site's profile without cluster.yaml is not quietly replaced by a laptop's."""
    (clone.root / "profiles/slurm/cluster.yaml").unlink()
    result = clone.snakemake("--profile", "slurm", "--dry-run")
    assert result.status == 1
    assert "/profiles/slurm/cluster.yaml: not found" in result.output
    assert "--config cluster=PATH" in result.output


def test_description_is_named_by_the_path_at_which_it_is_edited(clone: Clone) -> None:
    """Not by that of the link in the root."""
    (clone.root / "profiles/slurm/cluster.yaml").write_text("nodez: []\n", encoding="utf-8")
    result = clone.snakemake("--profile", "slurm", "--dry-run")
    assert "\nerror: profiles/slurm/cluster.yaml: nodes: " in result.output
    assert "\nprofiles/slurm/cluster.yaml: nodez: " in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], "all"), (["--profile", "local"], "all"), (["--profile", "slurm"], None), (["--profile=slurm"], None)],
)
def test_cores_of_a_profile(clone: Clone, arguments: list[str], expected: str | None) -> None:
    """Snakemake lays profiles/default over a named profile: that must not limit a cluster to this machine's cores."""
    program = "import sys; from snakemake.cli import parse_args; print(parse_args(sys.argv[1:])[1].cores)"
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=clone.root, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == str(expected if expected != "all" else available_cpu_count())


# --- a stage that fails ---


def test_failing_stage_fails_the_run(clone: Clone) -> None:
    """C27: its message is seen and kept in the log, its exit status is not lost in the pipe, no output stays."""
    result = clone.snakemake("--profile", "local", environment={"STUB_FAILS": "tile"})
    assert result.status == 1
    assert "error: as the test wants it" in result.output
    log = (clone.root / "logs/tile/havel/havel-2017-02-16.log").read_text(encoding="utf-8")
    assert log == "stub: tile havel\nerror: as the test wants it\n"
    assert not (clone.root / "results/tile").exists() or not list((clone.root / "results/tile/havel").iterdir())
    assert clone.snakemake("--profile", "local").status == 0


def test_commands_are_found_without_an_activated_environment(clone: Clone) -> None:
    result = clone.snakemake("--until", "download", environment={"PATH": "/usr/bin:/bin"})
    assert result.status == 0, result.output
