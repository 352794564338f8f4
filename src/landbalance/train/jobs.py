"""What Slurm says of a job, and what that means for people."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from landbalance.cluster.inventory import asked, minutes_of
from landbalance.distributed.launch import STOPPED
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

_MEMORY = re.compile(r"slurmstepd(?:-(\S+))?: error: .*(?:exceeded memory limit|oom[-_ ]?kill)", re.IGNORECASE)
_CONTROLLER_SECONDS = 900.0
"""How long Slurm's controller may be away, …"""
_RETRY_SECONDS = 5.0
"""… and how often it is asked meanwhile."""
_ENDED = (
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
)


@dataclass(frozen=True)
class JobState:
    """What Slurm says of a job; `state` is empty when it knows the job no more."""

    state: str
    reason: str = ""
    hosts: str = ""
    restarts: int = 0
    exit_status: int = 0
    minutes: int = 0

    @property
    def ended(self) -> bool:
        """Whether the job will not run again."""
        return self.state in ("", *_ENDED)


def job_state(job: str) -> JobState:
    """Return what Slurm says of a job; its controller may be restarted meanwhile."""
    deadline = time.monotonic() + _CONTROLLER_SECONDS
    told = False
    while True:
        try:
            lines = asked("scontrol", "--oneliner", "show", "job", job).splitlines()
        except UserError as error:
            if "Invalid job id" in str(error):
                return JobState("")
            if time.monotonic() > deadline:
                raise
            if not told:
                _log.warning("Slurm's controller does not answer (%s); trying for %g s", error, _CONTROLLER_SECONDS)
                told = True
            time.sleep(_RETRY_SECONDS)
            continue
        return state_of(lines)


def state_of(lines: Sequence[str]) -> JobState:
    """Return the state of a job from its line, or its components' lines, of which the first leads."""
    parts = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines if line.startswith("JobId=")]
    first = parts[0]
    hosts = ",".join(part["NodeList"] for part in parts if part.get("NodeList", "(null)") not in ("", "(null)"))
    states = {part["JobState"] for part in parts}
    # A component that lost its node ends the others as cancelled.
    state = next((word for word in ("NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT") if word in states), first["JobState"])
    return JobState(
        state=state,
        reason=first.get("Reason", ""),
        hosts=hosts,
        restarts=int(first.get("Restarts", 0)),
        exit_status=int(first.get("ExitCode", "0:0").split(":")[0]),
        minutes=minutes_of(first.get("RunTime", "0")) or 0,
    )


def with_memory(state: JobState, log: Path) -> JobState:
    """Return the state with the cause and the nodes that stand in the job's log alone, when it ran out of memory."""
    if state.state != "FAILED" or not log.exists():
        return state
    hosts = {host or state.hosts for host in _MEMORY.findall(log.read_text(errors="replace"))}
    return replace(state, state="OUT_OF_MEMORY", hosts=",".join(sorted(hosts))) if hosts else state


def cause(state: JobState) -> str:
    """Return what happened to a job and where, to follow its name."""
    where = f" on {state.hosts}" if state.hosts else ""
    match state.state:
        case "TIMEOUT":
            return f"reached its time limit after {state.minutes} minutes{where} (`minutes` in the cluster description)"
        case "OUT_OF_MEMORY":
            return f"ran out of memory{where} (`memory_mb` in the cluster description)"
        case "NODE_FAIL" | "BOOT_FAIL":
            return f"lost a node of {state.hosts}"
        case "PREEMPTED":
            return f"was preempted{where}"
        case "CANCELLED":
            return f"was cancelled{where}"
        case "":
            return "is not known to Slurm any more, and left no model"
        case _ if state.exit_status == STOPPED:
            return f"was asked to stop{where}, and wrote a checkpoint"
        case _:
            return f"failed{where}"
