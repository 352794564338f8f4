"""Inside a Slurm job: the first process leads, and starts one on each node, which starts the workers there.

Slurm starts a process per node, not per worker: nodes may then have different numbers of workers in any kind of
allocation, and how a worker ended is told by the process beside it, with its signal or exit status.
"""

import json
import logging
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from landbalance.cluster import Cluster
from landbalance.cluster.inventory import SlurmNode, has_features, host_names, slurm_nodes
from landbalance.cluster.request import Component, used_nodes
from landbalance.config.base import Settings
from landbalance.distributed.launch import (
    STOPPED,
    LocalWorker,
    LostContactError,
    StoppedWorkersError,
    run_workers,
)
from landbalance.distributed.place import Meeting
from landbalance.errors import UserError
from landbalance.files import read_json, write_error, write_json
from landbalance.plans import Plan, PlannedWorker, gpu_number

_log = logging.getLogger(__name__)

JOB = "LANDBALANCE_JOB"
"""Environment variable: this process leads a Slurm job; its value tells the kinds of nodes of each component."""
NODE = "LANDBALANCE_NODE_OF"
"""Environment variable: this process starts the workers of a node; its value is the file of the `Assignment`."""

TILES = "LANDBALANCE_TILES"
"""Environment variable: where this node's copy of the tiles lies, when it has one."""

_PATIENCE_SECONDS = 15.0
"""How long the leader waits for word from the other nodes after the first one failed."""
_WORD = "landbalance-node"


class Assignment(Settings):
    """Which worker of the plan runs on which host; `hosts`, and the `gpus` that they were measured on, are by rank."""

    plan: Plan
    hosts: list[str]
    address: str
    port: int
    interfaces: dict[str, str | None]
    scratch: dict[str, str | None]
    gpus: list[str | None]

    @classmethod
    def read(cls, path: Path) -> "Assignment":
        """Return the assignment that the leader wrote; a shared file system may take a moment to show it."""
        for _ in range(60):
            if path.exists():
                break
            time.sleep(1)
        return cls.model_validate(read_json(path))


def description(components: Sequence[Component]) -> str:
    """Return the value of `JOB`."""
    return json.dumps([{"kinds": part.kinds, "cpus": part.cpus} for part in components])


@dataclass(frozen=True)
class Site:
    """The nodes to train on, how to plan for others, and which try this is.

    Attributes
    ----------
    gpus : mapping
        What each worker of a kind of node was measured on, in the node's order: the name of a GPU, or None.
    """

    cluster: Cluster
    replan: Callable[[Cluster], Plan]
    gpus: Mapping[str, list[str | None]]
    attempt: int = 1


def lead(plan: Plan, site: Site, folder: Path, command: Sequence[str]) -> int:
    """Train on the nodes of the Slurm job that this process is in; return the exit status.

    Parameters
    ----------
    plan : Plan
        What was planned; where the nodes are others than it is for, it is made anew.
    site : Site
        The nodes that there may be.
    folder : Path
        The experiment's folder, which all nodes share.
    command : sequence of str
        The command that starts one worker, and here, with `NODE` set, all workers of a node.

    Raises
    ------
    UserError
        When the nodes do not fit, or a worker or a node failed; the message names it.
    """
    # Slurm ends a job with SIGTERM to all its processes: the leader stays, to tell how the others ended.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    groups = json.loads(os.environ[JOB])
    kinds = _kinds_of_hosts(site.cluster, groups, os.environ)
    plan = _fitting_plan(plan, site.cluster, kinds, site.replan)
    nodes = {node.name: node for node in slurm_nodes(list(kinds))}
    path = folder / f"job-{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_RESTART_COUNT', '0')}.json"
    assignment = _assigned(plan, site, kinds, nodes)
    write_json(path, assignment.model_dump(mode="json"))
    for host in dict.fromkeys(assignment.hosts):
        titles = [f"{w.share} on {w.title}" for w, h in zip(plan.used, assignment.hosts, strict=True) if h == host]
        _log.info("%s (%s): %s", host, kinds[host], "; ".join(titles))
    try:
        return _judged(_run_nodes(groups, command, path, sorted(set(assignment.hosts))))
    finally:
        path.unlink(missing_ok=True)


