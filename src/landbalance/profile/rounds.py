"""Which steps to take next: rounds that all workers take together, chosen from what is known so far. Pure computing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from landbalance.profile.points import (
    equal,
    finishing_together,
    intervals,
    most_within,
    seconds_at,
    worst_interval,
)
from landbalance.profiles import Typical, typical

_SETTLING = 3
"""So often shares are drawn anew from what was measured at the last ones."""
_NEAR = 0.1
"""A measured batch size serves in place of one so near."""
_FEWEST = 3
_BRIEF = 0.06
"""Part of the time that the steps of a first visit may take."""
_BENDS_UNTIL = 0.6
"""Part of the time after which no new batch sizes are measured, but known ones better."""


@dataclass
class Taken:
    """Raw timings of one round.

    Attributes
    ----------
    computed : list of list of float
        Seconds of computing, by worker.
    steps, apart : list of float
        Seconds of whole steps with and without communication, the slowest worker's.
    """

    computed: list[list[float]]
    steps: list[float] = field(default_factory=list)
    apart: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Visit:
    """Steps to take: shares by worker, how many steps, with communication or apart."""

    samples: tuple[int, ...]
    repeats: int
    apart: bool = False

    @property
    def lone(self) -> bool:
        """Whether one of several workers takes steps, as it would if it trained alone."""
        return is_lone(self.samples)


def is_lone(samples: Sequence[int]) -> bool:
    """Return whether only one of several workers has samples: then there is nobody to communicate with."""
    return len(samples) > 1 and sum(map(bool, samples)) == 1


@dataclass
class Rounds:
    """All that was measured of a node's workers, and what is worth measuring next.

    Attributes
    ----------
    kinds : list of int
        The entry of the node's description that each worker belongs to.
    batches : list of int
        The global batch sizes that experiments use, ascending.
    caps : list of int or None
        The most samples of each worker.
    guesses : list of dict
        Seconds by batch size of each worker from a first look; they serve until there are timings.
    smallest : int
        Fewer samples than this cannot be taken by a worker apart.
    """

    kinds: list[int]
    batches: list[int]
    caps: list[int | None]
    guesses: list[dict[int, float]]
    smallest: int
    repeats: int
    tolerance: float
    taken: dict[tuple[int, ...], Taken] = field(default_factory=dict)
    impossible: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, visit: Visit, computed: Sequence[Sequence[float]], whole: Sequence[Sequence[float]]) -> None:
        """Take over the timings of a visit: seconds of computing and of whole steps, by worker."""
        taken = self.taken.setdefault(visit.samples, Taken([[] for _ in self.kinds]))
        steps = [max(values) for values in zip(*(values for values in whole if values), strict=True)]
        if visit.apart and not visit.lone:
            taken.apart += steps
            return
        taken.steps += steps
        for mine, values in zip(taken.computed, computed, strict=True):
            mine += values

    def pooled(self, kind: int) -> dict[int, list[float]]:
        """Return the raw timings of all workers of a kind by batch size, in the order of measuring."""
        result: dict[int, list[float]] = {}
        for samples, taken in self.taken.items():
            for worker, size in enumerate(samples):
                if self.kinds[worker] == kind and size and taken.computed[worker]:
                    result.setdefault(size, []).extend(taken.computed[worker])
        return result

    def known(self, kind: int) -> dict[int, Typical]:
        """Return the times of a kind by batch size, in the order of measuring."""
        return {size: typical(values) for size, values in self.pooled(kind).items()}

    def curve(self, worker: int) -> dict[int, float]:
        """Return seconds by batch size of a worker, as far as is known; guesses beyond and until then."""
        measured = {size: known.median for size, known in self.known(self.kinds[worker]).items()}
        guess = self.guesses[worker]
        if not measured:
            return guess
        # A guess is scaled to the timings, so that the curve has no step where they end.
        low, high = ((end, measured[end] / seconds_at(guess, end)) for end in (min(measured), max(measured)))
        below = {size: seconds * low[1] for size, seconds in guess.items() if size < low[0]}
        above = {size: seconds * high[1] for size, seconds in guess.items() if size > high[0]}
        return below | measured | above

    @property
    def _curves(self) -> list[dict[int, float]]:
        by_kind = {kind: self.curve(self.kinds.index(kind)) for kind in set(self.kinds)}
        return [by_kind[kind] for kind in self.kinds]

    def together(self, batch: int) -> tuple[int, ...]:
        """Return the shares of `batch` that finish together, or measured ones that hardly differ from them."""
        return self._measured_near(tuple(finishing_together(self._curves, batch, self.caps)))

    def main(self) -> list[tuple[int, ...]]:
        """Return the shares that matter most: for each batch, those that finish together; then equal ones."""
        batches = self.batches[::-1]
        shares = [self.together(batch) for batch in batches]
        shares += [self._capped(equal(batch, len(self.kinds))) for batch in batches]
        return list(dict.fromkeys(shares))

    def lone(self) -> tuple[int, ...] | None:
        """Return the largest batch on the fastest worker, all others idle; None for a worker that is alone anyway."""
        if len(self.kinds) == 1:
            return None
        curves, batch = self._curves, self.batches[-1]
        fastest = min(range(len(self.kinds)), key=lambda worker: seconds_at(curves[worker], batch))
        cap = self.caps[fastest]
        share = batch if cap is None else min(batch, cap)
        return tuple(share if worker == fastest else 0 for worker in range(len(self.kinds)))

    def next_visit(self, spent: float, budget: float) -> Visit | None:
        """Return what to measure next after `spent` of `budget` seconds; None when it is enough.

        First the shares that matter, briefly: they are drawn anew from what was measured at the last ones, until
        they settle. Then batch sizes at which a curve bends. Then again whatever is known worst.
        """
        first = [self._brief(visit, budget) for visit in self._first_visits()]
        for visit in [*first, *self._bends(spent, budget), *self._widest()]:
            if fitting := self._fitting(visit, budget - spent):
                return fitting
        if all(self.known(kind) for kind in set(self.kinds)):
            return None
        # The time is over, but without a timing of each kind there is no profile.
        shares = [self.together(self.batches[-1]), self._ones, *self.main()]
        complete = [samples for samples in shares if all(samples) and samples not in self.impossible]
        return Visit(complete[0], _FEWEST) if complete else None

    def doubt(self) -> float:
        """Return the widest half of a confidence interval, as a fraction, over all rounds."""
        return max((self._doubt(samples) for samples in self.taken), default=math.inf)

    def _first_visits(self) -> list[Visit]:
        together, apart = [], []
        settling = sum(bool(taken.steps) for taken in self.taken.values())
        for samples in [*self.main(), self._ones]:
            taken = self.taken.get(samples)
            if samples in self.impossible:
                continue
            if taken is None or not taken.steps:
                if settling < (_SETTLING + 2) * len(self.batches) + 2:
                    together.append(Visit(samples, self.repeats, apart=is_lone(samples)))
            elif not taken.apart and samples != self._ones and self._can_be_apart(samples):
                apart.append(Visit(samples, self.repeats, apart=True))
        lone = self.lone()
        if lone is not None and lone not in self.impossible and not any(map(is_lone, self.taken)):
            apart.append(Visit(lone, self.repeats, apart=True))
        return together + apart

    def _brief(self, visit: Visit, budget: float) -> Visit:
        """Return a first visit with so few steps that slow shares leave time for all others."""
        affordable = int(_BRIEF * budget / self._step(visit.samples))
        return replace(visit, repeats=min(max(affordable, _FEWEST), visit.repeats))

    @property
    def _ones(self) -> tuple[int, ...]:
        return tuple(1 for _ in self.kinds)

    def _bends(self, spent: float, budget: float) -> list[Visit]:
        """Return a round for the interval, of any kind of worker, in which a straight line is worst."""
        if spent > _BENDS_UNTIL * budget:
            return []
        found = []
        for kind in dict.fromkeys(self.kinds):
            known = self.known(kind)
            if not known:
                continue
            times = {size: value.median for size, value in known.items()}
            doubt = {size: (value.high - value.low) / 2 for size, value in known.items()}
            if worst := worst_interval(intervals(times, doubt), self.tolerance):
                found.append((worst.error, worst.high / worst.low, kind, worst.middle))
        return [
            Visit(samples, self.repeats)
            for _, _, kind, size in sorted(found, reverse=True)
            if (samples := self._around(kind, size)) not in self.impossible
        ]

    def _around(self, kind: int, size: int) -> tuple[int, ...]:
        """Return shares that give the workers of a kind `size` samples, and all others what takes as long."""
        curves = self._curves
        wanted = seconds_at(curves[self.kinds.index(kind)], size)
        shares = []
        for worker, curve in enumerate(curves):
            if self.kinds[worker] == kind:
                shares.append(size)
                continue
            cap = self.caps[worker]
            share = most_within(curve, wanted, self.batches[-1] if cap is None else min(cap, self.batches[-1]))
            near = [other for other in self.known(self.kinds[worker]) if abs(other - share) <= _NEAR * share]
            shares.append(min(near, key=lambda other: abs(other - share)) if near else share)
        return tuple(shares)

    def _widest(self) -> list[Visit]:
        """Return visits to rounds that are not known well enough, the worst first."""
        doubts = {samples: self._doubt(samples) for samples in self.taken}
        # Timings in a row say nothing of how a machine drifts, so what matters most is visited twice at least.
        once = {samples for samples in self.main() if samples in self.taken and self._visited_once(samples)}
        visits = []
        for samples in sorted(doubts, key=lambda samples: (samples not in once, -doubts[samples])):
            taken = self.taken[samples]
            if doubts[samples] <= self.tolerance and samples not in once:
                continue
            # Steps with and without communication are compared, so they are taken in turn.
            turn = bool(taken.apart) and len(taken.apart) < len(taken.steps)
            visits.append(Visit(samples, self.repeats, apart=turn or is_lone(samples)))
        return visits

    def _visited_once(self, samples: tuple[int, ...]) -> bool:
        taken = self.taken[samples]
        fewest = 2 * self.repeats
        return len(taken.steps) < fewest or 0 < len(taken.apart) < fewest

    def _doubt(self, samples: tuple[int, ...]) -> float:
        taken = self.taken[samples]
        widths = [typical(values).half_width for values in (taken.steps, taken.apart) if values]
        for worker, size in enumerate(samples):
            if size and taken.computed[worker]:
                widths.append(typical(self.pooled(self.kinds[worker])[size]).half_width)
        return max(widths, default=math.inf)

    def _fitting(self, visit: Visit, left: float) -> Visit | None:
        """Return the visit with as many steps as there is time for; None when those are too few."""
        affordable = int(left / self._step(visit.samples)) - 2
        if affordable < _FEWEST:
            return None
        return replace(visit, repeats=min(visit.repeats, affordable))

    def _step(self, samples: Sequence[int]) -> float:
        """Return about how long a step takes, in seconds."""
        return max(seconds_at(curve, size) for curve, size in zip(self._curves, samples, strict=True))

    def _can_be_apart(self, samples: tuple[int, ...]) -> bool:
        several = len(samples) > 1 and not is_lone(samples)
        return several and all(size == 0 or size >= self.smallest for size in samples)

    def _capped(self, shares: Sequence[int]) -> tuple[int, ...]:
        return tuple(share if cap is None else min(share, cap) for share, cap in zip(shares, self.caps, strict=True))

    def _measured_near(self, shares: tuple[int, ...]) -> tuple[int, ...]:
        """Return measured shares that hardly differ, if there are some, so that drawing them anew comes to an end."""
        for samples in self.taken:
            near = (abs(one - other) <= max(1.0, 0.03 * other) for one, other in zip(shares, samples, strict=True))
            if self.taken[samples].steps and sum(samples) == sum(shares) and all(near) and 0 not in samples:
                return samples
        return shares
