from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from landbalance.cluster import Cluster
from landbalance.plan.communication import Exchange, communication_seconds
from landbalance.plan.workers import ways_within
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


def _seconds(*measured: AllReduce, workers: int = 8) -> NDArray[np.float64]:
    return communication_seconds([Exchange(timings) for timings in measured], workers, {"flat"})


def test_is_what_was_measured_at_the_measured_number_and_nothing_alone() -> None:
    seconds = _seconds(_timings())
    assert seconds[:2].tolist() == [0, 0]
    assert seconds[4] == pytest.approx(0.5)


def test_follows_the_ring() -> None:
    seconds = _seconds(_timings())
    # Latency 0.1 in 6 messages; transfer 0.4 for 1.5 gradients.
    assert seconds[2] == pytest.approx(0.1 * 2 / 6 + 0.4 * 1 / 1.5)
    assert seconds[8] == pytest.approx(0.1 * 14 / 6 + 0.4 * 1.75 / 1.5)
    assert (np.diff(seconds) >= 0).all()


def test_a_step_waits_for_each_small_collective() -> None:
    seconds = _seconds(_timings(collectives_per_step=5))
    assert seconds[4] == pytest.approx(0.5 + 5 * 0.1)
    assert seconds[2] == pytest.approx(6 * 0.1 * 2 / 6 + 0.4 * 1 / 1.5)


def test_nccl_has_messages_that_grow_as_a_tree() -> None:
    seconds = _seconds(_timings(backend="nccl"), workers=16)
    assert seconds[16] == pytest.approx(0.1 * 2 + 0.4 * (15 / 8) / 1.5)


def test_the_slowest_kind_of_node_counts_and_a_single_worker_says_nothing() -> None:
    slow, fast, alone = _timings(seconds=[2.0]), _timings(), _timings(world_size=1, seconds=[9.0])
    np.testing.assert_array_equal(_seconds(fast, slow, alone), _seconds(slow))
    assert not _seconds(alone).any()


def test_latency_above_the_whole_sum_is_noise() -> None:
    seconds = _seconds(_timings(latency_seconds=[0.6]))
    assert seconds[4] == pytest.approx(0.6)
    assert (np.diff(seconds) >= 0).all()


def test_what_whole_steps_showed_sets_the_scale() -> None:
    """Of 0.5 s by itself, 0.1 s lengthens a step of the four measured workers: so much hides behind computing."""
    hidden = communication_seconds([Exchange(_timings(), exposed=0.1)], 8, {"flat"})
    assert hidden[4] == pytest.approx(0.1)
    np.testing.assert_allclose(hidden, 0.2 * _seconds(_timings()))
    assert not communication_seconds([Exchange(_timings(), exposed=0.0)], 8, {"flat"}).any()


def test_a_way_that_the_cluster_has_not_is_replaced_by_a_sum_that_is_sent() -> None:
    """What whole steps showed of a sum of 0.2 s in memory, and all that one of 0.5 s over gloo takes longer."""
    timings = _timings(way="memory", way_seconds=[0.2, 0.2])
    for ways, whole, exposed in (({"flat", "memory"}, 0.2, 0.1), ({"flat", "nccl"}, 0.5, 0.4)):
        assert communication_seconds([Exchange(timings)], 4, ways)[4] == pytest.approx(whole)
        assert communication_seconds([Exchange(timings, exposed=0.1)], 8, ways)[4] == pytest.approx(exposed)


def test_memory_is_of_one_node_and_nccl_of_gpus() -> None:
    def ways(count: int, *devices: str) -> frozenset[str]:
        workers = [{"device": device, "threads": 1} for device in devices]
        return ways_within(Cluster.model_validate({"nodes": [{"name": "a", "count": count, "workers": workers}]}))

    assert ways(1, "cpu", "cpu") == {"flat", "leaders", "memory"}
    assert ways(2, "cpu") == ways(2, "cuda", "cpu") == {"flat", "leaders"}
    assert ways(2, "cuda", "cuda") == {"flat", "leaders", "nccl"}
