"""Worker processes for tests, all forked from one process that has imported torch: a start costs next to nothing.

`Workers` are a process group that stays for many small computations. `CommandLine` is `landbalance …` as one
worker (or launcher) of a whole job.
"""

import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 120.0
"""After so long a worker counts as hanging; on an idle machine everything here takes less than one."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["landbalance.train.worker", "segmentation_models_pytorch", "pandas", "pyarrow"])


class Workers:
    """A process group of `size` workers over gloo; it starts at its first use, and anew after an error."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[Any] = []
        self._ends: list[Connection] = []

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what `function(*arguments)` gives on each worker, by rank.

        The function must be importable by the workers: it lies in a module of `tests`, not in a test file.
        """
        if not self._processes:
            self._start()
        for end in self._ends:
            # Plain pickle: multiprocessing would send tensors as shared memory.
            end.send_bytes(pickle.dumps((function, arguments)))
        results, errors = [], []
        for rank, end in enumerate(self._ends):
            if not end.poll(SECONDS if not errors else 1):
                errors.append(f"worker {rank} does not answer")
                continue
            fine, result = pickle.loads(end.recv_bytes())
            (results if fine else errors).append(result)
        if errors:
            self.close()
            raise AssertionError("\n".join(errors))
        return results

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        for rank in range(self.size):
            ours, theirs = _context.Pipe()
            process = _context.Process(target=_serve, args=(rank, self.size, self._folder.name, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._ends.append(ours)

    def close(self) -> None:
        """End the workers, if any were started."""
        if not self._processes:
            return
        for process in self._processes:
            process.kill()
            process.join()
        for end in self._ends:
            end.close()
        self._processes, self._ends = [], []
        self._folder.cleanup()


def _serve(rank: int, size: int, folder: str, end: Connection) -> None:
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
    )
    while True:
        try:
            function, arguments = pickle.loads(end.recv_bytes())
        except EOFError:
            return
        try:
            answer = (True, function(*arguments))
        except BaseException:
            answer = (False, f"worker {rank}: {traceback.format_exc()}")
        end.send_bytes(pickle.dumps(answer))


class CommandLine:
    """`landbalance` with these arguments in a process of its own; what it says goes to a file."""

    def __init__(
        self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, stop_after: int | None = None
    ) -> None:
        self._said = Path(tempfile.mkstemp(prefix="said-", dir=folder)[1])
        self._process = _context.Process(
            target=_main, args=(folder, arguments, dict(environment or {}), stop_after, self._said)
        )
        self._process.start()

    def ended(self) -> tuple[int, str]:
        """Return exit status and what was said; a process that does not end is a failure of the test."""
        self._process.join(SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"still running after {SECONDS:g} s: {self._said.read_text()}")
        return self._process.exitcode, self._said.read_text()


def _main(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], stop_after: int | None, said: Path
) -> None:
    descriptor = os.open(said, os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.chdir(folder)
    os.environ.update(environment)
    if stop_after is not None:
        from landbalance.train import worker

        worker.StopRequest = lambda: StopAfter(stop_after)  # type: ignore[assignment, misc]
    from landbalance.cli import main

    sys.exit(main(list(arguments)))


class StopAfter:
    """Stands in for a job's stop request: it comes in the step after `steps` others."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def requested(self) -> bool:
        """Whether the job should stop; asked once a step."""
        self._left -= 1
        return self._left <= 0


def places(size: int) -> list[dict[str, str]]:
    """Return the environments of a job's workers, as torchrun sets them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    return [{**common, "RANK": str(rank)} for rank in range(size)]
