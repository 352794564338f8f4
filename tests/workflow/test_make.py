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


def test_no_python(clean: Clone, tmp_path: Path) -> None:
    """Without a Python that is new enough the message says what to install."""
    clone = clean.copy(tmp_path / "clone")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "make"):
        (tools / name).symlink_to(next(p for p in (Path("/bin", name), Path("/usr/bin", name)) if p.exists()))
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tools / "python3").chmod(0o755)
    result = make(clone, "demo", str(tools))
    assert result.returncode != 0
    assert "No Python 3.11 or later" in result.stderr
    assert not (clone.root / ".venv").exists()
