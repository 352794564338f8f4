"""Work that is spread over all cores, its results in order."""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def on_all_cores(function: Callable[[T], U], items: Sequence[T], least: int) -> Iterator[U]:
    """Yield what `function` returns for each item, by a process for each core.

    For what is mostly Python's own work, which threads would do one after another.

    Parameters
    ----------
    function : callable
        It can be pickled, as can its items and what it returns.
    least : int
        Items that make a process worth its start; with fewer than two times as many all is done here.
    """
    workers = min(cores(), len(items) // least)
    if workers < 2:
        yield from map(function, items)
        return
    # Not forked: a copy of a process with threads, such as a progress bar's, may hang.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as executor:
        yield from in_order(executor, function, items, 2 * workers)


def in_order(executor: Any, function: Callable[[T], U], items: Iterable[T], ahead: int) -> Iterator[U]:
    """Yield what `function` returns for each item, while up to `ahead` more are worked on."""
    waiting: deque[Future[U]] = deque()
    for item in items:
        waiting.append(executor.submit(function, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
