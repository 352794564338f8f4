"""Moving shares while a job trains, when a machine became slower or faster than it was profiled.

The split changes who computes, never what is computed: so shares may move at any step, as long as
all workers move them at the same one. In every step all workers learn how long each of them computed
in the step before, waiting excluded; what follows from that, worker 0 says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from landbalance.curves import TimeCurve
from landbalance.shares import shares_of_all, sharing_problem

WINDOW = 16
"""Steps whose medians are looked at together: a single late step moves nothing."""
GAIN = 0.1
"""Shares move only if steps become faster by more than this part, …"""
PATIENCE = 2
"""… in so many windows one after the other; noise seldom says the same twice."""
NOTICE = 8
"""Steps between the decision and the first step with new shares; batches are read ahead by fewer."""


@dataclass(frozen=True)
class Change:
    """Shares from a step on, and why they moved."""

    step: int
    shares: list[int]
    reason: str


@dataclass
class Shares:
    """The shares by step: those of the plan, until a change takes over; steps count from the job's first."""

    planned: list[int]
    changes: list[Change] = field(default_factory=list)

    def at(self, step: int) -> list[int]:
        """Return each worker's samples of a whole batch in this step."""
        return next((change.shares for change in reversed(self.changes) if change.step <= step), self.planned)


@dataclass
class Watch:
    """Watches how long workers compute, and says when other shares are worth it.

    Attributes
    ----------
    tables : NDArray[np.float64]
        Seconds that worker i was profiled to compute n samples, at ``[i][n]``; 0 for none.
    """

    tables: list[NDArray[np.float64]]
    titles: Sequence[str]
    _window: list[NDArray[np.float64]] = field(default_factory=list)
    _agreed: int = 0

    @property
    def looked(self) -> bool:
        """Whether the last step told was the last of a window."""
        return not self._window

    def change(self, step: int, shares: Sequence[int], seconds: NDArray[np.float64]) -> Change | None:
        """Return the change that is due after `step` took `seconds` of computing with `shares`; None if none is.

        Only steps on a whole batch are to be told.
        """
        self._window.append(seconds)
        if len(self._window) < WINDOW:
            return None
        typical = np.median(self._window, axis=0)
        self._window.clear()
        scaled = [
            table * (now / table[share] if share and table[share] > 0 else 1.0)
            for table, share, now in zip(self.tables, shares, typical, strict=True)
        ]
        better = faster_shares(scaled, sum(shares))
        then = max(float(table[share]) for table, share in zip(scaled, better, strict=True))
        gain = float(typical.max()) / then - 1
        self._agreed = self._agreed + 1 if gain > GAIN else 0
        if self._agreed < PATIENCE:
            return None
        self._agreed = 0
        worker = int(
            np.argmax(np.abs(np.log([t[s] / p[s] for t, p, s in zip(scaled, self.tables, shares, strict=True)])))
        )
        reason = (
            f"worker {worker} ({self.titles[worker]}) computes {shares[worker]} samples in {typical[worker]:.3f} s, "
            f"not in {self.tables[worker][shares[worker]]:.3f} s; the longest computing falls from "
            f"{typical.max():.3f} s to {then:.3f} s"
        )
        return Change(step + NOTICE, better, reason)


def faster_shares(tables: Sequence[NDArray[np.float64]], batch: int) -> list[int]:
    """Return the shares of `batch` with which the last worker is done first; each has a sample at least.

    Every worker of the job goes on: a share of 0 would end the measuring of a worker that may recover.
    """
    counts = np.ones(len(tables), dtype=np.int64)
    problem = sharing_problem(tables, counts, batch, np.zeros(len(tables) + 1))
    shares: list[int] = shares_of_all(problem, np.arange(len(tables))).tolist()
    return shares


def time_tables(curves: Sequence[TimeCurve], batch: int, at_once: bool) -> list[NDArray[np.float64]]:
    """Return each worker's seconds of 0 … `batch` samples; up to its memory's cap only if all must be `at_once`."""
    mosts = [min(curve.cap, batch) if at_once and curve.cap is not None else batch for curve in curves]
    return [curve.seconds(np.arange(most + 1)) for curve, most in zip(curves, mosts, strict=True)]
