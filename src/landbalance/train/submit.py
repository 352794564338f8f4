"""Outside Slurm: submit the training as one job over all nodes of its plan, follow it, and say how it ended.

Snakemake's own plugin is not used for this one stage, since it knows no heterogeneous jobs: with `squeue` it would
wait for them for ever. A submission of our own also finds its job again after Snakemake was killed, goes on where a
time limit or a preemption ended a job, asks for fewer nodes when some are gone, and names node and cause.
"""

import hashlib
import logging
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from landbalance.cluster import Cluster
from landbalance.cluster.inventory import (
    SlurmNode,
    asked,
    has_features,
    host_names,
    slurm_nodes,
    slurm_partitions,
)
from landbalance.cluster.request import Component, batch_script, requested
from landbalance.distributed.launch import STOPPED
from landbalance.errors import UserError
from landbalance.files import write_text
from landbalance.plans import Plan
from landbalance.train.allocation import JOB, description
from landbalance.train.jobs import JobState, cause, job_state, with_memory

_log = logging.getLogger(__name__)

_POLL_SECONDS = (1.0, 10.0)
"""How long to wait between two questions to Slurm: soon after the job said something, later while it says nothing."""


@dataclass(frozen=True)
class Training:
    """What to train.

    Attributes
    ----------
    folder : Path
        The experiment's folder, on a file system that all nodes share.
    command : sequence of str
        The command that leads the job, and starts workers, on the nodes.
    identity : str
        All that decides the model, as text: a job with another one is not followed.
    """

    name: str
    folder: Path
    command: Sequence[str]
    identity: str

    @property
    def job_name(self) -> str:
        """Return a name with folder and experiment in it, so that the job is found by whoever comes after this one."""
        return f"landbalance-{self.name}-{_digest(str(self.folder.resolve()))}"

    def log(self, job: str) -> Path:
        """Return where a job writes."""
        return self.folder / f"slurm-{job}.log"


def train_on_slurm(training: Training, plan: Plan, cluster: Cluster, attempt: int) -> None:
    """Train on nodes that Slurm gives; return when the model is there.

    Parameters
    ----------
    attempt : int
        Which try it is; more memory and time are asked for with each.

    Raises
    ------
    UserError
        When the job cannot be submitted or fails; the message names job, nodes and cause.
    """
    folder = training.folder
    folder.mkdir(parents=True, exist_ok=True)
    comment = _digest(shlex.join(training.command), plan.model_dump_json(), training.identity)
    wanted = requested(plan, cluster, attempt, slurm_partitions())
    with _following(folder) as still_mine:
        while True:
            checkpoint, model = _progress(folder), _written(folder)
            job = _existing(training.job_name, comment)
            components = wanted
            if job is None:
                components = _at_hand(wanted)
                if not components:
                    raise UserError(
                        "no node of the plan is available (`sinfo -N -l` shows why). Wait for them, or change the "
                        "cluster description."
                    )
                if components != wanted:
                    _log.warning(
                        "not all nodes are available (%s): training on those that are", _compared(components, wanted)
                    )
                job = _submitted(training, comment, components)
            state = _followed(job, training.log(job), components, still_mine)
            if state is None:
                _log.warning("job %s waited for nodes that are gone (%s), and is cancelled", job, _gone(components))
                continue
            # A job that Slurm has forgotten did its work only if the model is another than before.
            now = _written(folder)
            if now is not None and (state.state == "COMPLETED" or (not state.state and now != model)):
                training.log(job).unlink(missing_ok=True)
                return
            state = with_memory(state, training.log(job))
            stopped = state.state == "FAILED" and state.exit_status == STOPPED
            interrupted = stopped or state.state in ("TIMEOUT", "PREEMPTED", "NODE_FAIL")
            if interrupted and _progress(folder) != checkpoint:
                _log.warning("job %s %s; going on from its checkpoint in another job", job, cause(state))
                continue
            raise UserError(
                f"train {training.name}: job {job} {cause(state)}{_nodes_gone(state)}. Its messages stand above and "
                f"in {training.log(job)}; run again to go on from the last checkpoint."
            )


