import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbalance.cluster import Worker
from landbalance.curves import time_curve
from landbalance.plan.predict import predict, speeds
from landbalance.plan.workers import WorkerKind, Workers
from landbalance.shares import equal_shares, optimal_shares, sharing_problem


def _workers(lines: list[tuple[float, float]], communication: list[float], cap: int | None = None) -> Workers:
    """One worker each that takes fixed + each · b seconds."""
    kinds = tuple(
        WorkerKind("node", Worker(device="cpu"), time_curve([1, 64], [[fixed + each], [fixed + 64 * each]], cap))
        for fixed, each in lines
    )
    index = np.arange(len(lines))
    return Workers(kinds, index, np.zeros_like(index), index, np.array(communication))


def test_constant_speeds_reach_their_limits() -> None:
    # Cores 12:12:8:16 and so on: the published tables' S_max of 1.5, 2 and 3.
    for cores, limit in (([12, 12, 8, 16], 1.5), ([9, 9, 6, 24], 2.0), ([6, 6, 4, 32], 3.0)):
        workers = _workers([(0.0, 1 / core) for core in cores], [0.0] * 5)
        predicted = predict(workers, np.array(cores), train_samples=97)
        assert predicted.step_seconds == pytest.approx(1)
        assert predicted.epoch_seconds == pytest.approx(3)
        assert predicted.speedup_over_equal == pytest.approx(limit)
        assert predicted.speedup_over_equal_limit == pytest.approx(limit)
        assert predicted.speedup_over_fastest == pytest.approx(48 / max(cores))
        assert predicted.speedup_over_fastest_limit == pytest.approx(48 / max(cores))
        assert predicted.fraction_of_total_speed == pytest.approx(1)


def test_communication_and_a_left_out_worker() -> None:
    workers = _workers([(0.0, 0.1), (0.0, 0.1), (0.0, 1.0)], [0.0, 0.0, 0.5, 0.8])
    predicted = predict(workers, np.array([6, 6, 0]), train_samples=24)
    assert predicted.step_seconds == pytest.approx(0.6 + 0.5)
    assert predicted.communication_seconds == pytest.approx(0.5)
    assert predicted.equal_step_seconds == pytest.approx(4 + 0.8)
    assert predicted.fastest_alone_step_seconds == pytest.approx(1.2)
    assert predicted.speedup_over_equal == pytest.approx(4.8 / 1.1)
    assert predicted.speedup_over_equal_limit == pytest.approx(21 / (3 * 1))
    assert predicted.speedup_over_fastest == pytest.approx(1.2 / 1.1)
    assert predicted.speedup_over_fastest_limit == pytest.approx(21 / 10)
    assert predicted.fraction_of_total_speed == pytest.approx(12 / 1.1 / 21)
    np.testing.assert_allclose(speeds(workers, np.array([6, 6, 0])), [10, 10, 1])


def test_energy_is_that_of_the_nodes_in_use_and_unknown_when_one_does_not_tell() -> None:
    each = [("counts", 0), ("counts", 1), ("silent", 0)]
    kinds = tuple(
        WorkerKind(name, Worker(device="cpu"), time_curve([1, 64], [[0.1], [6.4]], None))
        for name in ("counts", "silent")
    )
    kind, index = np.array([0, 0, 1]), np.array([node for _, node in each])
    workers = Workers(kinds, kind, index, np.zeros(3, np.int64), np.zeros(4), watts={"counts": 50.0})
    assert predict(workers, np.array([5, 5, 0]), train_samples=20).epoch_joules == pytest.approx(2 * 50 * 1.0)
    assert predict(workers, np.array([10, 0, 0]), train_samples=20).epoch_joules == pytest.approx(50 * 2.0)
    assert predict(workers, np.array([4, 4, 2]), train_samples=20).epoch_joules is None


def test_one_worker_alone_gains_nothing() -> None:
    predicted = predict(_workers([(0.3, 0.1)], [0.0, 0.0]), np.array([8]), train_samples=8)
    assert predicted.speedup_over_equal == predicted.speedup_over_fastest == 1
    assert predicted.speedup_over_equal_limit == pytest.approx(1)
    assert predicted.speedup_over_fastest_limit == pytest.approx(1)
    assert predicted.fraction_of_total_speed == pytest.approx(1)


def test_rounds_count_in_the_times_that_are_compared() -> None:
    predicted = predict(_workers([(1.0, 1.0), (1.0, 1.0)], [0.0] * 3, cap=4), np.array([4, 4]), train_samples=8)
    assert predicted.fastest_alone_step_seconds == pytest.approx(2 * (1 + 4))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.01, 2)), min_size=1, max_size=5),
    st.integers(1, 60),
    st.floats(0, 1),
    st.none() | st.integers(1, 20),
)
def test_no_figure_passes_its_limit(
    lines: list[tuple[float, float]], batch: int, pause: float, cap: int | None
) -> None:
    communication = [0.0, *(pause * workers for workers in range(len(lines)))]
    workers = _workers(lines, communication, cap)
    tables = [kind.curve.seconds(np.arange(batch + 1)) for kind in workers.kinds]
    problem = sharing_problem(tables, workers.counts, batch, workers.communication)
    for shares in (optimal_shares(problem, workers.kind), equal_shares(len(workers), batch)):
        predicted = predict(workers, shares, train_samples=100)
        assert predicted.fraction_of_total_speed <= 1 + 1e-9
        assert predicted.speedup_over_fastest <= predicted.speedup_over_fastest_limit * (1 + 1e-9)
        if (shares > 0).all():
            assert predicted.speedup_over_equal <= predicted.speedup_over_equal_limit * (1 + 1e-9)
    predicted = predict(workers, optimal_shares(problem, workers.kind), train_samples=100)
    assert predicted.speedup_over_equal >= 1 - 1e-9
    assert predicted.speedup_over_fastest >= 1 - 1e-9
