"""A real Slurm cluster on this machine: a controller, and a slurmd per node, each with a speed of its own.

    python tests/slurm/slurm_cluster.py start FOLDER [--nodes fast1:fast:2:0 slow1:slow:1:25 …]
    python tests/slurm/slurm_cluster.py stop FOLDER

starts one by hand and ends it, by pid. Needs root, and Debian's packages slurmctld, slurmd and slurm-client. All
listens on the loopback address only. Each slurmd sits in a CPU cgroup of its own, which is the brake of a slow node and
the list of its processes, so that a node can die or hang as a whole.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_CONF = Path("/etc/slurm/slurm.conf")
_PERIOD_MICROSECONDS = 5000
_PORTS = range(17000, 18000, 20)


@dataclass(frozen=True)
class NodeSpec:
    """A node: its feature, and the share of a core that it has (percent; 0: no brake)."""

    name: str
    feature: str
    cpus: int = 2
    percent: int = 0
    memory: int = 8000
    gpus: int = 0


NODES = (
    NodeSpec("fast1", "fast", cpus=16, percent=150, memory=32000),
    NodeSpec("slow1", "slow", cpus=2, percent=25),
    NodeSpec("slow2", "slow", cpus=2, percent=25),
)
"""A fast and two slow nodes, which together take two cores; one thread has one at most."""


class SlurmCluster:
    """A cluster that lives in a folder; `start` and `stop` frame its life."""

    def __init__(
        self, folder: Path, nodes: Sequence[NodeSpec] = NODES, partitions: dict[str, list[str]] | None = None
    ) -> None:
        self.folder = folder.resolve()
        self.nodes = {node.name: node for node in nodes}
        self.partitions = partitions or {"all": list(self.nodes)}

    # --- life ---

    def start(self) -> "SlurmCluster":
        """Start the controller and all nodes; return when all are idle."""
        if os.geteuid() != 0:
            raise SystemExit("The Slurm tests start slurmctld and slurmd, and brake nodes: run them as root.")
        if missing := [name for name in ("slurmctld", "slurmd", "sbatch") if not _command(name)]:
            raise SystemExit(f"{', '.join(missing)} not found: apt-get install slurmctld slurmd slurm-client")
        if _CONF.exists() and not _CONF.is_symlink():
            raise SystemExit(f"{_CONF} is there: this machine belongs to a cluster, on which these tests do not run.")
        (self.folder / "state").mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(self._configuration())
        (self.folder / "gres.conf").write_text(self._gres())
        (self.folder / "cluster.json").write_text(
            json.dumps({"nodes": [asdict(node) for node in self.nodes.values()], "partitions": self.partitions})
        )
        # Inside a job, Snakemake's plugin takes SLURM_CONF away: the file must be where Slurm looks for it.
        _CONF.parent.mkdir(exist_ok=True)
        _CONF.unlink(missing_ok=True)
        _CONF.symlink_to(self.folder / "slurm.conf")
        self.start_controller()
        for name, node in self.nodes.items():
            self._group(name).mkdir(exist_ok=True)
            self.brake(name, node.percent)
            self.start_node(name)
        self.wait_idle()
        return self

    def stop(self) -> None:
        """End everything that this cluster started."""
        for name in self.nodes:
            self.go_on(name)
        for name in self.nodes:
            self.kill(name)
        for path in self.folder.glob("*.pid"):
            _end(int(path.read_text()))
            path.unlink()
        for name in self.nodes:
            self._remove_group(name)
        if _CONF.is_symlink() and Path(os.readlink(_CONF)) == self.folder / "slurm.conf":
            _CONF.unlink()

    def start_controller(self) -> None:
        """Start slurmctld, which goes on from the state it left behind."""
        self._daemon("slurmctld", [_command("slurmctld"), "-D"])

    def kill_controller(self) -> None:
        """Kill slurmctld; nodes and jobs go on."""
        path = self.folder / "slurmctld.pid"
        _end(int(path.read_text()), signal.SIGKILL)
        path.unlink()

    def start_node(self, name: str) -> None:
        """Start a node's slurmd in the node's cgroup."""
        group = self._group(name)
        enter = f'echo $$ > "{group}/cgroup.procs"; exec "{_command("slurmd")}" -D -N "{name}"'
        self._daemon(f"slurmd-{name}", ["/bin/sh", "-c", enter])

    def wait_idle(self, seconds: float = 60, names: Sequence[str] = ()) -> None:
        """Return when nodes are idle: the named ones, or all."""
        wanted = set(names or self.nodes)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines = self.run("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
            if wanted <= {line.split()[0] for line in lines if line.endswith(" idle")}:
                return
            time.sleep(0.2)
        raise RuntimeError(f"nodes are not idle after {seconds} s:\n" + self.run("sinfo", "-N", "-l"))

    # --- what can go wrong with a node ---

    def brake(self, name: str, percent: int) -> None:
        """Let all processes of a node have `percent` of one core together; 0 lifts the brake."""
        group, quota = self._group(name), _PERIOD_MICROSECONDS * percent // 100
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota or 'max'} {_PERIOD_MICROSECONDS}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota or -1))

    def processes(self, name: str) -> list[psutil.Process]:
        """Return all processes on a node: slurmd, and those of its jobs."""
        found = []
        if self._group(name).exists():
            for line in (self._group(name) / "cgroup.procs").read_text().split():
                if psutil.pid_exists(int(line)):
                    found.append(psutil.Process(int(line)))
        return found

    def kill(self, name: str) -> None:
        """Let a node die: its slurmd and all processes of its jobs."""
        for _ in range(50):
            processes = self.processes(name)
            if not processes:
                break
            for process in processes:
                _send(process.pid, signal.SIGKILL)
            time.sleep(0.05)
        (self.folder / f"slurmd-{name}.pid").unlink(missing_ok=True)

    def hang(self, name: str) -> None:
        """Stop all processes on a node, as on a machine that swaps to death."""
        for process in self.processes(name):
            _send(process.pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """End what `hang` began."""
        for process in self.processes(name):
            _send(process.pid, signal.SIGCONT)

    # --- Slurm ---

    def run(self, *command: str) -> str:
        """Return what a Slurm command says."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return (done.stdout + done.stderr).strip()

    def jobs(self) -> dict[str, str]:
        """Return the states of all jobs that are waiting, running or ending, by id."""
        lines = self.run("squeue", "-h", "-o", "%A %T", "-t", "PD,R,CG,S,RQ,CF").splitlines()
        return dict(line.split() for line in lines)

    def _group(self, name: str) -> Path:
        root = Path("/sys/fs/cgroup/cpu" if os.access("/sys/fs/cgroup/cpu/cgroup.procs", os.W_OK) else "/sys/fs/cgroup")
        return root / f"landbalance-{self.folder.name}-{name}"

    def _remove_group(self, name: str) -> None:
        """Remove a node's cgroup, which the last process that died may hold for a moment."""
        deadline = time.monotonic() + 10
        while self._group(name).exists():
            try:
                self._group(name).rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _daemon(self, name: str, command: Sequence[str | None]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env={**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")},
            )  # fmt: skip
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def _gres(self) -> str:
        """Return gres.conf: GPUs want character devices, and copies of /dev/null do."""
        lines = []
        for node in self.nodes.values():
            for number in range(node.gpus):
                path = self.folder / f"{node.name}-gpu{number}"
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
                lines.append(f"NodeName={node.name} Name=gpu Type=fake File={path}")
        return "\n".join(lines) + "\n"

    def _configuration(self) -> str:
        host, folder = socket.gethostname().split(".")[0], self.folder
        port = _free_ports(1 + len(self.nodes))
        nodes = [
            f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + 1 + number} "
            f"CPUs={node.cpus} RealMemory={node.memory} Feature={node.feature} State=UNKNOWN"
            + (f" Gres=gpu:fake:{node.gpus}" if node.gpus else "")
            for number, node in enumerate(self.nodes.values())
        ]
        partitions = [
            f"PartitionName={name} Nodes={','.join(members)} Default={'NO' if number else 'YES'} MaxTime=60 State=UP "
            f"PriorityTier={10 if name == 'urgent' else 1} PreemptMode={'OFF' if name == 'urgent' else 'REQUEUE'}"
            for number, (name, members) in enumerate(self.partitions.items())
        ]
        return "\n".join([
            "ClusterName=landbalance",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={port}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/none",
            "AuthInfo=cred_expire=10",  # so long a job waits that was put back into the queue: two minutes otherwise
            "CredType=cred/none",
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.own",
            f"SlurmdPidFile={folder}/slurmd-%n.own",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd-%n.log",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/linux",
            "JobAcctGatherFrequency=task=1",
            "JobAcctGatherParams=OverMemoryKill",
            "AccountingStorageType=accounting_storage/none",
            "SlurmdParameters=config_overrides",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU_Memory",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "GresTypes=gpu",
            "DefMemPerCPU=500",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_min_interval=0,sched_interval=5,bf_interval=2,batch_sched_delay=0,"
            "requeue_setup_env_fail",
            "ReturnToService=2",
            "SlurmctldTimeout=30",
            "SlurmdTimeout=15",
            "InactiveLimit=0",
            "KillWait=20",
            "MessageTimeout=10",
            "MinJobAge=3600",
            "OverTimeLimit=0",
            *nodes,
            *partitions,
        ]) + "\n"  # fmt: skip