@contextmanager
def _following(folder: Path) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether this process is still the one that follows the training.

    The newest one is: what a killed Snakemake leaves behind may go on following, and must then do nothing more.
    """
    mark, mine = folder / "follower", f"{socket.gethostname()} {os.getpid()}"

    def still_mine() -> bool:
        try:
            return mark.read_text(encoding="utf-8") == mine
        except OSError:
            return True  # nobody else said anything

    write_text(mark, mine)
    try:
        yield still_mine
    finally:
        if still_mine():
            mark.unlink(missing_ok=True)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:10]


def _progress(folder: Path) -> str:
    """Return the name of the newest checkpoint, which tells how far the training has come."""
    return max((path.name for path in (folder / "checkpoints").glob("step-*.pt")), default="")


def _written(folder: Path) -> int | None:
    """Return when the model was written; None when there is none."""
    path = folder / "model.safetensors"
    return path.stat().st_mtime_ns if path.exists() else None


def _existing(job_name: str, wanted: str) -> str | None:
    """Return the id of a job of this training that is still there; one with other settings is ended first."""
    lines = asked("squeue", "--noheader", "--me", f"--name={job_name}", "--format=%A|%k|%T").splitlines()
    for job, comment, state in (line.split("|") for line in lines):
        if state == "COMPLETING" or JobState(state).ended:
            continue
        if comment == wanted:
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
    return found


def _nodes_are_gone(components: list[Component]) -> bool:
    """Whether some nodes that a job waits for are down or drained by now."""
    try:
        return _at_hand(components) != components
    except UserError:
        return False  # the controller is away, and that need not concern nodes


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


def _submitted(training: Training, comment: str, components: list[Component]) -> str:
    """Submit the job; return its id."""
    options: dict[str, str | Path] = {
        "job-name": training.job_name,
        "comment": comment,
        "output": training.log("%j").resolve(),
        "chdir": Path.cwd(),
    }
    call = f"export {JOB}={shlex.quote(description(components))}\nexec {shlex.join(training.command)}"
    script = training.folder / "job.sh"
    write_text(script, batch_script(components, options, call))
    job = asked("sbatch", "--parsable", "--export=ALL", str(script)).strip().split(";")[0]
    listed = ", ".join(
        f"{count} {kind}" for part in components for kind, count in zip(part.kinds, part.counts, strict=True)
    )
    _log.info("train %s: submitted as job %s on %s", training.name, job, listed)
    return job


def _followed(job: str, output: Path, components: list[Component], still_mine: Callable[[], bool]) -> JobState | None:
    """Show what the job writes until it ends; return how, or None when it waits for nodes that are gone."""
    shown, pause, state = 0, _POLL_SECONDS[0], JobState("PENDING")
    try:
        while True:
            if not still_mine():
                raise UserError(f"job {job} is followed by another process now; this one was left over, and ends.")
            found = job_state(job)
            if found.restarts > state.restarts:
                _log.warning("job %s was put back into the queue (preempted, or a node failed)", job)
            state = found
            shown = _relayed(output, shown)
            if state.ended:
                return state
            if state.state == "PENDING" and _nodes_are_gone(components):
                _cancelled(job)
                return None
            said_more = _says_more(output, shown, pause)
            pause = _POLL_SECONDS[0] if said_more else min(pause * 1.2, _POLL_SECONDS[1])
    except KeyboardInterrupt:
        _cancelled(job)
        _relayed(output, shown)
        raise


def _says_more(output: Path, shown: int, seconds: float) -> bool:
    """Wait for the job to write more than was shown, no longer than so many seconds; return whether it did."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_SECONDS[0]))
        if output.exists() and output.stat().st_size > shown:
            return True
    return False


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


def _cancelled(job: str) -> None:
    """End a job, and return when it is gone."""
    subprocess.run(["scancel", job], capture_output=True, check=False)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not job_state(job).ended:
        time.sleep(0.5)


def _nodes_gone(state: JobState) -> str:
    """Return which of the job's nodes are not up, for the message."""
    hosts = host_names(state.hosts) if state.hosts else []
    gone = [node for node in slurm_nodes(hosts) if not node.available] if hosts else []
    return "; " + ", ".join(f"{node.name} is {node.state.lower()}" for node in gone) if gone else ""
