"""A copy of the project in which every stage only writes the files it declares, so that reruns can be counted."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Outcome(NamedTuple):
    """How a run of Snakemake ended."""

    status: int
    output: str


@dataclass(frozen=True)
class Clone:
    """A copy of the project at `root`; its `landbalance` command is `stub_cli.py`."""

    root: Path
    server: "subprocess.Popen[str]"

    def snakemake(self, *arguments: str, folder: str = ".", environment: dict[str, str] | None = None) -> Outcome:
        """Run Snakemake in a folder of the clone, with nothing set but what a fresh shell has."""
        given = {key: value for key, value in os.environ.items() if not key.startswith(("LANDBALANCE", "SNAKEMAKE"))}
        home = self.root.parent / "home"
        home.mkdir(exist_ok=True)
        request = {
            "arguments": arguments,
            "folder": str(self.root / folder),
            "environment": {
                **given, "PYTHONPATH": str(self.root / "src"), "HOME": str(home),
                "PATH": os.pathsep.join([str(_without_slurm(home)), given["PATH"]]),
                **(environment or {}),
            },
        }  # fmt: skip
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return Outcome(**json.loads(self.server.stdout.readline()))

    def due(self, *arguments: str, environment: dict[str, str] | None = None) -> set[str]:
        """Return the commands that a dry run announces, e.g. ``train havel``; the overview is ``report``."""
        result = self.snakemake("--dry-run", "--printshellcmds", *arguments, environment=environment)
        assert result.status == 0, result.output
        prefix = "Shell command: landbalance "
        lines = result.output.replace(" --scene ", " ").splitlines()
        return {line.removeprefix(prefix).partition(" --")[0] for line in lines if line.startswith(prefix)}

    def copy(self, target: Path) -> "Clone":
        """Return a copy of the clone, results and times of change included."""
        shutil.copytree(self.root, target, symlinks=True)
        return Clone(target, self.server)


def _without_slurm(home: Path) -> Path:
    """Return a folder whose `scontrol` knows no cluster: one of this machine's is none of the tests' business."""
    command = home / "bin" / "scontrol"
    if not command.exists():
        command.parent.mkdir()
        command.write_text("#!/bin/sh\nexit 1\n")
        command.chmod(0o755)
    return command.parent


@pytest.fixture(scope="session")
def server() -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, str(HERE / "forked_snakemake.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def clean(server: "subprocess.Popen[str]", tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone in which nothing has been run, in a folder with a space in its name."""
    root = tmp_path_factory.mktemp("a clone") / "land balance"
    root.mkdir()
    for name in ("Snakefile", "Makefile", "constraints.txt", "pyproject.toml", "config.yaml", "local", "slurm"):
        shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
    for name in ("src", "workflow", "profiles", "envs"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignored)
    shutil.copy2(HERE / "stub_cli.py", root / "src" / "landbalance" / "cli.py")
    return Clone(root, server)


@pytest.fixture(scope="session")
def done(clean: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone in which everything has been run."""
    clone = clean.copy(tmp_path_factory.mktemp("done") / "land balance")
    result = clone.snakemake("--profile", "local")
    assert result.status == 0, result.output
    return clone
