"""What Slurm is asked for; `sbatch` is a stand-in that notes its arguments and refuses the job."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.workflow.conftest import Clone

GPU = {
    "name": "gpu",
    "workers": [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 8}],
    "slurm": {"partition": "accel", "constraint": "a100", "gres": "gpu:2", "account": "maps"},
}
CPU = {
    "name": "cpu",
    "workers": [{"device": "cpu", "threads": 32}],
    "slurm": {"partition": "batch", "minutes": 30, "qos": "low"},
}
SCENE = "havel-2017-02-16"
PROFILE = "results/profile/havel/unet/{node}.json"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Return a folder of stand-ins for Slurm's commands."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in ("sbatch", "squeue", "sinfo", "sacct", "sacctmgr", "sshare", "scancel", "scontrol"):
        note = f'printf "%s\\0" "$@" > "{tmp_path}/asked"\n' if name == "sbatch" else ""
        (folder / name).write_text(f"#!/bin/sh\n{note}exit 1\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "sacctmgr").write_text("#!/bin/sh\necho maps\n", encoding="utf-8")
    (folder / "sinfo").write_text("#!/bin/sh\necho 'batch*'\n", encoding="utf-8")
    lines = "PartitionName=batch Default=YES MaxTime=00:45:00\nPartitionName=accel MaxTime=UNLIMITED"
    (folder / "scontrol").write_text(f"#!/bin/sh\n[ $3 = partition ] && echo '{lines}'\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("target", "rule", "asked", "not_asked"),
    [
        (PROFILE.format(node="gpu"), "profile", "-p accel -C a100 --gres=gpu:2 -A maps --cpus-per-task=10", ""),
        (
            PROFILE.format(node="cpu"),
            "profile",
            "-p batch --cpus-per-task=32 --ntasks=1 --exclusive -t 30 --qos=low --mem 2000",
            "-C --gres",
        ),
        (PROFILE.format(node="cpu"), "profile 2", "-t 45 --mem 4000", ""),  # a retry; the partition allows no more
        ("results/tile/havel/index.parquet", "tile", "-p batch --cpus-per-task=1 --mem 4000 -t 30", "-C --gres"),
        # On the kind of node that the plan finds fastest.
        ("results/evaluate/havel/metrics.json", "evaluate", "-p accel -C a100 --gres=gpu:2 --cpus-per-task=4", ""),
        (f"results/map/havel/{SCENE}.tif", "map", "-p accel -C a100 --gres=gpu:2 --mem 4000", "--exclusive"),
    ],
)
def test_sbatch_line(
    done: Clone, tmp_path: Path, commands: Path, target: str, rule: str, asked: str, not_asked: str
) -> None:
    rule, attempt = (*rule.split(), "1")[:2]
    clone = done.copy(tmp_path / "clone")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump({"nodes": [CPU, GPU]}), encoding="utf-8")
    workers = [{"node": "gpu", "speed": 900.0}, {"node": "cpu", "speed": 90.0}]
    (clone.root / "results/plan/havel.json").write_text(json.dumps({"workers": workers}), encoding="utf-8")
    result = clone.snakemake(
        "--profile", "slurm", "--retries", "0", "--attempt", attempt, "--rerun-triggers", "mtime", "--forcerun", rule,
        "--allowed-rules", rule, f"{rule}_settings",
        "--config", f"cluster={cluster}", "--", target, environment={"PATH": f"{commands}:/usr/bin:/bin"},
    )  # fmt: skip
    assert result.status == 1
    assert (tmp_path / "asked").exists(), result.output
    words = [word.strip("'") for word in (tmp_path / "asked").read_text(encoding="utf-8").split("\0")[:-1]]
    options = " ".join(word for word in words if not word.startswith("--wrap"))
    for option in shlex.split(asked.replace(" -", "' '-").join("''")):
        assert f" {option} " in f" {options} ", options
    for option in not_asked.split():
        assert f" {option}" not in options, options
    wrapped = next(word for word in words if word.startswith("--wrap"))
    assert f"cluster={cluster}" in wrapped
