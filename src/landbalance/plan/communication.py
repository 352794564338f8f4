"""Time that a step spends in communication with any number of workers, from timings on one node."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from landbalance.profiles import AllReduce


def communication_seconds(measured: Iterable[AllReduce], workers: int) -> NDArray[np.float64]:
    r"""Return the seconds of communication in a step of p = 0 … `workers` workers.

    With w workers, L the median time to sum a single number and T the median time to sum the whole
    gradient were measured. L is taken for latency, T − L for moving bytes; besides the gradient's sum, a step
    waits for n small collectives (of batch norms and of weights):

    .. math:: t(p) = (1 + n) L \frac{h(p)}{h(w)} + (T - L) \frac{2 (p-1) / p}{2 (w-1) / w}, \quad t(0) = t(1) = 0

    A ring moves 2 (p−1)/p of the gradient through each worker (Patarasuk and Yuan 2009,
    10.1016/j.jpdc.2008.09.002). h counts messages one after the other: 2 (p−1) in gloo's ring,
    2 ⌈log₂ p⌉ in NCCL's trees. Both parts grow with p. The slowest of the `measured` kinds of nodes sets
    the pace. What this cannot know: it was measured inside one node, so a slower network between nodes
    comes on top; overlap with the backward pass takes off.

    Parameters
    ----------
    measured : iterable of AllReduce
        Timings of each kind of node; one that was taken with a single worker says nothing.
    workers : int
        The largest number of workers asked for.

    Returns
    -------
    NDArray[np.float64]
        Shape (`workers` + 1,), indexed by the number of workers; 0 where nothing was measured.
    """
    slowest = np.zeros(workers + 1)
    for timings in measured:
        latency = float(np.median(timings.latency_seconds)) if timings.latency_seconds else 0.0
        seconds = seconds_of(timings, np.arange(workers + 1), float(np.median(timings.seconds)), latency)
        slowest = np.maximum(slowest, seconds)
    return slowest


def seconds_of(timings: AllReduce, workers: ArrayLike, whole: ArrayLike, latency: ArrayLike) -> NDArray[np.float64]:
    """Return the seconds of communication by what one kind of node measured; see `communication_seconds`.

    Parameters
    ----------
    timings : AllReduce
        What was measured, for all but the times.
    workers : array_like of int
        Numbers of workers.
    whole, latency : array_like of float
        Seconds to sum the whole gradient, and a single number; the three broadcast together.
    """
    counts = np.asarray(workers, dtype=np.int64)
    whole, latency = np.asarray(whole, dtype=np.float64), np.asarray(latency, dtype=np.float64)
    if timings.world_size == 1:
        return np.zeros(np.broadcast_shapes(counts.shape, whole.shape, latency.shape))
    world = np.array(timings.world_size)
    waits = latency * (1 + timings.collectives_per_step)
    waiting = waits * _messages(counts, timings.backend) / _messages(world, timings.backend)
    moving = np.maximum(whole - latency, 0.0) * _moved(counts) / _moved(world)
    return np.asarray(waiting + moving, dtype=np.float64)


def _messages(workers: NDArray[np.int64], backend: str) -> NDArray[np.float64]:
    workers = np.maximum(workers, 1)
    steps = np.ceil(np.log2(workers)) if backend == "nccl" else workers - 1
    return np.asarray(2.0 * steps, dtype=np.float64)


def _moved(workers: NDArray[np.int64]) -> NDArray[np.float64]:
    workers = np.maximum(workers, 1)
    return np.asarray(2.0 * (workers - 1) / workers, dtype=np.float64)
