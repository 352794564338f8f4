"""The commands with which a new user describes the cluster, as docs/slurm.md has them."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm
GUIDE = Path(__file__).parents[2] / "docs" / "slurm.md"


def documented(what: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of the guide that starts so."""
    line = next(line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith(what))
    command = line.partition("#")[0].replace("landbalance", f"{shlex.quote(sys.executable)} -m landbalance", 1)
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def test_a_draft_fits_the_cluster_that_it_was_made_on(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "profiles" / "slurm").mkdir(parents=True)
    path = tmp_path / "profiles" / "slurm" / "cluster.yaml"
    assert documented("landbalance cluster --detect", tmp_path).returncode == 0
    found = {node["name"]: node for node in yaml.safe_load(path.read_text())["nodes"]}
    assert found["fast"]["workers"] == [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 14}]
    assert found["slow"]["count"] == 2
    checked = documented("landbalance cluster --check", tmp_path)
    assert (checked.returncode, "fits this cluster" in checked.stdout) == (0, True), checked.stdout
    path.write_text(path.read_text().replace("constraint: slow", "constraint: old"))
    checked = documented("landbalance cluster --check", tmp_path)
    assert checked.returncode == 1
    assert "nodes.slow.slurm.constraint: no node of partition all has old; its nodes have fast, slow." in checked.stdout
