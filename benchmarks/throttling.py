"""Making a process slower than its core: by the kernel's CPU quota where that is allowed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_LEAST_QUOTA = 1000
"""Microseconds; the kernel refuses less."""


def brake_kind() -> str:
    """Return what slows processes down here: `cgroup v1`, `cgroup v2`, or `emulation` where neither is permitted."""
    for kind in ("cgroup v1", "cgroup v2"):
        try:
            folder = _made(kind, f"landbalance-probe-{os.getpid()}", 0.5)
        except OSError:
            continue
        folder.rmdir()
        return kind
    return "emulation"


@contextmanager
def brakes(kind: str, shares: list[float]) -> Iterator[list[Path | None]]:
    """Yield a control group per process, each with that share of a core; None for a whole core, and under emulation."""
    folders: list[Path | None] = []
    try:
        for number, share in enumerate(shares):
            braked = share < 1 and kind != "emulation"
            folders.append(_made(kind, f"landbalance-{os.getpid()}-{number}", share) if braked else None)
        yield folders
    finally:
        for folder in folders:
            if folder is not None:
                folder.rmdir()


def enter(folder: Path | None) -> None:
    """Move this process, with all its threads, into a control group."""
    if folder is not None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def set_share(folder: Path, share: float) -> None:
    """Give the processes of a control group another share of a core."""
    # The shorter the period, the less a throttled process is like one that stops and goes.
    period = max(10_000, round(_LEAST_QUOTA / share))
    quota = round(share * period)
    if (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text(f"{quota} {period}")
        return
    (folder / "cpu.cfs_period_us").write_text(f"{period}")
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}")


def _made(kind: str, name: str, share: float) -> Path:
    if kind == "cgroup v1":
        folder = _V1 / name
        if not (_V1 / "cpu.cfs_quota_us").exists():
            raise FileNotFoundError(_V1)
    else:
        folder = _V2 / name
        if "cpu" not in (_V2 / "cgroup.subtree_control").read_text().split():
            (_V2 / "cgroup.subtree_control").write_text("+cpu")
    folder.mkdir()
    try:
        set_share(folder, share)
    except OSError:
        folder.rmdir()
        raise
    return folder
