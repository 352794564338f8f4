"""A worker's clock: how long it computed, how long it waited; and the emulation of a slow device."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch


@dataclass
class Clock:
    """Splits the time of a step into computing and waiting for other workers.

    An emulated worker (`slowdown` above 1) idles before it joins a collective, until what it
    computed since the last one has taken `slowdown` times as long: to all others, and to this
    clock, it looks like a device that much slower.

    Attributes
    ----------
    computed, waited : float
        Seconds since the step began.
    steps : int
        Training steps begun so far.
    waits : bool
        Whether this worker has done its part and waits for the others.
    """

    device: torch.device
    slowdown: float = 1.0
    computed: float = field(default=0.0, init=False)
    waited: float = field(default=0.0, init=False)
    steps: int = field(default=0, init=False)
    waits: bool = field(default=False, init=False)
    _mark: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Begin a step."""
        self._synchronise()
        self.computed = self.waited = 0.0
        self.waits = False
        self._mark = time.perf_counter()

    def pause(self) -> None:
        """End a stretch of computing; call it before joining a collective, and at a step's end."""
        self._synchronise()
        if self.slowdown > 1:
            time.sleep((self.slowdown - 1) * (time.perf_counter() - self._mark))
        now = time.perf_counter()
        self.computed += now - self._mark
        self._mark = now
        self.waits = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count what happens inside as waiting for others."""
        self.pause()
        yield
        self._synchronise()
        self.resume()

    def resume(self) -> None:
        """Begin a stretch of computing; what passed since `pause` was waiting."""
        now = time.perf_counter()
        self.waited += now - self._mark
        self._mark = now
        self.waits = False

    @property
    def elapsed(self) -> float:
        """Return the seconds since `start` that are accounted for."""
        return self.computed + self.waited

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            # This stream alone: others hold the sums of gradients, which is waiting.
            torch.cuda.current_stream(self.device).synchronize()
