"""Where to measure: batch sizes at which a curve bends, and shares that finish together. Pure computing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NARROW = 0.1
"""An interval no wider than this part of its lower end is not halved: no plan hangs on it."""


@dataclass(frozen=True)
class Interval:
    """Two neighbouring measured batch sizes of a curve.

    Attributes
    ----------
    error : float
        How far a straight line is off in the interval that this is a part of, relative to the time at the
        lower end; infinite when no size inside was ever measured.
    """

    low: int
    high: int
    error: float

    @property
    def middle(self) -> int:
        """Return the batch size that would be measured next."""
        return (self.low + self.high) // 2

    @property
    def narrow(self) -> bool:
        """Whether there is nothing to learn inside."""
        return self.high - self.low <= max(1.0, _NARROW * self.low)


def intervals(times: Mapping[int, float], doubt: Mapping[int, float] | None = None) -> list[Interval]:
    """Return the intervals of a curve with the errors that were found when they were cut.

    A size that was measured inside of an interval cuts it, and tells how far the straight line was off there.
    Both parts carry that error. Where the curve is convex (or concave), its gap to the line is concave: a gap g
    at the fraction x of the interval bounds the gap everywhere by g / min(x, 1 - x), and no part has a larger
    one. So with an error of g / (2 min(x, 1 - x)), which is g in the middle, no line is off by more than twice the
    error.

    Parameters
    ----------
    times : mapping
        Seconds by batch size, in the order in which they were measured.
    doubt : mapping
        How far each time may be off, in seconds; so much of a gap is no bend.
    """
    found: dict[tuple[int, int], float] = {}
    known: dict[int, float] = {}
    ends = [min(times), max(times)]
    for size in [*ends, *(size for size in times if size not in ends)]:
        below = max((other for other in known if other < size), default=None)
        above = min((other for other in known if other > size), default=None)
        error = math.inf
        if below is not None and above is not None:
            found.pop((below, above))
            line = seconds_at({below: known[below], above: known[above]}, size)
            gap = max(abs(times[size] - line) - (doubt or {}).get(size, 0.0), 0.0)
            error = gap / known[below] * (above - below) / (2 * min(size - below, above - size))
        if below is not None:
            found[below, size] = error
        if above is not None:
            found[size, above] = error
        known[size] = times[size]
    return [Interval(low, high, error) for (low, high), error in sorted(found.items()) if low < high]


def worst_interval(parts: Sequence[Interval], tolerance: float) -> Interval | None:
    """Return the interval to measure in next; None when a straight line is good enough in all of them."""
    wide = [part for part in parts if part.error > tolerance and not part.narrow]
    return max(wide, key=lambda part: (part.error, part.high / part.low), default=None)


def seconds_at(times: Mapping[int, float], size: float) -> float:
    """Return the time of `size` samples: linear between measured sizes, in proportion beyond the last one."""
    if size <= 0:
        return 0.0
    sizes = sorted(times)
    if size >= sizes[-1]:
        return times[sizes[-1]] * size / sizes[-1]
    if size <= sizes[0]:
        return times[sizes[0]]
    above = next(index for index, other in enumerate(sizes) if other > size)
    low, high = sizes[above - 1], sizes[above]
    return times[low] + (times[high] - times[low]) * (size - low) / (high - low)


def most_within(times: Mapping[int, float], seconds: float, cap: int) -> int:
    """Return the most samples, up to `cap`, that take no longer than `seconds`."""
    low, high = 0, cap
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if seconds_at(times, middle) <= seconds else (low, middle - 1)
    return low


def finishing_together(curves: Sequence[Mapping[int, float]], batch: int, caps: Sequence[int | None]) -> list[int]:
    """Return shares of `batch` samples that take all workers about as long.

    Where these are measured, the plan will look for its own: it may leave workers out and weighs communication.

    Parameters
    ----------
    curves : sequence of mappings
        Seconds by batch size of each worker.
    batch : int
        Samples to share out; less is when the caps do not allow it.
    caps : sequence of int or None
        The most samples of each worker.
    """
    limits = [batch if cap is None else min(cap, batch) for cap in caps]
    low, high = 0.0, max(seconds_at(times, limit) for times, limit in zip(curves, limits, strict=True))
    for _ in range(50):
        middle = (low + high) / 2
        found = sum(most_within(times, middle, limit) for times, limit in zip(curves, limits, strict=True))
        low, high = (low, middle) if found >= batch else (middle, high)
    shares = [most_within(times, low, limit) for times, limit in zip(curves, limits, strict=True)]
    for _ in range(min(batch, sum(limits)) - sum(shares)):
        free = [index for index, share in enumerate(shares) if share < limits[index]]
        shares[min(free, key=lambda index: seconds_at(curves[index], shares[index] + 1))] += 1
    return shares


def equal(batch: int, workers: int) -> list[int]:
    """Return the shares of stock data parallelism: as equal as whole samples allow."""
    return [batch // workers + (index < batch % workers) for index in range(workers)]
