"""The largest batch that fits, found from small ones."""

import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from landbalance.distributed.batchnorm import SinglePixelError
from landbalance.profile import memory
from landbalance.profile.memory import growth, largest_batch, room, watched
from landbalance.profiles import Memory

MIB = 2**20
CPU = torch.device("cpu")


class Hungry:
    """Stands in for a process whose peak is so many bytes a sample, above what it holds."""

    def __init__(self, monkeypatch, each, hidden=0):
        self.peak, self.each, self.hidden, self.sizes = 0, each, hidden, []
        base = memory.psutil.Process().memory_info().rss
        monkeypatch.setattr(memory, "_peak", lambda device: base + max(self.hidden, self.peak))

    def step(self, size):
        self.sizes.append(size)
        self.peak = max(self.peak, self.each * size)
        return 0.01 * size


def test_all_sizes_are_watched_where_there_is_room(monkeypatch):
    hungry = Hungry(monkeypatch, 100 * MIB)
    seconds, found = watched(hungry.step, 12, CPU, 10**12)
    assert list(seconds) == found.batch_sizes == [1, 2, 4, 8, 12]
    assert seconds[8] == pytest.approx(0.08)
    assert largest_batch(found) == pytest.approx(10**12 // (100 * MIB), rel=0.05)


@pytest.mark.parametrize("limit", [50, 250, 1000, 3000])
def test_no_step_comes_near_the_limit(monkeypatch, limit):
    """Each step is far below it, and what is said to fit, does."""
    hungry = Hungry(monkeypatch, 100 * MIB)
    _, found = watched(hungry.step, 64, CPU, limit * MIB)
    assert max(hungry.sizes) * 100 <= max(limit, 100)
    assert largest_batch(found) <= max(limit / 100, 1)


def test_a_slow_worker_is_not_watched_for_long(monkeypatch):
    hungry = Hungry(monkeypatch, 100 * MIB)

    def step(size):
        hungry.step(size)
        time.sleep(0.01 * size)
        return 0.01 * size

    seconds, found = watched(step, 512, CPU, 10**12, allowed=0.3)
    assert list(seconds) == [1, 2, 4]
    assert largest_batch(found) == pytest.approx(10**12 // (100 * MIB), rel=0.1)


def test_growth_that_hides_in_memory_held_before_is_feared(monkeypatch):
    """Until steps outgrow what imports took, their need is unknown: the cap is then too low, never too high."""
    hungry = Hungry(monkeypatch, 10 * MIB, hidden=300 * MIB)
    _, found = watched(hungry.step, 32, CPU, 8000 * MIB)
    assert largest_batch(found) <= 800


def test_a_gpu_that_runs_out_is_recovered_from(monkeypatch):
    held = {"peak": 0}
    monkeypatch.setattr(memory, "_peak", lambda device: held["peak"])
    monkeypatch.setattr(memory.torch.cuda, "memory_allocated", lambda device: 0)

    def step(size):
        if size > 8:
            raise torch.cuda.OutOfMemoryError
        held["peak"] = size * MIB
        return 0.1

    seconds, found = watched(step, 64, torch.device("cuda", 0), 1000 * MIB)
    assert list(seconds) == [1, 2, 4, 8]
    assert largest_batch(found) == 8


def test_a_size_that_batch_norm_cannot_take_is_passed_over(monkeypatch):
    hungry = Hungry(monkeypatch, 100 * MIB)

    def step(size):
        if size == 1:
            raise SinglePixelError
        return hungry.step(size)

    seconds, found = watched(step, 8, CPU, 10**12)
    assert list(seconds) == found.batch_sizes == [2, 4, 8]


STEPS = """
import torch
from landbalance.profile.memory import watched

def step(size):
    torch.ones(size * 2**25 // 4).add_(1)
    return 0.1

print(watched(step, 8, torch.device("cpu"), 2**40)[1].bytes_per_sample)
"""


def test_a_real_step_is_seen():
    # In a process of its own: the memory that other tests left would hide the growth.
    run = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert 24 * MIB <= float(run.stdout) <= 48 * MIB


@given(st.dictionaries(st.integers(1, 64), st.integers(0, 10**9), min_size=1))
def test_growth_promises_no_more_than_was_seen(peaks):
    largest = max(peaks)
    assert growth(peaks) >= peaks[largest] / largest
    assert all(peaks[largest] - peak <= growth(peaks) * (largest - size) + 1 for size, peak in peaks.items())


def test_nothing_seen_is_no_cap():
    assert largest_batch(Memory(bytes_per_sample=0.0, limit_bytes=1, batch_sizes=[1], peak_bytes=[0])) is None


def test_room_is_shared_and_a_reserve_stays():
    whole = room(CPU, 1, 0.0)
    assert room(CPU, 2, 0.2) == pytest.approx(0.4 * whole, rel=0.1)


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers_and_schedulers_bind(tmp_path, version):
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    if version == 2:
        membership.write_text("0::/job/step\n")
        top, names = root, ("memory.max", "memory.current")
    else:
        membership.write_text("7:cpu,cpuacct:/x\n4:memory:/job/step\n")
        top, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (top / "job" / "step").mkdir(parents=True)
    for folder, limit, used in ((top / "job", "1000", "400"), (top / "job" / "step", "max", "100")):
        (folder / names[0]).write_text(limit)
        (folder / names[1]).write_text(used)
    assert memory._control_group_room(root, membership) == [600]
    assert memory._control_group_room(root, tmp_path / "none") == []
