"""Progress with an ETA: a bar in a terminal, plain lines in a log file."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)
_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts work done towards `total`; use it as a context manager.

    Parameters
    ----------
    title : str
        What is being done, e.g. ``tile havel``.
    total : float or None
        The amount of work in `unit`; None when it is not known.
    unit : str
        Unit of the amount, e.g. ``tile`` or ``B`` (scaled to kB, MB, …).
    before : float
        Work done by an earlier run; it does not count for the ETA.
    """

    def __init__(self, title: str, total: float | None, unit: str = "it", before: float = 0.0) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._done = self._before = before
        self._note = ""
        self._started = self._last_line = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                initial=before,
                desc=title,
                unit=unit,
                unit_scale=unit == "B",
                dynamic_ncols=True,
                leave=False,
            )

    def __enter__(self) -> Self:
        return self

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """Add `amount` to the work done; `note` stands at the end of the line, e.g. a loss.

        A negative amount takes work back that turned out to be of no use.
        """
        self._done += amount
        self._before = min(self._before, self._done)
        self._note = note or self._note
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(amount)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            _log.info("%s", self._line())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is None:
            seconds = time.monotonic() - self._started
            _log.info("%s: %s in %.1f s", self._title, self._amount(self._done - self._before), seconds)

    def _amount(self, value: float) -> str:
        if self._unit == "B":
            return f"{value / 1e6:.1f} MB"
        return f"{value:.0f} {self._unit}" + ("" if value == 1 else "s")

    def _line(self) -> str:
        tail = f" · {self._note}" if self._note else ""
        if not self._total:
            return f"{self._title}: {self._amount(self._done)}{tail}"
        pace = (time.monotonic() - self._started) / max(self._done - self._before, 1e-9)
        seconds = pace * (self._total - self._done)
        share = 100 * self._done / self._total
        return f"{self._title}: {share:.0f} % of {self._amount(self._total)}, ETA {seconds:.0f} s{tail}"


def tracked(items: Iterable[T], title: str, total: int, unit: str = "it") -> Iterator[T]:
    """Yield `items` while reporting how many of `total` are done."""
    with Progress(title, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()