def start_workers(command: Sequence[str], tiles: Path) -> int:
    """Start the workers of this node, and tell the leader how they ended; return the exit status, which is 0.

    `tiles` is copied to the node's own disk before, where the cluster description names a folder there.
    """
    assignment = Assignment.read(Path(os.environ[NODE]))
    host = os.environ["SLURMD_NODENAME"]
    ranks = [rank for rank, where in enumerate(assignment.hosts) if where == host]
    if not ranks:
        return 0
    every = assignment.plan.workers
    used = [assignment.plan.used[rank] for rank in ranks]
    mine = [LocalWorker(worker.title, worker.threads, gpu_number(every, worker)) for worker in used]
    meeting = Meeting(ranks[0], len(assignment.hosts), assignment.address, assignment.port, assignment.interfaces[host])
    word, message = "done", ""
    try:
        with _staged(tiles, assignment.scratch[host]):
            run_workers(command, mine, meeting=meeting)
    except StoppedWorkersError as error:
        word, message = "stopped", str(error)
    except LostContactError as error:
        word, message = "lost", str(error)
    except (UserError, OSError) as error:
        word, message = "failed", str(error)
    sys.stdout.write(f"{_WORD} {host} {word} {' '.join(message.split())}\n")
    sys.stdout.flush()
    return 0


@contextmanager
def _staged(tiles: Path, scratch: str | None) -> Iterator[None]:
    """Have the tiles on the node's own disk inside the block, if `scratch` names a folder there."""
    if scratch is None:
        yield
        return
    folder = Path(os.path.expandvars(scratch)) / f"landbalance-{os.environ['SLURM_JOB_ID']}-{os.getpid()}"
    try:
        try:
            shutil.copytree(tiles, folder)
        except OSError as error:
            raise write_error(folder, error) from error
        _log.info("%s: tiles copied to %s", os.environ["SLURMD_NODENAME"], folder)
        os.environ[TILES] = str(folder)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def assigned(environment: Mapping[str, str]) -> Assignment | None:
    """Return what the leader of this worker's job settled, when it has one."""
    return Assignment.read(Path(environment[NODE])) if NODE in environment else None


