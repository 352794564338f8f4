"""Outside Slurm: submit the training as one job over all nodes of its plan, follow it, and say how it ended.

Snakemake's own plugin is not used for this one stage, since it knows no heterogeneous jobs: with `squeue` it would
wait for them for ever. A submission of our own also finds its job again after Snakemake was killed, goes on where a
time limit or a preemption ended a job, asks for fewer nodes when some are gone, and names node and cause.
"""

import hashlib
import logging
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from landbalance.cluster import Cluster
from landbalance.cluster.inventory import SlurmNode, asked, has_features, host_names, slurm_nodes, slurm_partitions
from landbalance.cluster.request import Component, batch_script, requested
from landbalance.distributed.launch import STOPPED
from landbalance.errors import UserError
from landbalance.files import write_text
from landbalance.plans import Plan
from landbalance.train.allocation import JOB, description

_log = logging.getLogger(__name__)

_POLL_SECONDS = (1.0, 10.0)
_MEMORY = re.compile(r"slurmstepd(?:-(\S+))?: error: .*(?:exceeded memory limit|oom[-_ ]?kill)", re.IGNORECASE)
_CONTROLLER_SECONDS = 900.0
"""How long Slurm's controller may be away."""
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


def train_on_slurm(name: str, plan: Plan, cluster: Cluster, folder: Path, command: Sequence[str], attempt: int) -> None:
    """Train on nodes that Slurm gives; return when the model is there.

    Parameters
    ----------
    folder : Path
        The experiment's folder, on a file system that all nodes share.
    command : sequence of str
        The command that leads the job, and starts workers, on the nodes.
    attempt : int
        Which try it is; more memory is asked for with each.

    Raises
    ------
    UserError
        When the job cannot be submitted or fails; the message names job, nodes and cause.
    """
    folder.mkdir(parents=True, exist_ok=True)
    identity = _digest(" ".join(command), plan.model_dump_json())
    # Folder and experiment are in the name, so that the job is found again by whoever comes after this process.
    job_name = f"landbalance-{name}-{_digest(str(folder.resolve()))}"
    wanted = requested(plan, cluster, attempt)
    while True:
        before = _progress(folder)
        job = _existing(job_name, identity)
        components = wanted
        if job is None:
            components = _at_hand(wanted)
            if components != wanted:
                _log.warning(
                    "not all nodes are available (%s): training on those that are", _compared(components, wanted)
                )
            job = _submitted(name, job_name, identity, components, folder, command)
        state = _followed(job, folder, components)
        if state is None:
            _log.warning("job %s waited for nodes that are gone (%s), and is cancelled", job, _gone(components))
            continue
        if (folder / "model.safetensors").exists() and state.state in ("COMPLETED", ""):
            (folder / f"slurm-{job}.log").unlink(missing_ok=True)
            return
        state = _with_memory(state, folder / f"slurm-{job}.log")
        stopped = state.state == "FAILED" and state.exit_status == STOPPED
        interrupted = stopped or state.state in ("TIMEOUT", "PREEMPTED", "NODE_FAIL")
        if interrupted and _progress(folder) != before:
            _log.warning("job %s %s; going on from its checkpoint in another job", job, _cause(state))
            continue
        raise UserError(
            f"train {name}: job {job} {_cause(state)}{_nodes_gone(state)}. Its messages stand above and in "
            f"{folder / f'slurm-{job}.log'}; run again to go on from the last checkpoint."
        )


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:10]


def _progress(folder: Path) -> str:
    """Return the name of the newest checkpoint, which tells how far the training has come."""
    return max((path.name for path in (folder / "checkpoints").glob("step-*.pt")), default="")


def _existing(job_name: str, identity: str) -> str | None:
    """Return the id of a job of this training that is still there; one with other settings is ended first."""
    lines = asked("squeue", "--noheader", "--me", f"--name={job_name}", "--format=%A|%k|%T").splitlines()
    for job, comment, state in (line.split("|") for line in lines):
        if state in ("COMPLETING", *_ENDED):
            continue
        if comment == identity:
            _log.info("job %s of this training is there already (%s): following it", job, state.lower())
            return job
        _log.warning("job %s trains this experiment with other settings, and is cancelled", job)
        _cancelled(job)
    return None


def _at_hand(components: list[Component]) -> list[Component]:
    """Return the components without the nodes that are down or drained."""
    nodes = slurm_nodes()
    default = next((partition.name for partition in slurm_partitions() if partition.default), "")
    found = []
    for part in components:
        counts = tuple(
            min(count, _available(nodes, part, constraint, default))
            for count, constraint in zip(part.counts, _constraints(part), strict=True)
        )
        if counts == part.counts:
            found.append(part)
        elif any(counts):
            found.append(_reduced(part, counts))
    if not found:
        raise UserError(
            "no node of the plan is available (`sinfo -N -l` shows why). Wait for them, or change the cluster "
            "description."
        )
    return found


def _compared(components: list[Component], wanted: list[Component]) -> str:
    """Return how many of the nodes are there, e.g. ``1 of 1 quick, 1 of 2 old``."""
    there = {kind: count for part in components for kind, count in zip(part.kinds, part.counts, strict=True)}
    return ", ".join(
        f"{there.get(kind, 0)} of {count} {kind}"
        for part in wanted
        for kind, count in zip(part.kinds, part.counts, strict=True)
    )


