"""Signs of life between workers, so that one that hangs or is gone can be named."""

import json
import logging
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from landbalance.distributed.clock import Clock
from landbalance.distributed.group import store_client
from landbalance.distributed.place import Place

_log = logging.getLogger(__name__)
_SECONDS = 1.0
_SILENCE = 4 * _SECONDS
"""Whoever gives no sign for so long is named; after an error all others still have time to look."""


class Heartbeat:
    """Gives a sign of life every second, from a thread, through the store that rank 0 serves.

    Attributes
    ----------
    titles : sequence of str
        Names of the workers, by rank, for messages.
    """

    def __init__(self, place: Place, titles: Sequence[str], clock: Clock) -> None:
        self.titles = titles
        self._rank, self._clock = place.rank, clock
        self._store = store_client(place, timedelta(seconds=_SILENCE))
        self._beats = 0
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()

    def _beat(self) -> None:
        while True:
            self._beats += 1
            sign = {"beats": self._beats, "steps": self._clock.steps, "waits": self._clock.waits}
            try:
                self._store.set(_key(self._rank), json.dumps(sign))
            except (dist.DistError, RuntimeError):
                return
            time.sleep(_SECONDS)

    def verdict(self) -> str:
        """Return which worker is to blame for a lost contact; the first verdict holds for all workers."""
        found = [f"worker 0 ({self.titles[0]}) gives no sign of life"]
        # A store whose process hangs does not keep to any time limit, so the asking is left behind then.
        asking = threading.Thread(target=lambda: found.append(self._asked()), daemon=True, name="verdict")
        asking.start()
        asking.join(2.5 * _SILENCE)
        return found[-1]

    def _asked(self) -> str:
        try:
            if self._store.check(["verdict"]):
                return self._store.get("verdict").decode()
            before = self._signs()
            time.sleep(_SILENCE)
            mine = _verdict(before, self._signs(), self.titles)
            said = self._store.compare_set("verdict", "", mine).decode()
            if self._rank == 0:
                time.sleep(_SILENCE)  # the store goes with this process; the others are still to read it
            return said
        except (dist.DistError, RuntimeError):
            return f"worker 0 ({self.titles[0]}) does not answer"

    def _signs(self) -> list[dict[str, int]]:
        keys = [_key(rank) for rank in range(len(self.titles))]
        return [json.loads(self._store.get(key)) if self._store.check([key]) else {} for key in keys]


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"


def _verdict(before: Sequence[dict[str, int]], after: Sequence[dict[str, int]], titles: Sequence[str]) -> str:
    """Return who is silent, or else who computes while the others wait, from signs taken some time apart."""
    ranks = range(len(titles))
    silent = [rank for rank in ranks if after[rank].get("beats") == before[rank].get("beats")]
    busy = [rank for rank in ranks if not after[rank].get("waits")]
    if silent:
        return "; ".join(
            f"worker {rank} ({titles[rank]}) gives no sign of life since step {after[rank].get('steps', 0)} of this run"
            for rank in silent
        )
    if 0 < len(busy) < len(titles):
        return "; ".join(
            f"worker {rank} ({titles[rank]}) computes on in step {after[rank].get('steps', 0)} of this run; others wait"
            for rank in busy
        )
    return "all workers give signs of life: look at the network between them"
