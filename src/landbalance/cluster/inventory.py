"""What Slurm says of its nodes and partitions, read from `scontrol` and `sinfo`."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from landbalance.errors import UserError

_GONE = ("*", "DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "INVAL", "FUTURE", "UNKNOWN")
_SECONDS = 30


@dataclass(frozen=True)
class SlurmNode:
    """A node of the cluster.

    Attributes
    ----------
    state : str
        Slurm's word for it, e.g. ``IDLE`` or ``DOWN+NOT_RESPONDING``.
    gpus : int
        How many GPUs its gres has, of any type.
    """

    name: str
    address: str
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gres: str
    gpus: int
    cpus: int
    memory_mb: int
    state: str

    @property
    def available(self) -> bool:
        """Whether jobs run on it, now or after those that do."""
        state = self.state.replace("POWERED_DOWN", "").replace("POWERING_DOWN", "")  # such a node is started on demand
        return not any(word in state for word in _GONE)


@dataclass(frozen=True)
class Partition:
    """A partition; `minutes` is its time limit, None when there is none."""

    name: str
    default: bool
    minutes: int | None


def asked(*command: str) -> str:
    """Return what a command of Slurm prints.

    Raises
    ------
    UserError
        When the command is not there, fails or does not answer.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except FileNotFoundError as error:
        raise UserError(
            f"{command[0]}: no such command. Run on a login node of a Slurm cluster, or take a cluster description "
            "without `slurm` to work on this machine."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{command[0]} did not answer within {_SECONDS} s: is Slurm's controller up?") from error
    if done.returncode:
        raise UserError(f"{' '.join(command)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def slurm_nodes(names: Sequence[str] = ()) -> list[SlurmNode]:
    """Return the nodes called `names`, or all, in Slurm's order."""
    lines = asked("scontrol", "--oneliner", "show", "node", *([",".join(names)] if names else [])).splitlines()
    return [node_of(line) for line in lines if line.startswith("NodeName=")]


def node_of(line: str) -> SlurmNode:
    """Return the node that a line of ``scontrol --oneliner show node`` tells of."""
    found = _fields(line)
    gres = found.get("Gres", "")
    return SlurmNode(
        name=found["NodeName"],
        address=found.get("NodeAddr", found["NodeName"]),
        partitions=_words(found.get("Partitions", "")),
        features=_words(found.get("AvailableFeatures", "")),
        gres="" if gres == "(null)" else gres,
        gpus=gpu_count(gres),
        cpus=int(found.get("CPUTot", 1)),
        memory_mb=int(found.get("RealMemory", 0)),
        state=found.get("State", "UNKNOWN"),
    )


def gpu_counts(gres: str) -> list[int]:
    """Return the number of GPUs of each sort in a gres, e.g. 2 and 1 in ``gpu:a100:2(S:0),gpu:v100:1``."""
    parts = [part.split("(")[0].split(":") for part in re.split(r",(?![^(]*\))", gres)]
    return [int(part[-1]) if part[-1].isdigit() else 1 for part in parts if part[0] in ("gpu", "gres/gpu")]


def gpu_count(gres: str) -> int:
    """Return the number of GPUs in a gres."""
    return sum(gpu_counts(gres))


def slurm_partitions() -> list[Partition]:
    """Return all partitions."""
    lines = asked("scontrol", "--oneliner", "show", "partition").splitlines()
    return [partition_of(line) for line in lines if line.startswith("PartitionName=")]


def partition_of(line: str) -> Partition:
    """Return the partition that a line of ``scontrol --oneliner show partition`` tells of."""
    found = _fields(line)
    return Partition(
        found["PartitionName"], found.get("Default") == "YES", minutes_of(found.get("MaxTime", "UNLIMITED"))
    )


def minutes_of(text: str) -> int | None:
    """Return the minutes of a time limit as Slurm writes it, ``[days-]hours:minutes:seconds``; None for no limit."""
    if text in ("UNLIMITED", "INFINITE", "NONE", "n/a"):
        return None
    days, _, clock = text.rpartition("-")
    hours, minutes, _seconds = ([0, 0, 0] + [int(part) for part in clock.split(":")])[-3:]
    return (int(days or 0) * 24 + hours) * 60 + minutes


def host_names(listed: str) -> list[str]:
    """Return the nodes of a list as Slurm writes it, e.g. of ``slow[1-2]``."""
    return asked("scontrol", "show", "hostnames", listed).split()


def has_features(constraint: str | None, features: Sequence[str]) -> bool:
    """Whether a node with `features` fulfils a constraint of names, ``&`` and ``|``."""
    if constraint is None:
        return True
    return any(all(name.strip() in features for name in part.split("&")) for part in constraint.split("|"))


def _fields(line: str) -> dict[str, str]:
    """Return the ``Key=value`` pairs of a line; a value may hold spaces (the reason why a node is down)."""
    return {match[1]: match[2].strip() for match in re.finditer(r"(\w+)=(.*?)(?=\s+[A-Za-z:/]+=|$)", line)}


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word and word != "(null)")
