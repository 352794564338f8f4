"""Time that a step spends in communication with any number of workers, from timings on one node."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

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
    counts = np.arange(workers + 1)
    slowest = np.zeros(workers + 1)
    for timings in measured:
        if timings.world_size == 1:
            continue
        latency = float(np.median(timings.latency_seconds)) if timings.latency_seconds else 0.0
        transfer = max(float(np.median(timings.seconds)) - latency, 0.0)
        world = np.array([timings.world_size])
        waits = latency * (1 + timings.collectives_per_step)
        seconds = waits * _messages(counts, timings.backend) / _messages(world, timings.backend)
        seconds = seconds + transfer * _moved(counts) / _moved(world)
        slowest = np.maximum(slowest, seconds)
    return slowest


def _messages(workers: NDArray[np.int64], backend: str) -> NDArray[np.float64]:
    workers = np.maximum(workers, 1)
    steps = np.ceil(np.log2(workers)) if backend == "nccl" else workers - 1
    return np.asarray(2.0 * steps, dtype=np.float64)


def _moved(workers: NDArray[np.int64]) -> NDArray[np.float64]:
    workers = np.maximum(workers, 1)
    return np.asarray(2.0 * (workers - 1) / workers, dtype=np.float64)