def _gone(components: list[Component]) -> str:
    """Return which nodes that a job may want are not up."""
    constraints = [constraint for part in components for constraint in _constraints(part)]
    gone = [node for node in slurm_nodes() if not node.available]
    wanted = [node for node in gone if any(has_features(constraint, node.features) for constraint in constraints)]
    return ", ".join(f"{node.name} is {node.state.lower()}" for node in wanted)


def _constraints(part: Component) -> list[str | None]:
    """Return the constraint of each kind in a component."""
    if len(part.kinds) == 1:
        return [part.constraint]
    return [item.split("*")[0] for item in (part.constraint or "").strip("[]").split("&")]


def _available(nodes: Sequence[SlurmNode], part: Component, constraint: str | None, default: str) -> int:
    partitions = (part.slurm.partition or default).split(",")
    return sum(
        node.available and has_features(constraint, node.features) and bool(set(partitions) & set(node.partitions))
        for node in nodes
    )


def _reduced(part: Component, counts: Sequence[int]) -> Component:
    kept = [
        (kind, count, constraint)
        for kind, count, constraint in zip(part.kinds, counts, _constraints(part), strict=True)
        if count
    ]
    constraint = kept[0][2]
    if len(kept) > 1:
        constraint = f"[{'&'.join(f'{name}*{count}' for _, count, name in kept)}]"
    return replace(part, kinds=tuple(k for k, _, _ in kept), counts=tuple(c for _, c, _ in kept), constraint=constraint)


def _submitted(
    name: str, job_name: str, identity: str, components: list[Component], folder: Path, command: Sequence[str]
) -> str:
    """Submit the job; return its id."""
    options = {
        "job-name": job_name,
        "comment": identity,
        "output": f"{folder.resolve()}/slurm-%j.log",
        "chdir": str(Path.cwd()),
    }
    call = f"export {JOB}={shlex.quote(description(components))}\nexec {shlex.join(command)}"
    script = folder / "job.sh"
    write_text(script, batch_script(components, options, call))
    job = asked("sbatch", "--parsable", "--export=ALL", str(script)).strip().split(";")[0]
    listed = ", ".join(
        f"{count} {kind}" for part in components for kind, count in zip(part.kinds, part.counts, strict=True)
    )
    _log.info("train %s: submitted as job %s on %s", name, job, listed)
    return job


def _followed(job: str, folder: Path, components: list[Component]) -> JobState | None:
    """Show what the job writes until it ends; return how, or None when it waits for nodes that are gone."""
    output, shown, pause, state = folder / f"slurm-{job}.log", 0, _POLL_SECONDS[0], JobState("PENDING")
    try:
        while True:
            found = job_state(job)
            if found.restarts > state.restarts:
                _log.warning("job %s was put back into the queue (preempted, or a node failed)", job)
            state = found
            shown = _relayed(output, shown)
            if state.ended:
                return state
            if state.state == "PENDING" and _at_hand(components) != components:
                _cancelled(job)
                return None
            time.sleep(pause)
            pause = min(pause * 1.2, _POLL_SECONDS[1])
    except KeyboardInterrupt:
        _cancelled(job)
        _relayed(output, shown)
        raise


def _relayed(output: Path, shown: int) -> int:
    """Write what is new in the job's output to ours; return how much of it was shown so far."""
    if not output.exists():
        return shown
    with output.open("rb") as file:
        file.seek(shown)
        new = file.read()
    sys.stderr.write(new.decode(errors="replace"))
    sys.stderr.flush()
    return shown + len(new)


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
            time.sleep(_POLL_SECONDS[1] / 2)
            continue
        return _state_of(lines)


def _state_of(lines: Sequence[str]) -> JobState:
    """Return the state of a job from its line, or its components' lines, of which the first leads."""
    parts = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines if line.startswith("JobId=")]
    first = parts[0]
    hosts = ",".join(part["NodeList"] for part in parts if part.get("NodeList", "(null)") not in ("", "(null)"))
    states = {part["JobState"] for part in parts}
    # A component that lost its node ends the others as cancelled.
    state = next((word for word in ("NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT") if word in states), first["JobState"])
    hours, minutes, _ = ([0, 0, 0] + [int(part) for part in re.findall(r"\d+", first.get("RunTime", "0"))])[-3:]
    return JobState(
        state=state,
        reason=first.get("Reason", ""),
        hosts=hosts,
        restarts=int(first.get("Restarts", 0)),
        exit_status=int(first.get("ExitCode", "0:0").split(":")[0]),
        minutes=hours * 60 + minutes,
    )


def _cancelled(job: str) -> None:
    """End a job, and return when it is gone."""
    subprocess.run(["scancel", job], capture_output=True, check=False)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not job_state(job).ended:
        time.sleep(0.5)


def _with_memory(state: JobState, log: Path) -> JobState:
    """Return the state with the cause and the nodes that stand in the job's log alone, when it ran out of memory."""
    if state.state != "FAILED" or not log.exists():
        return state
    hosts = {host or state.hosts for host in _MEMORY.findall(log.read_text(errors="replace"))}
    return replace(state, state="OUT_OF_MEMORY", hosts=",".join(sorted(hosts))) if hosts else state


def _cause(state: JobState) -> str:
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


def _nodes_gone(state: JobState) -> str:
    """Return which of the job's nodes are not up, for the message."""
    hosts = host_names(state.hosts) if state.hosts else []
    gone = [node for node in slurm_nodes(hosts) if not node.available] if hosts else []
    return "; " + ", ".join(f"{node.name} is {node.state.lower()}" for node in gone) if gone else ""
