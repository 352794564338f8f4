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
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from landbalance.distributed.binding import bound_cpus, numa_node_of_gpu, numa_nodes, own_cpus
from landbalance.distributed.place import LISTENER, Meeting
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

LOST_CONTACT = 75
"""Exit status of a worker that ended only since another one did not answer."""
STOPPED = 143
"""Exit status of a worker that stopped on request, after a checkpoint."""
LIFELINE = "LANDBALANCE_LIFELINE"
"""Environment variable: file descriptor whose end of file tells a worker that its launcher is gone."""

_GRACE_SECONDS = 10.0


class StoppedWorkersError(UserError):
    """The workers stopped on request; a checkpoint was written."""


class LostContactError(UserError):
    """The workers of this machine ended only since those of another one did not answer."""


@dataclass(frozen=True)
class LocalWorker:
    """A worker to start: its name for messages, how many CPU threads it may use, and which of the node's GPUs."""

    title: str
    threads: int
    gpu: int | None = None


def run_workers(
    command: Sequence[str], workers: Sequence[LocalWorker], afterwards: str = "", meeting: Meeting | None = None
) -> None:
    """Run `command` once per worker, on this machine; return when all are done.

    Without a `meeting` they are the whole job, and meet through a socket that listens on the loopback address
    only. A termination signal is passed on, so that they can write a checkpoint. They also end when this process is
    killed. Where CPUs are theirs alone, each runs on some of its own (`landbalance.distributed.binding`).

    Parameters
    ----------
    command : sequence of str
        What each worker runs.
    workers : sequence of LocalWorker
        The workers, by rank.
    afterwards : str
        What to do after a worker was lost, for the message.
    meeting : Meeting or None
        Where to meet the workers of other nodes, when there are any.

    Raises
    ------
    UserError
        When a worker fails, dies or is stopped; the message names it. All others are ended first.
    """
    listener = _listener(meeting, len(workers))
    if meeting is None:
        interface = "lo" if sys.platform == "linux" else None
        meeting = Meeting(0, len(workers), "127.0.0.1", listener.getsockname()[1], interface)
    lifeline_read, lifeline_write = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    stopping = _Stopping(processes)
    previous = {number: signal.signal(number, stopping) for number in (signal.SIGTERM, signal.SIGINT)}
    cpus = _cpus(workers)
    try:
        for rank, worker in enumerate(workers):
            environment = _environment(rank, meeting, worker.threads, listener, lifeline_read)
            processes.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    pass_fds=(listener.fileno(), lifeline_read),
                    start_new_session=True,
                )
            )
            if cpus:
                with suppress(ProcessLookupError):  # it has ended already: its exit status says why
                    os.sched_setaffinity(processes[-1].pid, cpus[rank])
        _watch(processes, workers, meeting.first_rank, stopping, afterwards)
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


def _listener(meeting: Meeting | None, workers: int) -> socket.socket:
    """Return the socket at which worker 0 is met; a node that does not hold it has an idle one."""
    if meeting is None or meeting.first_rank:
        return socket.create_server(("127.0.0.1", 0), backlog=workers + 8)
    try:
        return socket.create_server((meeting.address, meeting.port), backlog=meeting.world_size + 8)
    except OSError as error:
        raise UserError(
            f"{socket.gethostname()}: cannot listen on {meeting.address}:{meeting.port} for the other nodes "
            f"({error.strerror}). Run again: another job takes another port."
        ) from error


def _cpus(workers: Sequence[LocalWorker]) -> list[set[int]]:
    """Return the CPUs that each worker is bound to; nothing when they are not bound."""
    threads = [worker.threads for worker in workers]
    allowed = own_cpus(sum(threads))
    if allowed is None:
        return []
    gpu_nodes = [None if worker.gpu is None else numa_node_of_gpu(worker.gpu) for worker in workers]
    return bound_cpus(threads, gpu_nodes, allowed, numa_nodes())


def _environment(
    local_rank: int, meeting: Meeting, threads: int, listener: socket.socket, lifeline: int
) -> dict[str, str]:
    added = {
        "RANK": str(meeting.first_rank + local_rank),
        "WORLD_SIZE": str(meeting.world_size),
        "LOCAL_RANK": str(local_rank),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        LISTENER: str(listener.fileno()),
        LIFELINE: str(lifeline),
        # As Slurm and nvidia-smi number GPUs; CUDA's own order is another one where they differ.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return os.environ | added | meeting.environment


def _watch(
    processes: Sequence[subprocess.Popen[bytes]],
    workers: Sequence[LocalWorker],
    first_rank: int,
    stopping: _Stopping,
    afterwards: str,
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
        raise StoppedWorkersError(f"stopped on request. {afterwards}".strip())
    lost = any(code is None or code < 0 or code == LOST_CONTACT for code in codes)
    verdict = f"{_verdict(codes, workers, first_rank)} {afterwards if lost else ''}".strip()
    if all(code in (0, LOST_CONTACT, STOPPED) for code in codes):
        raise LostContactError(verdict)
    raise UserError(verdict)


def _verdict(codes: Sequence[int | None], workers: Sequence[LocalWorker], first_rank: int) -> str:
    """Return which worker is to blame, from the exit codes of all (None: still running)."""
    culprits = [rank for rank, code in enumerate(codes) if code not in (None, 0, LOST_CONTACT, STOPPED)]
    culprits = culprits or [rank for rank, code in enumerate(codes) if code is None]
    culprits = culprits or [rank for rank, code in enumerate(codes) if code == LOST_CONTACT]
    told = ", ".join(f"worker {first_rank + rank} ({workers[rank].title}) {_ending(codes[rank])}" for rank in culprits)
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
