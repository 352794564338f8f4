"""Which CPUs workers run on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from landbalance.distributed.binding import bound_cpus, cpu_list, numa_node_of_gpu, numa_nodes

TWO_NODES = {0: set(range(8)), 1: set(range(8, 16))}


def cpus(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


@pytest.mark.parametrize(
    ("threads", "gpu_nodes", "allowed", "found"),
    [
        # CPU workers have CPUs of their own, each on a single NUMA node.
        ([8, 8], [None, None], cpus(0, 15), [cpus(0, 7), cpus(8, 15)]),
        ([2, 6, 6], [None, None, None], cpus(0, 15), [{6, 7}, cpus(0, 5), cpus(8, 13)]),
        # One that is larger than a node spans several.
        ([10], [None], cpus(0, 15), [cpus(0, 9)]),
        # Processes of GPUs are near them, and share what nobody needs there.
        ([1, 1, 1], [1, 0, 1], cpus(0, 15), [{8, *cpus(10, 15)}, cpus(0, 7), cpus(9, 15)]),
        # A CPU worker beside them leaves each a CPU.
        ([1, 1, 14], [0, 1, None], cpus(0, 15), [{0}, {8}, {*cpus(1, 7), *cpus(9, 15)}]),
        ([1, 4], [-1, None], cpus(0, 15), [{0, *cpus(5, 7)}, cpus(1, 4)]),
        # Only what Slurm gave.
        ([2, 2], [None, None], {3, 4, 10, 11}, [{3, 4}, {10, 11}]),
        ([2, 2], [None, None], {3, 4, 5}, []),
    ],
)
def test_places(threads, gpu_nodes, allowed, found):
    assert bound_cpus(threads, gpu_nodes, allowed, TWO_NODES) == found


def test_a_system_without_numa_nodes():
    assert bound_cpus([1, 2], [None, None], {0, 1, 2}, {}) == [{2}, {0, 1}]


def test_cpu_list_as_linux_writes_it():
    assert cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert cpu_list("\n") == set()


def test_nodes_of_this_machine_hold_all_its_cpus():
    assert set().union(*numa_nodes().values()) >= os.sched_getaffinity(0)


def test_a_gpus_node_is_looked_up_by_the_number_that_slurm_gave(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text('#!/bin/sh\ncase "$*" in *--id=3) echo 00000000:C1:00.0;; *) exit 6;; esac\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "0000:c1:00.0").mkdir()
    (tmp_path / "0000:c1:00.0" / "numa_node").write_text("1\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert numa_node_of_gpu(1, tmp_path) == 1
    assert numa_node_of_gpu(0, tmp_path) == -1
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert numa_node_of_gpu(3, tmp_path) == 1


PROGRAM = """
import os, sys
from landbalance.distributed.launch import LocalWorker, run_workers
os.sched_setaffinity(0, {allowed})
worker = "import os, time; time.sleep(0.3); open(os.environ['RANK'], 'w').write(str(os.sched_getaffinity(0)))"
run_workers([sys.executable, "-c", worker], [LocalWorker("one", 1) for _ in range({workers})])
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(("in_slurm", "confined"), [(True, True), (True, False), (False, True)])
def test_workers_are_bound_where_cpus_are_the_jobs_own(tmp_path: Path, in_slurm: bool, confined: bool):
    """A lone worker that Slurm left all of several CPUs may share them with other jobs, and so may any on a laptop."""
    here = sorted(os.sched_getaffinity(0))
    allowed = set(here[:2]) if confined else set(here)
    # With two CPUs, two workers fill the machine, which makes it theirs as well.
    workers = 2 if confined else 1
    environment = {key: value for key, value in os.environ.items() if key != "SLURM_JOB_ID"}
    environment |= {"SLURM_JOB_ID": "7"} if in_slurm else {}
    program = PROGRAM.format(allowed=allowed, workers=workers)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, timeout=60)
    found = [(tmp_path / str(rank)).read_text() for rank in range(workers)]
    assert found == ([f"{{{here[0]}}}", f"{{{here[1]}}}"] if in_slurm and confined else [str(allowed)] * workers)