def _free_ports(count: int) -> int:
    """Return the first of `count` ports in a row that nobody listens on."""
    for first in _PORTS:
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise SystemExit("no free ports for Slurm's daemons on this machine")


def left_behind(folder: Path) -> list[psutil.Process]:
    """Return processes that still work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def existing(folder: Path) -> SlurmCluster:
    """Return the cluster that was started in `folder`."""
    found = json.loads((folder / "cluster.json").read_text())
    return SlurmCluster(folder, [NodeSpec(**node) for node in found["nodes"]], found["partitions"])


def _command(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _end(pid: int, number: int = signal.SIGTERM) -> None:
    _send(pid, number)
    for wait in (5.0, 1.0):
        try:
            psutil.Process(pid).wait(wait)
            return
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            _send(pid, signal.SIGKILL)


def _main() -> None:
    parser = argparse.ArgumentParser(description="Start or stop a Slurm cluster on this machine.")
    parser.add_argument("what", choices=["start", "stop"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", nargs="+", default=[], help="NAME:FEATURE:CPUS:PERCENT of a core (0: no brake)")
    options = parser.parse_args()
    if options.what == "stop":
        existing(options.folder).stop()
        return
    parts = [word.split(":") for word in options.nodes]
    specs = [NodeSpec(name, feature, int(cpus), int(percent)) for name, feature, cpus, percent in parts] or NODES
    cluster = SlurmCluster(options.folder, specs).start()
    sys.stdout.write(cluster.run("sinfo", "-N", "-l") + "\n")


if __name__ == "__main__":
    _main()
