"""Starting the workers of this machine, and ending all of them when one fails."""

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from landbalance.distributed.place import LISTENER
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

LOST_CONTACT = 75
"""Exit status of a worker that ended only since another one did not answer."""
STOPPED = 143
"""Exit status of a worker that stopped on request, after a checkpoint."""
LIFELINE = "LANDBALANCE_LIFELINE"
"""Environment variable: file descriptor whose end of file tells a worker that its launcher is gone."""

_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class LocalWorker:
    """A worker to start: its name for messages, and how many CPU threads it may use."""

    title: str
    threads: int


def run_workers(command: Sequence[str], workers: Sequence[LocalWorker], afterwards: str = "") -> None:
    """Run `command` once per worker, as one job on this machine; return when all are done.

    Workers meet through a socket that listens on the loopback address only. A termination signal is
    passed on, so that they can write a checkpoint. They also end when this process is killed.

    Parameters
    ----------
    command : sequence of str
        What each worker runs.
    workers : sequence of LocalWorker
        The workers, by rank.
    afterwards : str
        What to do after a worker was lost, for the message.

    Raises
    ------
    UserError
        When a worker fails, dies or is stopped; the message names it. All others are ended first.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=len(workers) + 8)
    lifeline_read, lifeline_write = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    stopping = _Stopping(processes)
    previous = {number: signal.signal(number, stopping) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for rank, worker in enumerate(workers):
            environment = _environment(rank, len(workers), worker.threads, listener, lifeline_read)
            processes.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    pass_fds=(listener.fileno(), lifeline_read),
                    start_new_session=True,
                )
            )
        _watch(processes, workers, stopping, afterwards)
    finally:
        _end(processes)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(lifeline_read)
        os.close(lifeline_write)
        listener.close()


class _Stopping:
    """Passes a signal on to the workers, and remembers that it came."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self.requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def _environment(rank: int, world_size: int, threads: int, listener: socket.socket, lifeline: int) -> dict[str, str]:
    added = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(listener.getsockname()[1]),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        LISTENER: str(listener.fileno()),
        LIFELINE: str(lifeline),
    }
    if sys.platform == "linux":
        added["GLOO_SOCKET_IFNAME"] = "lo"
    return os.environ | added


def _watch(
    processes: Sequence[subprocess.Popen[bytes]], workers: Sequence[LocalWorker], stopping: _Stopping, afterwards: str
) -> None:
    """Return when all processes have succeeded; raise when one has not."""
    while True:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes):
            return
        if any(code not in (None, 0) for code in codes):
            break
        time.sleep(0.1)
    # Give the others a moment to fail by themselves: who neither fails nor ends is the one that stalls.
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(0.1)
    codes = [process.poll() for process in processes]
    if stopping.requested and all(code in (0, STOPPED) for code in codes):
        raise UserError(f"stopped on request. {afterwards}".strip())
    lost = any(code is None or code < 0 or code == LOST_CONTACT for code in codes)
    raise UserError(f"{_verdict(codes, workers)} {afterwards if lost else ''}".strip())


def _verdict(codes: Sequence[int | None], workers: Sequence[LocalWorker]) -> str:
    """Return which worker is to blame, from the exit codes of all (None: still running)."""
    culprits = [rank for rank, code in enumerate(codes) if code not in (None, 0, LOST_CONTACT, STOPPED)]
    culprits = culprits or [rank for rank, code in enumerate(codes) if code is None]
    culprits = culprits or [rank for rank, code in enumerate(codes) if code == LOST_CONTACT]
    told = ", ".join(f"worker {rank} ({workers[rank].title}) {_ending(codes[rank])}" for rank in culprits)
    return f"{told}; all other workers were ended."


def _ending(code: int | None) -> str:
    if code is None:
        return "stalled"
    if code == LOST_CONTACT:
        return "lost contact with the others"
    if code < 0:
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{hint}"
    return f"failed with exit status {code} (its message stands above)"


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()


def end_with_launcher() -> None:
    """End this worker process as soon as the process that launched it is gone."""
    lifeline = os.environ.get(LIFELINE)
    if lifeline is None:
        return

    def watch() -> None:
        select.select([int(lifeline)], [], [])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="lifeline").start()
