"""`make demo`, with the stages' stand-ins and packages that are installed already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.workflow.conftest import Clone


def make(clone: Clone, target: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(clone.root.parent)}
    return subprocess.run(
        ["make", target], cwd=clone.root, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def installed(clean: Clone, tmp_path: Path) -> Clone:
    """Return a clone whose environment runs the clone's own code."""
    clone = clean.copy(tmp_path / "land balance")
    commands = clone.root / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("snakemake", "landbalance"):
        real = Path(sys.executable).with_name(name)
        source = clone.root / "src"
        (commands / name).write_text(f'#!/bin/sh\nPYTHONPATH="{source}" exec "{real}" "$@"\n', encoding="utf-8")
        (commands / name).chmod(0o755)
    (clone.root / ".venv" / "pyvenv.cfg").touch()
    (clone.root / ".venv" / "installed-workflow").touch()
    return clone


def test_demo_twice(installed: Clone) -> None:
    """The first call runs everything and ends with the figures; the second says in one line that it did nothing."""
    first = make(installed, "demo", os.defpath)
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.splitlines()[-1] == "stub: summary"
    assert (installed.root / "results/report/index.html").is_file()
    second = make(installed, "demo", os.defpath)
    assert second.returncode == 0
    assert second.stderr == ""
    assert second.stdout == "Nothing to be done: all results are up to date. Open results/report/index.html\n"


def test_demo_fails_with_the_workflow(installed: Clone) -> None:
    (installed.root / "config.yaml").write_text("datasets: {}\n", encoding="utf-8")
    result = make(installed, "demo", os.defpath)
    assert result.returncode != 0
    assert "error: config.yaml: datasets" in result.stderr
    assert "summary" not in result.stdout


def few_commands(folder: Path, *names: str) -> Path:
    """Return a folder with these commands of the system and no other."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(next(p for p in (Path("/bin", name), Path("/usr/bin", name)) if p.exists()))
    return folder


def test_no_python(clean: Clone, tmp_path: Path) -> None:
    """Without a Python that is new enough the message says what to install."""
    clone = clean.copy(tmp_path / "clone")
    tools = few_commands(tmp_path / "tools", "bash", "sh", "make")
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tools / "python3").chmod(0o755)
    result = make(clone, "demo", str(tools))
    assert result.returncode != 0
    assert "No Python 3.11 or later" in result.stderr
    assert not (clone.root / ".venv").exists()


@pytest.mark.parametrize(
    ("user", "said"), [(1000, "run it as root"), (0, "sbatch is not there, and neither is apt-get to install it")]
)
def test_no_slurm(clean: Clone, tmp_path: Path, user: int, said: str) -> None:
    """Where the tests on Slurm cannot run, that is said, and is no success."""
    tools = few_commands(tmp_path / "tools", "bash", "sh", "make")
    for name, text in (("id", f"echo {user}"), ("slurmctld", "exit 1"), ("slurmd", "exit 1")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    result = make(clean, "slurm-commands", str(tools))
    assert result.returncode != 0
    assert said in result.stderr
