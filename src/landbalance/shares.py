"""Whole shares of a batch that make the slowest worker finish as early as it can.

Workers come in kinds with equal step times, so the work grows with the number of kinds, hardly with that
of workers. Nothing here is rounded: every finish time is a value of some kind's time table, and the search
runs over the sorted values themselves.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Times = NDArray[np.float64]


def equal_shares(workers: int, batch: int) -> Counts:
    """Return `batch` samples over `workers` workers, in order: the first ones have one more. Shape (workers,)."""
    share, more = divmod(batch, workers)
    return np.where(np.arange(workers) < more, share + 1, share).astype(np.int64)


@dataclass(frozen=True)
class Problem:
    """A batch, and the workers that can share it; see `sharing_problem`.

    ``levels`` are all times at which some worker can finish, ascending: 0 first. A level is an index into them.
    """

    tables: tuple[Times, ...]
    counts: Counts
    batch: int
    communication: Times
    levels: Times


def sharing_problem(tables: Sequence[Times], counts: Counts, batch: int, communication: Times) -> Problem:
    """Return the problem of sharing a batch.

    Parameters
    ----------
    tables : sequence of NDArray[np.float64]
        For each kind of worker the seconds of 0, 1, …, cap samples: 0 first, above 0 and non-decreasing after.
    counts : NDArray[np.int64]
        Workers of each kind, each at least 1; shape (kinds,).
    batch : int
        Samples to share, at least 1 and at most what all caps hold.
    communication : NDArray[np.float64]
        Seconds that 0, 1, …, Σ counts workers spend in communication; shape (Σ counts + 1,).
    """
    rising = tuple(np.maximum.accumulate(table[: batch + 1]) for table in tables)
    assert batch <= sum(int(count) * (len(table) - 1) for count, table in zip(counts, rising, strict=True))
    return Problem(rising, counts, batch, communication, np.unique(np.concatenate(rising)))


def optimal_shares(problem: Problem, kind: Counts) -> Counts:
    """Return the shares that minimise ``max(seconds) + communication[workers used]``.

    Of equally fast choices the one with the fewest workers is taken; among those the workers that can
    do most, in order. Workers whose share could be larger without a later finish are filled evenly.

    Parameters
    ----------
    problem : Problem
        The batch and the kinds.
    kind : NDArray[np.int64]
        The kind of each worker, in the order of the result; shape (workers,).

    Returns
    -------
    NDArray[np.int64]
        Samples of each worker, 0 for one that is left out; shape (workers,).
    """
    workers = best_worker_count(problem)
    level = max(_first_level(problem, workers), _level_of(problem, _first_samples(problem)[workers - 1]))
    capacity = _capacities(problem, level)
    used = np.sort(np.argsort(-capacity[kind], kind="stable")[:workers])
    shares = np.zeros(len(kind), dtype=np.int64)
    shares[used] = shares_of_all(problem, kind[used])
    return shares


def best_worker_count(problem: Problem) -> int:
    """Return the number of workers with the shortest step, exact for every number; the fewest among equals.

    With p workers the batch is done at ``max(T1(p), T2(p))``: T1, the first time at which the p most capable
    workers hold the batch, falls with p; T2, the time at which the p-th worker has done one sample, grows. An
    interval [a, b] of numbers can thus not beat ``max(T1(b), T2(p)) + communication(p)``: intervals are
    halved, the most promising first, until none can beat the best number seen.
    """
    largest = int(min(problem.counts.sum(), problem.batch))
    first, communication = _first_samples(problem)[:largest], problem.communication[1 : largest + 1]

    def step(workers: int, level: int) -> float:
        return float(max(_time(problem, level), first[workers - 1]) + communication[workers - 1])

    def bound(low: int, high: int, level: int) -> tuple[float, int]:
        steps = np.maximum(_time(problem, level), first[low - 1 : high]) + communication[low - 1 : high]
        offset = int(np.argmin(steps))
        return float(steps[offset]), low + offset

    bottom, top = _first_level(problem, largest), _first_level(problem, 1)
    best = min((step(1, top), 1), (step(largest, bottom), largest))
    waiting = [(bound(1, largest, bottom), 1, largest, top, bottom)]
    while waiting:
        promise, low, high, upper, lower = heapq.heappop(waiting)
        if promise >= best:
            break
        if high - low <= 1:  # both ends have been seen
            continue
        middle = (low + high) // 2
        level = _first_level(problem, middle, lower, upper)
        best = min(best, (step(middle, level), middle))
        heapq.heappush(waiting, (bound(low, middle, level), low, middle, upper, level))
        heapq.heappush(waiting, (bound(middle, high, lower), middle, high, level, lower))
    return best[1]


def finish_time(problem: Problem, used: Counts) -> float:
    """Return when the batch is done at the earliest if `used` workers of each kind all take part.

    Each of them holds at least one sample; communication comes on top. ``used`` has shape (kinds,), sums to at
    most the batch, and its caps hold the batch.
    """
    full = _full_level(problem, used)
    held = np.maximum(_capacities(problem, full), 1)
    kinds = np.flatnonzero(used).tolist()
    if int(used @ held) == problem.batch:
        return max(float(problem.tables[kind][held[kind]]) for kind in kinds)
    return max(float(problem.levels[full + 1]), *(float(problem.tables[kind][1]) for kind in kinds))


def shares_of_all(problem: Problem, kind: Counts) -> Counts:
    """Return the earliest-finishing shares of workers that all take part; `kind` and result have shape (used,)."""
    full = _full_level(problem, np.bincount(kind, minlength=len(problem.counts)))
    low = np.maximum(_capacities(problem, full), 1)[kind]
    if low.sum() == problem.batch:
        return np.asarray(low)
    high = np.maximum(_capacities(problem, full + 1), 1)[kind]
    # Kinds that finish more samples by the next level are filled to one common share; what is left goes in order.
    common, above = 0, int(high.max())
    while above - common > 1:
        middle = (common + above) // 2
        fits = np.clip(middle, low, high).sum() <= problem.batch
        common, above = (middle, above) if fits else (common, middle)
    shares = np.clip(common, low, high)
    roomy = np.flatnonzero((low <= common) & (common < high))
    shares[roomy[: problem.batch - int(shares.sum())]] += 1
    return np.asarray(shares)


def _full_level(problem: Problem, used: Counts) -> int:
    """Return the last level at which `used` workers, of at least one sample each, hold no more than the batch."""
    low, high = 0, len(problem.levels)
    while high - low > 1:
        middle = (low + high) // 2
        held = int(used @ np.maximum(_capacities(problem, middle), 1))
        low, high = (middle, high) if held <= problem.batch else (low, middle)
    return low


def _first_level(problem: Problem, workers: int, low: int = 0, high: int | None = None) -> int:
    """Return the first level at which the `workers` most capable workers hold the batch.

    The result is between `low` and `high`; one past the last level means never.
    """
    high = len(problem.levels) if high is None else high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _held(problem, middle, workers) >= problem.batch else (middle + 1, high)
    return low


def _held(problem: Problem, level: int, workers: int) -> int:
    """Return the samples that the `workers` most capable workers finish by `level`."""
    capacity = _capacities(problem, level)
    order = np.argsort(-capacity, kind="stable")
    counts = problem.counts[order]
    taken = np.clip(workers - (np.cumsum(counts) - counts), 0, counts)
    return int(taken @ capacity[order])


def _capacities(problem: Problem, level: int) -> Counts:
    """Return the most samples that a worker of each kind finishes by `level`; shape (kinds,)."""
    time = problem.levels[level]
    return np.array([table.searchsorted(time, side="right") - 1 for table in problem.tables], dtype=np.int64)


def _time(problem: Problem, level: int) -> float:
    return float(problem.levels[level]) if level < len(problem.levels) else np.inf


def _level_of(problem: Problem, time: float) -> int:
    return int(np.searchsorted(problem.levels, time))


def _first_samples(problem: Problem) -> Times:
    """Return the times of one sample of all workers, ascending; shape (workers,)."""
    return np.sort(np.repeat([table[1] for table in problem.tables], problem.counts))
