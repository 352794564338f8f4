"""Jobs that go on when the Snakemake that submitted them was killed."""

import fcntl
import logging
import os
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from landbalance.cluster.inventory import asked
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

_RUN = re.compile(r"SLURM run ID: (\S+)")
_RUNS = 20
_SECONDS = 60.0


def show_alive(logs: Iterable[str]) -> None:
    """Lock this run's own logs until its process ends, however it does: other runs then let its jobs be.

    Snakemake locks files, not the folder: two runs that make different files go on side by side.
    """
    for path in logs:
        try:
            fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)  # never closed: the lock goes with the process
        except OSError as error:
            _log.warning("%s: cannot be locked (%s); do not start another Snakemake in this folder", path, error)


def cancel_orphans(logs: Path) -> None:
    """Cancel what earlier runs of Snakemake in this folder left behind, and return when it is gone.

    Only runs that are over are meant (see `show_alive`): nobody waits for their jobs, and this run is about to submit
    them again. The job of a training is not among them: it goes on, and is followed.

    Parameters
    ----------
    logs : Path
        The folder of Snakemake's own logs, which name the runs.
    """
    try:
        newest = [path for path in sorted(logs.glob("*.snakemake.log"))[-_RUNS:] if not _is_alive(path)]
        runs = [run for path in newest for run in _RUN.findall(path.read_text(encoding="utf-8", errors="replace"))]
        if not runs:
            return
        for job, what in _jobs(runs).items():
            _log.warning("job %s (%s) was left by a Snakemake that was killed, and is cancelled", job, what)
            subprocess.run(["scancel", job], capture_output=True, check=False)
        deadline = time.monotonic() + _SECONDS
        while _jobs(runs) and time.monotonic() < deadline:
            time.sleep(0.5)
    except (UserError, OSError) as error:
        _log.warning("jobs of earlier runs are not looked for: %s", error)


def _is_alive(log: Path) -> bool:
    """Return whether the run that writes a log holds it locked; an `OSError` where files cannot be locked."""
    with log.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _jobs(runs: list[str]) -> dict[str, str]:
    """Return what the runs' jobs that have not ended are for, by id."""
    lines = asked("squeue", "--noheader", "--me", f"--name={','.join(runs)}", "--format=%A|%k").splitlines()
    return dict(line.split("|", 1) for line in lines)
