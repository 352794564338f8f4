"""Which sample goes where: one permutation per epoch, cut into steps, cut into the workers' slices."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_STREAM = 0
"""Stream of random numbers; no two purposes share one (see `landbalance.batches`)."""


def epoch_order(ids: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return `ids` in the order of this epoch, which depends on the seed and the epoch alone."""
    return np.random.default_rng([_STREAM, seed, epoch]).permutation(ids)


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Return the number of steps in which each sample is used once; the last may be smaller."""
    return -(-samples // batch_size)


def slice_of(step: int, order: NDArray[np.int64], shares: Sequence[int], rank: int) -> NDArray[np.int64]:
    """Return the samples of worker `rank` in step `step`.

    Step k takes positions [kB, (k+1)B) of the order, whatever the shares; each worker takes a
    slice. A last, smaller batch is split in the same proportions.
    """
    batch_size = sum(shares)
    batch = order[step * batch_size : (step + 1) * batch_size]
    sizes = shares if len(batch) == batch_size else proportional(len(batch), shares)
    start = sum(sizes[:rank])
    return batch[start : start + sizes[rank]]


def proportional(count: int, shares: Sequence[int]) -> list[int]:
    """Return integers in proportion to `shares` that sum to `count`, by largest remainders.

    >>> proportional(5, [7, 3]), proportional(1, [1, 1, 14])
    ([4, 1], [0, 0, 1])
    """
    total = sum(shares)
    sizes = [count * share // total for share in shares]
    remainders = [count * share % total for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda rank: (-remainders[rank], -shares[rank], rank))
    for rank in by_remainder[: count - sum(sizes)]:
        sizes[rank] += 1
    return sizes
