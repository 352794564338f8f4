import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbalance.cluster import Worker
from landbalance.curves import time_curve
from landbalance.plan.batches import WELL_USED, batch_points
from landbalance.plan.problem import best_shares
from landbalance.plan.workers import WorkerKind, Workers
from landbalance.shares import optimal_shares, sharing_problem

SIZES = [1, 2, 4, 8, 16, 32, 64]


def _workers(lines: list[tuple[float, float]], pause: float = 0.0, caps: list[int | None] | None = None) -> Workers:
    caps = caps or [None] * len(lines)
    kinds = tuple(
        WorkerKind("local", Worker(device="cpu"), time_curve(SIZES, [[fixed + each * size] for size in SIZES], cap))
        for (fixed, each), cap in zip(lines, caps, strict=True)
    )
    count = np.arange(len(lines))
    communication = np.array([0.0, 0.0, *(pause * workers for workers in range(2, len(lines) + 1))])
    return Workers(kinds, count, count * 0, count, communication)


def test_a_fixed_part_makes_small_batches_wasteful() -> None:
    points = batch_points(_workers([(1.0, 0.1)]), 16, hard=False)
    sizes = [point.batch_size for point in points]
    assert sizes == [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    speeds = [size / (1.0 + 0.1 * size) for size in sizes]
    # Beyond what was timed no speed above the last measured one is assumed.
    speeds[-2:] = [96 / (7.4 / 64 * 32 + 7.4), 128 / (7.4 / 64 * 64 + 7.4)]
    assert [point.samples_per_second for point in points] == pytest.approx(speeds)
    assert [point.extrapolated for point in points] == [size > 64 for size in sizes]
    best = max(speeds)
    assert [point.fraction_of_best for point in points] == pytest.approx([speed / best for speed in speeds])
    advised = [point.batch_size for point in points if point.recommended]
    assert advised == [
        size for size, speed in zip(sizes, speeds, strict=True) if size <= 64 and speed >= WELL_USED * best
    ]
    assert 16 not in advised


def test_communication_takes_more_workers_with_larger_batches() -> None:
    points = batch_points(_workers([(0.0, 0.1), (0.0, 0.1)], pause=0.5), 16, hard=False)
    assert {point.workers for point in points if point.batch_size <= 12} == {1}
    assert {point.workers for point in points if point.batch_size >= 32} == {2}


def test_sizes_that_do_not_fit_in_memory_are_left_out() -> None:
    workers = _workers([(0.0, 0.1), (0.0, 0.3)], caps=[20, 10])
    assert max(point.batch_size for point in batch_points(workers, 16, hard=True)) == 24
    assert max(point.batch_size for point in batch_points(workers, 16, hard=False)) == 128
    assert best_shares(workers, 31, hard=True) is None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.01, 2), st.none() | st.integers(1, 20)), min_size=1, max_size=4),
    st.integers(1, 60),
    st.floats(0, 3),
    st.booleans(),
)
def test_shorter_tables_lose_nothing(
    kinds: list[tuple[float, float, int | None]], batch: int, pause: float, hard: bool
) -> None:
    """The search with tables cut at a possible step finds as fast a step as the one that knows every share."""
    caps = [cap for *_, cap in kinds]
    workers = _workers([(fixed, each) for fixed, each, _ in kinds], pause, caps)
    shares = best_shares(workers, batch, hard)
    most = [batch if cap is None or not hard else min(cap, batch) for cap in caps]
    if sum(most) < batch:
        assert shares is None
        return
    assert shares is not None
    tables = [kind.curve.seconds(np.arange(limit + 1)) for kind, limit in zip(workers.kinds, most, strict=True)]
    full = optimal_shares(sharing_problem(tables, workers.counts, batch, workers.communication), workers.kind)

    def step(shares: np.ndarray) -> float:
        return float(workers.seconds(shares).max() + workers.communication[np.count_nonzero(shares)])

    assert shares.sum() == batch
    assert (shares <= np.array(most)).all()
    assert step(shares) == pytest.approx(step(full), rel=1e-12)
