import json
import sys
from pathlib import Path

import pytest
import torch

from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.reduction import islands
from reduction_worker import NODES, planned


@pytest.fixture(scope="module")
def everyone(tmp_path_factory):
    answer = tmp_path_factory.mktemp("sums") / "answer.json"
    program = Path(__file__).with_name("reduction_worker.py")
    run_workers([sys.executable, str(program), str(answer)], [LocalWorker(node, 1) for node in NODES])
    return json.loads(answer.read_text())


def test_each_way_gives_each_worker_the_same_sum_tensor_by_tensor(everyone):
    wanted = [(4 * torch.arange(1 + number, dtype=torch.float64) + 1111).tolist() for number in range(20)]
    for sums, _, _ in everyone:
        assert sums == {"flat": wanted, "leaders": wanted}


def test_all_workers_choose_the_same_way(everyone):
    assert len({tuple(by_clock) for _, by_clock, _ in everyone}) == 1
    assert all(by_rule == ["leaders"] for _, _, by_rule in everyone)


def test_islands_are_the_workers_of_a_node_and_a_kind_of_device():
    assert islands([planned(rank, node) for rank, node in enumerate("abab")]) == [[0, 2], [1, 3]]
    mixed = [planned(0, "a"), planned(1, "a").model_copy(update={"device": "cuda"})]
    assert islands(mixed) == [[0], [1]]
