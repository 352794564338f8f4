"""A first draft of a cluster description, from what Slurm says of its nodes."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from landbalance.cluster.inventory import Partition, SlurmNode, gpu_counts
from landbalance.errors import UserError

_HEAD = """\
# A draft, made from what Slurm says of its nodes. Look it over:
# - take out kinds of nodes that shall not train, lower `count` to what you may use at a time,
# - add `account: …` and `qos: …` under `slurm` where the site wants them,
# - `landbalance cluster --check` says what does not fit. Every key is described in docs/configuration.md.
"""
_MINUTES = 240
_DAEMON_MB = 500


@dataclass(frozen=True)
class _Kind:
    """What makes nodes alike."""

    features: tuple[str, ...]
    gpus: int
    gres: str
    cpus: int
    memory_mb: int
    partitions: tuple[str, ...]


def draft(nodes: Sequence[SlurmNode], partitions: Sequence[Partition]) -> str:
    """Return the text of a cluster description with a kind for each sort of nodes, the most capable first.

    GPUs become workers of their own, each sort with an entry, and a CPU worker beside them on the cores that are left
    when each GPU process has one; a node without GPUs gets one worker with all its cores.

    Raises
    ------
    UserError
        When no node is available.
    """
    available = [node for node in nodes if node.available]
    if not available:
        raise UserError("Slurm has no node that is up (`sinfo -N -l` shows why).")
    counts = Counter(_kind(node) for node in available)
    ordered = sorted(counts, key=lambda kind: (-kind.gpus, -kind.cpus, kind.features))
    names = _names(ordered)
    described = [
        _described(name, kind, counts[kind], ordered, partitions) for name, kind in zip(names, ordered, strict=True)
    ]
    body = yaml.safe_dump({"nodes": described}, sort_keys=False, default_flow_style=None, width=110)
    return _HEAD + body


def _kind(node: SlurmNode) -> _Kind:
    gres = re.sub(r"\([^)]*\)", "", node.gres) if node.gpus else ""
    return _Kind(node.features, node.gpus, gres, node.cpus, node.memory_mb, node.partitions)


def _names(kinds: Sequence[_Kind]) -> list[str]:
    """Return a name for each kind: a feature that no other has, or what it is."""
    names: list[str] = []
    for kind in kinds:
        own = [feature for feature in kind.features if sum(feature in other.features for other in kinds) == 1]
        name = "".join(letter if letter.isalnum() else "-" for letter in (own or ["gpu" if kind.gpus else "cpu"])[0])
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def _described(
    name: str, kind: _Kind, count: int, kinds: Sequence[_Kind], partitions: Sequence[Partition]
) -> dict[str, Any]:
    workers: list[dict[str, Any]] = [{"device": "cuda", "count": count} for count in gpu_counts(kind.gres)]
    if (threads := kind.cpus - kind.gpus) > 0:
        workers.append({"device": "cpu", "threads": threads})
    partition = _partition(kind, partitions)
    slurm: dict[str, Any] = {}
    if partition is not None and not partition.default:
        slurm["partition"] = partition.name
    if constraint := _constraint(kind, kinds):
        slurm["constraint"] = constraint
    if kind.gpus:
        slurm["gres"] = f"gpu:{kind.gpus}"
    limit = partition.minutes if partition is not None else None
    slurm["minutes"] = min(_MINUTES, limit) if limit else _MINUTES
    slurm["memory_mb"] = max(kind.memory_mb - _DAEMON_MB, 1)
    return {"name": name, "count": count, "workers": workers, "slurm": slurm}


def _partition(kind: _Kind, partitions: Sequence[Partition]) -> Partition | None:
    """Return the default partition if the nodes are in it, or else the one with the longest time limit."""
    mine = [partition for partition in partitions if partition.name in kind.partitions]
    return max(mine, key=lambda item: (item.default, item.minutes is None, item.minutes or 0), default=None)


def _constraint(kind: _Kind, kinds: Sequence[_Kind]) -> str | None:
    """Return features that tell this kind from the others, as few as do."""
    others = [set(other.features) for other in kinds if other != kind]
    own = [feature for feature in kind.features if not any(feature in features for features in others)]
    if own:
        return own[0]
    return "&".join(kind.features) or None
