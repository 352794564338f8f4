"""Jobs of a killed Snakemake; `squeue` and `scancel` are stand-ins that keep the queue in a file."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from landbalance.cluster.orphans import cancel_orphans

SQUEUE = """#!/bin/sh
for word; do case "$word" in --name=*) names=$(echo "${word#--name=}" | tr , '|');; esac; done
grep -E "^($names) " queue | cut -d ' ' -f 2- || true
"""
SCANCEL = '#!/bin/sh\nsed -i "/ $1|/d" queue\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with Snakemake's logs and a queue: name, id, comment."""
    for name, text in (("squeue", SQUEUE), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue").write_text("run-1 7|rule_tile_wildcards_havel\nrun-9 8|rule_tile\nlandbalance-e-1 9|abc\n")
    return tmp_path


def test_only_jobs_of_this_folders_runs_are_cancelled(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "2026-01-01.snakemake.log").write_text("Using shell\nSLURM run ID: run-1\nBuilding DAG\n")
    (folder / "2026-01-02.snakemake.log").write_text("SLURM run ID: run-2\n")
    cancel_orphans(folder)
    assert (folder / "queue").read_text() == "run-9 8|rule_tile\nlandbalance-e-1 9|abc\n"
    assert caplog.messages == [
        "job 7 (rule_tile_wildcards_havel) was left by a Snakemake that was killed, and is cancelled"
    ]


def test_jobs_of_a_run_that_is_alive_are_let_be(folder: Path) -> None:
    """Two Snakemakes that make different files share a folder; once one is killed, its jobs are orphans."""
    (folder / "2026-01-01.snakemake.log").write_text("SLURM run ID: run-1\n")
    (folder / "2026-01-02.snakemake.log").write_text("SLURM run ID: run-9\n")
    code = (
        "import sys; from landbalance.cluster.orphans import show_alive\n"
        "show_alive(sys.argv[1:]); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder / "2026-01-01.snakemake.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        cancel_orphans(folder)
        assert (folder / "queue").read_text() == "run-1 7|rule_tile_wildcards_havel\nlandbalance-e-1 9|abc\n"
        other.kill()
    cancel_orphans(folder)
    assert (folder / "queue").read_text() == "landbalance-e-1 9|abc\n"


def test_slurm_is_not_asked_where_no_run_used_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    (folder / "2026-01-01.snakemake.log").write_text("Building DAG\n")
    (folder / "squeue").write_text("#!/bin/sh\nexit 1\n")
    cancel_orphans(folder)
    assert caplog.messages == []
    (folder / "2026-01-02.snakemake.log").write_text("SLURM run ID: run-2\n")
    cancel_orphans(folder)
    assert caplog.messages[0].startswith("jobs of earlier runs are not looked for: squeue")