def _kinds_of_hosts(
    cluster: Cluster, groups: Sequence[Mapping[str, list[str]]], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the kind of each allocated node: by component, and where that has several kinds, by feature."""
    found: dict[str, str] = {}
    for number, group in enumerate(groups):
        listed = environment.get(f"SLURM_JOB_NODELIST_HET_GROUP_{number}") or environment["SLURM_JOB_NODELIST"]
        hosts = host_names(listed)
        if len(group["kinds"]) == 1:
            found |= dict.fromkeys(hosts, group["kinds"][0])
            continue
        for node in slurm_nodes(hosts):
            found[node.name] = _kind_by_feature(cluster, group["kinds"], node)
    order = [node.name for node in cluster.nodes]
    return dict(sorted(found.items(), key=lambda item: (order.index(item[1]), item[0])))


def _kind_by_feature(cluster: Cluster, kinds: Sequence[str], node: SlurmNode) -> str:
    for kind in kinds:
        slurm = cluster.node(kind).slurm
        if slurm is not None and has_features(slurm.constraint, node.features):
            return kind
    raise UserError(
        f"Slurm gave the node {node.name}, whose features {', '.join(node.features) or '(none)'} fit no kind of node "
        f"in the cluster description ({', '.join(kinds)}). Correct `constraint` there."
    )


def _fitting_plan(plan: Plan, cluster: Cluster, kinds: Mapping[str, str], replan: Callable[[Cluster], Plan]) -> Plan:
    """Return the plan, or another one where fewer nodes are there than it is for."""
    there = {node.name: list(kinds.values()).count(node.name) for node in cluster.nodes}
    wanted = used_nodes(plan)
    if all(there.get(kind, 0) >= count for kind, count in wanted.items()):
        return plan
    missing = ", ".join(
        f"{there.get(kind, 0)} of {count} {kind}" for kind, count in wanted.items() if there.get(kind, 0) < count
    )
    _log.warning("the plan is for other nodes than are here (%s); planning anew from the profiles at hand", missing)
    nodes = [node.model_copy(update={"count": there[node.name]}) for node in cluster.nodes if there[node.name]]
    other = replan(Cluster(nodes=nodes))
    shares = ", ".join(f"{worker.share} on {worker.node}, {worker.title}" for worker in other.used)
    _log.info("new shares of %d samples: %s", other.batch_size, shares)
    return other


def _assigned(plan: Plan, site: Site, kinds: Mapping[str, str], nodes: Mapping[str, SlurmNode]) -> Assignment:
    """Return which host each worker of the plan runs on: the plan's nodes of a kind take the hosts of it in turn."""
    hosts = []
    for worker in plan.used:
        of_kind = [host for host, kind in kinds.items() if kind == worker.node]
        used = sorted({other.node_index for other in plan.used if other.node == worker.node})
        hosts.append(of_kind[used.index(worker.node_index)])
    for host in dict.fromkeys(hosts):
        gpus = sum(worker.device == "cuda" for worker, where in zip(plan.used, hosts, strict=True) if where == host)
        if gpus > nodes[host].gpus:
            raise UserError(
                f"the plan has {gpus} GPU workers on {host}, but Slurm says that it has {nodes[host].gpus} GPUs. "
                "Correct the cluster description."
            )
    address = nodes[hosts[0]].address
    loopback = address.startswith("127.")
    return Assignment(
        plan=plan,
        hosts=hosts,
        address=address,
        port=20000 + (int(os.environ["SLURM_JOB_ID"]) * 7 + int(os.environ.get("SLURM_RESTART_COUNT", 0))) % 12000,
        scratch={host: getattr(site.cluster.node(kinds[host]).slurm, "scratch", None) for host in set(hosts)},
        gpus=[_measured_gpu(site, worker) for worker in plan.used],
        interfaces={host: "lo" if loopback else site.cluster.node(kinds[host]).interface for host in set(hosts)},
    )


def _measured_gpu(site: Site, worker: PlannedWorker) -> str | None:
    """Return the name of the GPU that a worker was measured on; None for the CPU, or where there is no profile."""
    names = site.gpus.get(worker.node, [])
    return names[worker.local_index] if worker.local_index < len(names) else None


def _run_nodes(
    groups: Sequence[Mapping[str, int]], command: Sequence[str], path: Path, hosts: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Run the workers of all nodes to their end; return each node's last word and message, ``silent`` if none came."""
    call = ["srun"]
    for number, group in enumerate(groups):
        call += [":"] if number else []
        call += [f"--het-group={number}"] if len(groups) > 1 else []
        call += [f"--cpus-per-task={group['cpus']}", "--kill-on-bad-exit=0", "--wait=0", *command]
    environment = {key: value for key, value in os.environ.items() if key != JOB} | {NODE: str(path)}
    step = subprocess.Popen(call, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    words: dict[str, tuple[str, str]] = {}
    deadline = None
    for line in _lines(step):
        if line.startswith(_WORD):
            _, host, word, message = f"{line} ".split(" ", 3)
            words[host] = (word, message.strip())
            if word != "done" and deadline is None:
                deadline = time.monotonic() + _PATIENCE_SECONDS
        if set(words) >= set(hosts) or (deadline is not None and time.monotonic() > deadline):
            break
    try:
        step.wait(5)
    except subprocess.TimeoutExpired:
        step.kill()
    return {host: words.get(host, ("silent", "")) for host in hosts}


def _lines(step: "subprocess.Popen[str]") -> Iterator[str]:
    """Yield the lines that a process writes, and an empty one each second, until it ends."""
    found: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert step.stdout is not None
        for line in step.stdout:
            found.put(line.rstrip("\n"))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = found.get(timeout=1)
        except queue.Empty:
            line = ""
        if line is None:
            return
        yield line


def _judged(words: Mapping[str, tuple[str, str]]) -> int:
    """Return the exit status, or raise the message that names who is to blame."""
    by_word = {word: [host for host in words if words[host][0] == word] for word in ("failed", "silent", "lost")}
    told = [f"{host}: {words[host][1]}" for host in by_word["failed"]]
    if by_word["silent"]:
        told.append(f"no word from {', '.join(by_word['silent'])}: it died or hangs (`sinfo -N -l` shows its state)")
    if told or by_word["lost"]:
        told = told or [f"{host}: {words[host][1]}" for host in by_word["lost"]]
        raise UserError(f"{'; '.join(told).removesuffix('.')}. Run again to go on from the last checkpoint.")
    return STOPPED if any(word == "stopped" for word, _ in words.values()) else 0
