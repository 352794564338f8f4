"""Checkpoints: whole, checked, few; a training job goes on from the newest good one."""

import io
import logging
import re
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from landbalance.files import placed

_log = logging.getLogger(__name__)
_KEPT = 2
_NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.pt")


@dataclass
class Position:
    """How far a training job has come; the same for any number of workers.

    Attributes
    ----------
    epoch, step : int
        The next step to take: `step` counts within `epoch`, both from 0.
    loss, weight : float
        Sums over all workers and the steps of this epoch.
    seconds : float
        Time spent training so far, in all runs.
    resumed : int
        How often the job went on from a checkpoint.
    history, timing : list of dict
        Rows of ``history.parquet`` and ``timing.parquet``.
    changes : list of dict
        When shares moved while training, to which, and why.
    """

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    weight: float = 0.0
    seconds: float = 0.0
    resumed: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    timing: list[dict[str, float]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint file holds: the position, and the states of network, average and optimiser."""

    position: Position
    network: dict[str, Any]
    averaged: dict[str, Any] | None
    optimiser: dict[str, Any]


def save_checkpoint(folder: Path, identity: str, total_steps: int, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and delete all but the newest two; return its path.

    Parameters
    ----------
    folder : Path
        Folder of the job's checkpoints.
    identity : str
        What the job computes, as text; a checkpoint of another job is not used.
    total_steps : int
        Steps taken since the job began.
    """
    content = io.BytesIO()
    state = {
        "identity": identity,
        "position": asdict(checkpoint.position),
        "network": checkpoint.network,
        "averaged": checkpoint.averaged,
        "optimiser": checkpoint.optimiser,
    }
    torch.save(state, content)
    target = folder / f"step-{total_steps:09d}-{sha256(content.getbuffer()).hexdigest()[:16]}.pt"
    with placed(target) as temporary:
        temporary.write_bytes(content.getbuffer())
    for old in _newest_first(folder)[_KEPT:]:
        old.unlink()
    return target


def load_checkpoint(folder: Path, identity: str) -> Checkpoint | None:
    """Return the newest undamaged checkpoint of this job in `folder`, or None.

    A damaged one, or one of a job with other settings, is passed over with a warning.
    """
    for path in _newest_first(folder):
        content = path.read_bytes()
        match = _NAME.fullmatch(path.name)
        assert match is not None
        if sha256(content).hexdigest()[:16] != match[2]:
            _log.warning("%s is damaged; going on from the one before", path)
            continue
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if state["identity"] != identity:
            _log.warning("%s is of a run with other settings or data, and is not used", path)
            continue
        position = Position(**state["position"])
        return Checkpoint(position, state["network"], state["averaged"], state["optimiser"])
    return None


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("step-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (path.name, path.stat().st_mtime), reverse=True)
