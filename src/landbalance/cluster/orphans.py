"""Jobs that go on when the Snakemake that submitted them was killed."""

import logging
import re
import subprocess
import time
from pathlib import Path

from landbalance.cluster.inventory import asked
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

_RUN = re.compile(r"SLURM run ID: (\S+)")
_RUNS = 20
_SECONDS = 60.0


def cancel_orphans(logs: Path) -> None:
    """Cancel what earlier runs of Snakemake in this folder left behind, and return when it is gone.

    To be called when this run holds the folder's lock: then no other one waits for those jobs, and this one is about to
    submit them again. The job of a training is not among them: it goes on, and is followed.

    Parameters
    ----------
    logs : Path
        The folder of Snakemake's own logs, which name the runs.
    """
    newest = sorted(logs.glob("*.snakemake.log"))[-_RUNS:]
    runs = [run for path in newest for run in _RUN.findall(path.read_text(encoding="utf-8", errors="replace"))]
    if not runs:
        return
    try:
        for job, what in _jobs(runs).items():
            _log.warning("job %s (%s) was left by a Snakemake that was killed, and is cancelled", job, what)
            subprocess.run(["scancel", job], capture_output=True, check=False)
        deadline = time.monotonic() + _SECONDS
        while _jobs(runs) and time.monotonic() < deadline:
            time.sleep(0.5)
    except UserError as error:
        _log.warning("jobs of earlier runs are not looked for: %s", error)


def _jobs(runs: list[str]) -> dict[str, str]:
    """Return what the runs' jobs that have not ended are for, by id."""
    lines = asked("squeue", "--noheader", "--me", f"--name={','.join(runs)}", "--format=%A|%k").splitlines()
    return dict(line.split("|", 1) for line in lines)
