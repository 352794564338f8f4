from typing import Any

import numpy as np
import pytest

from landbalance.plan.communication import communication_seconds
from landbalance.profiles import AllReduce


def _timings(**changed: Any) -> AllReduce:
    value = {
        "backend": "gloo",
        "world_size": 4,
        "gradient_bytes": 1000,
        "seconds": [0.5, 0.4, 0.9],
        "latency_seconds": [0.1, 0.1, 0.3],
        "collectives_per_step": 0,
    }
    return AllReduce.model_validate(value | changed)


def test_is_what_was_measured_at_the_measured_number_and_nothing_alone() -> None:
    seconds = communication_seconds([_timings()], 8)
    assert seconds[:2].tolist() == [0, 0]
    assert seconds[4] == pytest.approx(0.5)


def test_follows_the_ring() -> None:
    seconds = communication_seconds([_timings()], 8)
    # Latency 0.1 in 6 messages; transfer 0.4 for 1.5 gradients.
    assert seconds[2] == pytest.approx(0.1 * 2 / 6 + 0.4 * 1 / 1.5)
    assert seconds[8] == pytest.approx(0.1 * 14 / 6 + 0.4 * 1.75 / 1.5)
    assert (np.diff(seconds) >= 0).all()


def test_a_step_waits_for_each_small_collective() -> None:
    seconds = communication_seconds([_timings(collectives_per_step=5)], 8)
    assert seconds[4] == pytest.approx(0.5 + 5 * 0.1)
    assert seconds[2] == pytest.approx(6 * 0.1 * 2 / 6 + 0.4 * 1 / 1.5)


def test_nccl_has_messages_that_grow_as_a_tree() -> None:
    seconds = communication_seconds([_timings(backend="nccl")], 16)
    assert seconds[16] == pytest.approx(0.1 * 2 + 0.4 * (15 / 8) / 1.5)


def test_the_slowest_kind_of_node_counts_and_a_single_worker_says_nothing() -> None:
    slow, fast, alone = _timings(seconds=[2.0]), _timings(), _timings(world_size=1, seconds=[9.0])
    np.testing.assert_array_equal(communication_seconds([fast, slow, alone], 8), communication_seconds([slow], 8))
    assert not communication_seconds([alone], 8).any()


def test_latency_above_the_whole_sum_is_noise() -> None:
    seconds = communication_seconds([_timings(latency_seconds=[0.6])], 8)
    assert seconds[4] == pytest.approx(0.6)
    assert (np.diff(seconds) >= 0).all()
