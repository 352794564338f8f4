import ctypes
import errno
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.reduction import Member, islands
from reduction_worker import NODES, PACES, large

WAYS = {"two": {"flat", "leaders"}, "one": {"flat", "memory"}, "walled": {"flat"}}


@pytest.fixture
def reach():
    """Skip where the system lets no process read another's memory, as some containers do."""
    library, byte = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(1)
    here, nowhere = (ctypes.c_size_t * 2)(ctypes.addressof(byte), 1), (ctypes.c_size_t * 2)(1, 1)
    library.process_vm_readv(os.getppid(), here, ctypes.c_ulong(1), nowhere, ctypes.c_ulong(1), ctypes.c_ulong(0))
    if ctypes.get_errno() != errno.EFAULT:
        pytest.skip(f"process_vm_readv: {os.strerror(ctypes.get_errno())}")


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    answer = tmp_path_factory.mktemp("sums") / "answer.json"
    program = Path(__file__).with_name("reduction_worker.py")
    run_workers([sys.executable, str(program), str(answer)], [LocalWorker(str(pace), 1) for pace in PACES])
    return answer


@pytest.fixture(scope="module")
def everyone(answer):
    return json.loads(answer.read_text())


@pytest.mark.parametrize("title", NODES)
def test_each_way_gives_each_worker_the_same_sum_tensor_by_tensor(request, everyone, title):
    if title == "one":
        request.getfixturevalue("reach")
    wanted = [(4 * torch.arange(number, dtype=torch.float64) + 1111).tolist() for number in range(20)]
    for found in everyone:
        assert found[title]["sums"] == dict.fromkeys(WAYS[title], wanted)


@pytest.mark.parametrize("title", NODES)
def test_all_workers_choose_the_same_way(request, everyone, title):
    if title == "one":
        request.getfixturevalue("reach")
    assert len({found[title]["by_clock"] for found in everyone}) == 1
    assert everyone[0][title]["by_clock"] in WAYS[title]
    last = {"two": "leaders", "one": "flat", "walled": "flat"}[title]
    assert all(found[title]["by_rule"] == last for found in everyone)


def test_memory_is_summed_in_the_order_of_ranks_whoever_sums_a_stretch(reach, answer, everyone):
    ranks = range(len(PACES))
    by_type = zip(*(large(rank) for rank in ranks), strict=True)
    wanted = [((first + second) + third) + fourth for first, second, third, fourth in by_type]
    for rank in ranks:
        found = torch.load(answer.with_name(f"large-{rank}.pt"), weights_only=True)
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_islands_are_the_workers_of_a_node_and_a_kind_of_device():
    assert islands([Member(node, 0, "cpu", 1.0) for node in "abab"]) == [[0, 2], [1, 3]]
    assert islands([Member("a", 0, "cpu", 1.0), Member("a", 0, "cuda", 1.0)]) == [[0], [1]]
