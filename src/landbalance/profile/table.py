"""What is being measured, live: a table in a terminal, plain lines in a log file."""

import logging
import sys
import time
from types import TracebackType
from typing import Self

from landbalance.profile.rounds import Rounds
from landbalance.profiles import typical

_log = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES = 10.0


class LiveTable:
    """Shows the rounds measured so far; use it as a context manager.

    Parameters
    ----------
    budget : float
        Seconds after which measuring ends.
    shown : bool
        Whether this process is the one that shows it.
    """

    def __init__(self, rounds: Rounds, budget: float, shown: bool) -> None:
        self._rounds, self._budget, self._shown = rounds, budget, shown
        self._lines = 0
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def update(self, spent: float) -> None:
        """Show what is known after `spent` seconds."""
        if not self._shown:
            return
        left = f"at most {max(self._budget - spent, 0):.0f} s left"
        if sys.stderr.isatty():
            self._clear()
            lines = [*table_lines(self._rounds), f"profile: {left}"]
            sys.stderr.write("\n".join(lines) + "\n")
            sys.stderr.flush()
            self._lines = len(lines)
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            _log.info("profile: %d rounds, worst ±%.1f %%, %s", len(self._rounds.taken), self._worst(), left)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and kind is None:
            self._clear()
            for line in table_lines(self._rounds):
                _log.info("%s", line)

    def _worst(self) -> float:
        return min(100 * self._rounds.doubt(), 999.0)

    def _clear(self) -> None:
        if self._lines:
            sys.stderr.write(f"\x1b[{self._lines}A\x1b[J")
            self._lines = 0


def table_lines(rounds: Rounds) -> list[str]:
    """Return a line per round: shares, seconds of the step, its confidence, samples a second, steps, outliers."""
    lines = ["samples by worker      step   ±95 %  samples/s  steps  outliers"]
    for samples, taken in sorted(rounds.taken.items(), key=lambda item: (sum(item[0]), item[0])):
        if not taken.steps:
            continue
        found = typical(taken.steps)
        # Many workers: how many have which share.
        shares = " + ".join(
            f"{samples.count(share)}×{share}"
            if samples.count(share) > 2
            else " + ".join([f"{share}"] * samples.count(share))
            for share in dict.fromkeys(samples)
        )
        doubt = f"{100 * found.half_width:.1f} %" if found.half_width < 10 else "?"
        lines.append(
            f"{shares:<18} {found.median:8.4f} s {doubt:>7} {sum(samples) / found.median:10.1f} {len(taken.steps):6} "
            f"{len(found.outliers):9}"
        )
    return lines
