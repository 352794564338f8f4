"""The demo in a fresh clone, for a cluster of a fast and two slow nodes; only cluster.yaml is edited."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
CLUSTER = """
nodes:
  - name: quick
    workers: [{device: cpu}]
    slurm: {constraint: fast, minutes: 30}
  - name: old
    count: 2
    workers: [{device: cpu}]
    slurm: {constraint: slow, minutes: 30}
"""
# The demo but for the number of epochs, the time to measure a node, and the random forest.
SHORTER = [
    "--config",
    "training={full: {epochs: 2}, short: {epochs: 1}}",
    "profile={seconds: 10}",
    "evaluate={baseline: false}",
]
SNAKEMAKE = (str(Path(sys.executable).parent / "snakemake"),)
# The same, but it asks Slurm more often whether jobs have ended.
ASKING = (sys.executable, str(Path(__file__).with_name("asking_snakemake.py")))


def fresh_clone(root: Path) -> Path:
    """Make the folder `root` hold what a clone of the project does, with another cluster.yaml; return it."""
    root.mkdir(parents=True)
    for name in ("Snakefile", "config.yaml", "local", "slurm"):
        shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
    for name in ("src", "workflow", "profiles", "envs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (root / "profiles/slurm/cluster.yaml").write_text(CLUSTER)
    return root


def snakemake(clone: Path, *arguments: str, command: Sequence[str] = SNAKEMAKE) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a clone; what it says is in ``stdout``."""
    process = started(clone, *arguments, command=command)
    said, _ = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said)


def started(
    clone: Path, *arguments: str, command: Sequence[str] = SNAKEMAKE, output: int | IO[str] = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """Start Snakemake in a clone."""
    return subprocess.Popen(
        [*command, *arguments],
        cwd=clone, stdout=output, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(clone / "src")},
    )  # fmt: skip
