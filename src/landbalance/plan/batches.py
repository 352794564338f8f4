"""What other global batch sizes would give on the same workers."""

import numpy as np

from landbalance.plan.problem import best_shares
from landbalance.plan.workers import Workers
from landbalance.plans import BatchPoint

WELL_USED = 0.9
"""A global batch size uses the platform well from this share of the highest samples per second on."""

_OCTAVES = 3


def batch_points(workers: Workers, batch: int, hard: bool) -> list[BatchPoint]:
    """Return what batch sizes from `batch` / 8 to 8 · `batch` give, each shared as well as can be.

    The sizes are powers of two and halfway between them, and `batch` itself; those that do not fit in memory are left
    out. A size is recommended from `WELL_USED` of the highest speed on, where no share is extrapolated.

    Parameters
    ----------
    workers : Workers
        All workers of the cluster.
    batch : int
        The user's global batch size.
    hard : bool
        Whether a share above a worker's cap cannot be computed in rounds.
    """
    found = []
    for size in _sizes(batch):
        shares = best_shares(workers, size, hard)
        if shares is None:
            continue
        step = float(workers.seconds(shares).max() + workers.communication[np.count_nonzero(shares)])
        found.append((size, int(np.count_nonzero(shares)), step, bool(workers.extrapolated(shares).any())))
    best = max((size / step for size, _, step, _ in found), default=0.0)
    return [
        BatchPoint(
            batch_size=size,
            workers=used,
            step_seconds=step,
            samples_per_second=size / step,
            fraction_of_best=size / step / best,
            extrapolated=extrapolated,
            recommended=not extrapolated and size / step >= WELL_USED * best,
        )
        for size, used, step, extrapolated in found
    ]


def _sizes(batch: int) -> list[int]:
    low, high = max(1, batch >> _OCTAVES), batch << _OCTAVES
    powers = [2**exponent for exponent in range(high.bit_length())]
    sizes = {batch, *powers, *(3 * power // 2 for power in powers)}
    return sorted(size for size in sizes if low <= size <= high)
