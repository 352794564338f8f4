"""The search is compared with trying every split."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbalance.shares import (
    Problem,
    best_worker_count,
    equal_shares,
    finish_time,
    optimal_shares,
    sharing_problem,
)


def _splits(batch: int, caps: list[int]) -> Iterator[tuple[int, ...]]:
    if len(caps) == 1:
        if batch <= caps[0]:
            yield (batch,)
        return
    for share in range(min(batch, caps[0]) + 1):
        for rest in _splits(batch - share, caps[1:]):
            yield (share, *rest)


def _step(problem: Problem, kind: np.ndarray, shares: tuple[int, ...]) -> float:
    times = [problem.tables[which][share] for which, share in zip(kind, shares, strict=True)]
    return max(times) + problem.communication[np.count_nonzero(shares)]


def _tried(problem: Problem, kind: np.ndarray) -> dict[tuple[int, ...], float]:
    caps = [len(problem.tables[which]) - 1 for which in kind]
    return {shares: _step(problem, kind, shares) for shares in _splits(problem.batch, caps)}


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, np.ndarray]:
    batch = draw(st.integers(1, 8))
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda counts: sum(counts) <= 5))
    # Small whole steps make plateaus and ties frequent; the other times are any floats.
    rise = draw(st.sampled_from([st.integers(0, 3).map(float), st.floats(0, 10, allow_subnormal=False)]))
    tables = []
    for _ in counts:
        rises = draw(st.lists(rise, min_size=1, max_size=batch))
        tables.append(np.append(0.0, 0.5 + np.cumsum(rises)))
    room = sum(count * (len(table) - 1) for count, table in zip(counts, tables, strict=True))
    batch = min(batch, room)
    workers = sum(counts)
    pause = draw(st.lists(rise, min_size=workers - 1, max_size=workers - 1))
    pauses = pause if draw(st.booleans()) else np.cumsum(pause)  # any order, or growing as real ones do
    communication = np.concatenate([[0.0, 0.0], pauses])
    kind = np.array(draw(st.permutations(np.repeat(np.arange(len(counts)), counts).tolist())))
    return sharing_problem(tables, np.array(counts), batch, communication), kind


@settings(max_examples=400, deadline=None)
@given(problems())
def test_no_split_is_faster(case: tuple[Problem, np.ndarray]) -> None:
    problem, kind = case
    shares = optimal_shares(problem, kind)
    tried = _tried(problem, kind)
    assert shares.sum() == problem.batch
    assert tried[tuple(shares.tolist())] == min(tried.values())  # a legal split, and exactly the best value
    fewest = min(np.count_nonzero(split) for split, step in tried.items() if step == min(tried.values()))
    assert np.count_nonzero(shares) == fewest == best_worker_count(problem)


@settings(max_examples=150, deadline=None)
@given(problems(), st.data())
def test_finish_time_is_the_best_of_all_splits_over_just_these_workers(
    case: tuple[Problem, np.ndarray], data: st.DataObject
) -> None:
    problem, kind = case
    tried = _tried(problem, kind)
    example = np.array(data.draw(st.sampled_from(sorted(tried))))
    used = np.bincount(kind[example > 0], minlength=len(problem.counts))

    def kinds_used(split: tuple[int, ...]) -> list[int]:
        return np.bincount(kind[np.array(split) > 0], minlength=len(problem.counts)).tolist()

    quiet = sharing_problem(problem.tables, problem.counts, problem.batch, np.zeros_like(problem.communication))
    best = min(_step(quiet, kind, split) for split in tried if kinds_used(split) == used.tolist())
    assert finish_time(problem, used) == best


def test_thousands_of_seeded_instances_with_convex_communication() -> None:
    rng = np.random.default_rng(7)
    for _ in range(2000):
        counts = rng.integers(1, 3, size=rng.integers(1, 4))
        batch = int(rng.integers(1, 9))
        tables = [
            np.append(0.0, rng.uniform(0, 2) + rng.uniform(0.1, 3) * np.arange(1, int(rng.integers(1, 9)) + 1))
            for _ in counts
        ]
        batch = min(batch, int(counts @ np.array([len(table) - 1 for table in tables])))
        ring = np.arange(counts.sum() + 1)
        communication = rng.uniform(0, 1) * np.maximum(ring - 1, 0) + rng.uniform(0, 2) * (1 - 1 / np.maximum(ring, 1))
        problem = sharing_problem(tables, counts, batch, communication)
        kind = np.repeat(np.arange(len(counts)), counts)
        tried = _tried(problem, kind)
        assert tried[tuple(optimal_shares(problem, kind).tolist())] == min(tried.values())


def test_many_equal_workers_agree_with_one_kind_each() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        kinds, batch = 4, int(rng.integers(20, 300))
        counts = rng.integers(1, 12, size=kinds)
        tables = [np.append(0.0, rng.uniform(0.1, 3) + rng.uniform(0.1, 2) * np.arange(1, batch + 1)) for _ in counts]
        communication = np.append(0.0, rng.uniform(0, 0.5) * np.arange(counts.sum()))
        kind = np.repeat(np.arange(kinds), counts)
        grouped = sharing_problem(tables, counts, batch, communication)
        single = sharing_problem(
            [tables[which] for which in kind], np.ones(len(kind), dtype=np.int64), batch, communication
        )
        together = optimal_shares(grouped, kind)
        apart = optimal_shares(single, np.arange(len(kind)))
        assert _step(grouped, kind, tuple(together)) == _step(grouped, kind, tuple(apart))


def test_constant_speeds_share_in_proportion() -> None:
    tables = [np.arange(129) / speed for speed in (12.0, 12.0, 8.0, 16.0)]
    problem = sharing_problem(tables, np.ones(4, dtype=np.int64), 96, np.zeros(5))
    assert optimal_shares(problem, np.arange(4)).tolist() == [24, 24, 16, 32]


def test_room_that_costs_no_time_is_filled_evenly_and_in_order() -> None:
    flat = np.concatenate([[0.0], np.ones(8), np.full(8, 2.0)])
    problem = sharing_problem([flat], np.array([2]), 11, np.zeros(3))
    assert optimal_shares(problem, np.array([0, 0])).tolist() == [6, 5]
    strict = np.arange(9.0)
    problem = sharing_problem([strict], np.array([3]), 10, np.zeros(4))
    assert optimal_shares(problem, np.array([0, 0, 0])).tolist() == [4, 3, 3]


def test_a_worker_whose_communication_costs_more_than_it_brings_is_left_out() -> None:
    fast, slow = np.arange(17) / 100.0, np.arange(17) / 2.0
    problem = sharing_problem([slow, fast], np.array([1, 1]), 16, np.array([0.0, 0.0, 1.2]))
    assert optimal_shares(problem, np.array([0, 1])).tolist() == [0, 16]


def test_communication_need_not_grow_with_the_workers() -> None:
    # Two fast workers hold the batch; the third one's single sample takes longer than it saves in communication.
    problem = sharing_problem([np.arange(2.0), np.arange(3) * 9.0], np.array([2, 1]), 2, np.array([0.0, 0, 5, 0]))
    assert optimal_shares(problem, np.array([0, 0, 1])).tolist() == [1, 1, 0]
    problem = sharing_problem([np.arange(3.0), np.arange(4) * 9.0], np.array([2, 1]), 3, np.array([0.0, 0, 5, 0]))
    assert optimal_shares(problem, np.array([0, 0, 1])).tolist() == [2, 1, 0]
    problem = sharing_problem([np.arange(3.0), np.arange(4) * 6.0], np.array([2, 1]), 3, np.array([0.0, 0, 5, 0]))
    assert optimal_shares(problem, np.array([0, 0, 1])).tolist() == [1, 1, 1]


def test_a_batch_smaller_than_the_number_of_workers_goes_to_the_fastest() -> None:
    problem = sharing_problem([np.arange(4.0), np.arange(4.0) / 2], np.array([3, 2]), 2, np.zeros(6))
    assert optimal_shares(problem, np.array([0, 0, 0, 1, 1])).tolist() == [0, 0, 0, 1, 1]


def test_caps_are_kept() -> None:
    problem = sharing_problem([np.arange(4) / 100.0, np.arange(20.0)], np.array([1, 2]), 17, np.zeros(4))
    assert optimal_shares(problem, np.array([0, 1, 1])).tolist() == [3, 7, 7]


def test_ten_thousand_workers_of_twenty_kinds() -> None:
    rng = np.random.default_rng(1)
    kinds, each, batch = 20, 500, 20_000
    tables = [rng.uniform(0.01, 0.05) + rng.uniform(0.001, 0.02) * np.arange(batch + 1) for _ in range(kinds)]
    for table in tables:
        table[0] = 0
    communication = 1e-5 * np.arange(kinds * each + 1)
    communication[:2] = 0
    problem = sharing_problem(tables, np.full(kinds, each), batch, communication)
    kind = np.tile(np.arange(kinds), each)
    shares = optimal_shares(problem, kind)
    assert shares.sum() == batch
    step = _step(problem, kind, tuple(shares))
    # No number of workers does better, each judged without the search over numbers.
    for workers in range(1, kinds * each, 997):
        order = np.argsort([table[batch // workers] for table in tables])
        used = np.zeros(kinds, dtype=np.int64)
        left = workers
        for which in order:
            used[which] = min(each, left)
            left -= used[which]
        assert step <= finish_time(problem, used) + communication[workers]


@pytest.mark.parametrize(("workers", "batch"), list(itertools.product((1, 2, 3, 7), (1, 3, 16, 100))))
def test_equal_shares_differ_by_one_at_most(workers: int, batch: int) -> None:
    shares = equal_shares(workers, batch)
    assert shares.sum() == batch
    assert shares.max() - shares.min() <= 1
    assert (np.diff(shares) <= 0).all()
