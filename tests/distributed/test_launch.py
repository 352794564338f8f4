"""Workers here are tiny programs that do one thing wrong; none of them needs torch."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from landbalance.distributed import launch
from landbalance.distributed.launch import LOST_CONTACT, STOPPED, LocalWorker, run_workers
from landbalance.errors import UserError

TWO = [LocalWorker("fast one", 1), LocalWorker("slow one", 2)]


def program(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "worker.py"
    path.write_text("import os, sys, time, signal\nrank = int(os.environ['RANK'])\n" + text)
    return [sys.executable, str(path), str(tmp_path)]


def test_each_worker_is_told_its_place_its_threads_and_a_loopback_address(tmp_path):
    names = "RANK WORLD_SIZE OMP_NUM_THREADS MASTER_ADDR"
    run_workers(
        program(
            tmp_path, f"open(sys.argv[1] + f'/{{rank}}', 'w').write(' '.join(os.environ[n] for n in '{names}'.split()))"
        ),
        TWO,
    )
    assert (tmp_path / "0").read_text() == "0 2 1 127.0.0.1"
    assert (tmp_path / "1").read_text() == "1 2 2 127.0.0.1"


def test_a_worker_that_fails_is_named_and_the_others_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)
    text = "open(sys.argv[1] + f'/pid-{rank}', 'w').write(str(os.getpid()))\nif rank: sys.exit(3)\ntime.sleep(600)"
    with pytest.raises(
        UserError, match=r"worker 1 \(slow one\) failed with exit status 3.*all other workers were ended"
    ):
        run_workers(program(tmp_path, text), TWO)
    assert not psutil.pid_exists(int((tmp_path / "pid-0").read_text()))


def test_a_killed_worker_is_named_with_its_signal(tmp_path):
    text = f"if rank == 0: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(0.5)\nos._exit({LOST_CONTACT})"
    with pytest.raises(UserError, match=r"worker 0 \(fast one\) was killed by SIGKILL"):
        run_workers(program(tmp_path, text), TWO)


def test_who_neither_fails_nor_ends_is_the_one_that_stalls(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)
    text = f"time.sleep(600) if rank == 1 else os._exit({LOST_CONTACT})"
    with pytest.raises(UserError, match=r"worker 1 \(slow one\) stalled"):
        run_workers(program(tmp_path, text), TWO)


LAUNCHER = """
import sys
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.errors import UserError
try:
    run_workers(sys.argv[1:], [LocalWorker("a", 1), LocalWorker("b", 1)])
except UserError as error:
    sys.exit(f"said: {error}")
"""


def started(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *program(tmp_path, text)], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("ready-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


READY = "open(sys.argv[1] + f'/ready-{rank}', 'w').write(str(os.getpid()))\n"


def test_a_stop_request_reaches_the_workers_and_is_told_as_such(tmp_path):
    text = f"signal.signal(signal.SIGTERM, lambda *_: os._exit({STOPPED}))\n" + READY + "time.sleep(600)"
    process = started(tmp_path, text)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped on request" in said


def test_workers_end_when_their_launcher_is_killed(tmp_path):
    text = (
        "from landbalance.distributed.launch import end_with_launcher\nend_with_launcher()\n"
        + READY
        + "time.sleep(600)"
    )
    process = started(tmp_path, text)
    pids = [int(path.read_text() or 0) for path in tmp_path.glob("ready-*")]
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
