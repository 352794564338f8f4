"""The search's problem for measured workers: which times their shares can take, and which of them fit in memory."""

import numpy as np
from numpy.typing import NDArray

from landbalance.curves import TimeCurve
from landbalance.plan.workers import Workers
from landbalance.shares import Problem, equal_shares, optimal_shares, sharing_problem


def best_shares(workers: Workers, batch: int, hard: bool) -> NDArray[np.int64] | None:
    """Return the shares of `batch` that make a step fastest, shape (workers,); None when memory does not hold it.

    Parameters
    ----------
    workers : Workers
        All workers of the cluster.
    batch : int
        Samples to share, at least 1.
    hard : bool
        Whether a share above a worker's cap cannot be computed in rounds.
    """
    if hard and room(workers, batch) < batch:
        return None
    return optimal_shares(problem_of(workers, batch, hard), workers.kind)


def room(workers: Workers, batch: int) -> int:
    """Return how many samples all workers hold at once; a worker without a cap counts as `batch`."""
    caps = np.array([batch if kind.curve.cap is None else kind.curve.cap for kind in workers.kinds])
    return int(workers.counts @ caps)


def problem_of(workers: Workers, batch: int, hard: bool) -> Problem:
    """Return the problem of sharing `batch`, which must fit in memory.

    Tables end at what a worker finishes within a step that is known to be possible: equal shares, or the fastest
    worker alone. No better step has a larger share, so that nothing is lost, and thousands of workers stay cheap.
    """
    enough = _possible_step(workers, batch, hard)
    tables = []
    for kind in workers.kinds:
        most = batch if kind.curve.cap is None or not hard else min(kind.curve.cap, batch)
        tables.append(kind.curve.seconds(np.arange(_most_within(kind.curve, enough, most) + 1)))
    return sharing_problem(tables, workers.counts, batch, workers.communication)


def _possible_step(workers: Workers, batch: int, hard: bool) -> float:
    """Return the seconds of the faster of two simple ways to share; infinite when neither fits in memory."""

    def fits(share: int, cap: int | None) -> bool:
        return not hard or cap is None or share <= cap

    steps = [np.inf]
    equal = equal_shares(len(workers), batch)
    if all(fits(int(equal[0]), kind.curve.cap) for kind in workers.kinds):
        steps.append(workers.seconds(equal).max() + workers.communication[np.count_nonzero(equal)])
    steps += [
        kind.curve.seconds(batch) + workers.communication[1] for kind in workers.kinds if fits(batch, kind.curve.cap)
    ]
    return float(min(steps))


def _most_within(curve: TimeCurve, seconds: float, most: int) -> int:
    """Return the largest number of samples up to `most` that take no longer than `seconds`; at least 1."""
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if float(curve.seconds(middle)) <= seconds else (low, middle)
    return low
