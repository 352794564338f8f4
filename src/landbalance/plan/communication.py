"""Time that communication adds to a step of any number of workers, from measurements on one node."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from landbalance.profiles import AllReduce, typical


@dataclass(frozen=True)
class Exchange:
    """What one kind of node measured of communication.

    Attributes
    ----------
    allreduce : AllReduce
        Timings of sums by themselves.
    exposed : float or None
        Seconds by which communication lengthens a step of all the node's workers; None when not measured.
    """

    allreduce: AllReduce
    exposed: float | None = None

    @property
    def latency(self) -> float:
        """Return the seconds to sum a single number."""
        return typical(self.allreduce.latency_seconds).median if self.allreduce.latency_seconds else 0.0

    def whole(self, ways: Collection[str]) -> float:
        """Return the seconds to sum the whole gradient by the way measured, or if it is not of `ways`, flat."""
        return typical(self.allreduce.seconds_by(ways)).median

    def exposed_by(self, ways: Collection[str]) -> float | None:
        """Return `exposed`; if the way measured is not of `ways`, with all that a flat sum takes longer."""
        if self.exposed is None:
            return None
        return self.exposed + max(0.0, self.whole(ways) - self.whole([self.allreduce.way]))


def communication_seconds(measured: Iterable[Exchange], workers: int, ways: Collection[str]) -> NDArray[np.float64]:
    r"""Return the seconds that communication adds to a step of p = 0 … `workers` workers.

    With w workers, L the typical time to sum a single number and T that to sum the whole
    gradient were measured. L is taken for latency, T − L for moving bytes; besides the gradient's sum, a step
    waits for n small collectives (of batch norms and of weights):

    .. math:: t(p) = (1 + n) L \frac{h(p)}{h(w)} + (T - L) \frac{2 (p-1) / p}{2 (w-1) / w}, \quad t(0) = t(1) = 0

    A ring moves 2 (p−1)/p of the gradient through each worker (Patarasuk and Yuan 2009,
    10.1016/j.jpdc.2008.09.002). h counts messages one after the other: 2 (p−1) in gloo's ring,
    2 ⌈log₂ p⌉ in NCCL's trees. Both parts grow with p.

    Much of this hides behind the backward pass, and workers that are not quite together cost some more. Where the
    profile timed whole steps, E is what they took beyond their slowest worker's computing, and t is scaled so that
    t(w) = E. Where these steps summed in the memory of a node that is not the only one, or by NCCL beside workers
    without GPUs, T is the time of a sum over gloo, and what that takes longer is added to E. The slowest of the
    `measured` kinds of nodes sets the pace. What this cannot know: it was measured inside one node, so a slower network
    between nodes comes on top.

    Parameters
    ----------
    measured : iterable of Exchange
        Measurements of each kind of node; one with a single worker says nothing.
    workers : int
        The largest number of workers asked for.
    ways : collection of str
        The ways to sum that these workers may have, of those of `landbalance.distributed.reduction`.

    Returns
    -------
    NDArray[np.float64]
        Shape (`workers` + 1,), indexed by the number of workers; 0 where nothing was measured.
    """
    slowest = np.zeros(workers + 1)
    for item in measured:
        whole, exposed = item.whole(ways), item.exposed_by(ways)
        seconds = seconds_of(item.allreduce, np.arange(workers + 1), whole, item.latency, exposed)
        slowest = np.maximum(slowest, seconds)
    return slowest


def seconds_of(
    timings: AllReduce, workers: ArrayLike, whole: ArrayLike, latency: ArrayLike, exposed: ArrayLike | None
) -> NDArray[np.float64]:
    """Return the seconds of communication by what one kind of node measured; see `communication_seconds`.

    Parameters
    ----------
    timings : AllReduce
        What was measured, for all but the times.
    workers : array_like of int
        Numbers of workers.
    whole, latency, exposed : array_like of float
        Seconds to sum the whole gradient, to sum a single number, and by which a step is lengthened (None: not
        measured); they broadcast with `workers`.
    """
    counts = np.asarray(workers, dtype=np.int64)
    whole, latency = np.asarray(whole, dtype=np.float64), np.asarray(latency, dtype=np.float64)
    if timings.world_size == 1:
        return np.zeros(np.broadcast_shapes(counts.shape, whole.shape, latency.shape))
    world = np.array(timings.world_size)
    waits = latency * (1 + timings.collectives_per_step)
    transfer = np.maximum(whole - latency, 0.0)
    waiting = waits * _messages(counts, timings.backend) / _messages(world, timings.backend)
    by_itself = waiting + transfer * _moved(counts) / _moved(world)
    if exposed is None:
        return np.asarray(by_itself, dtype=np.float64)
    there = np.maximum(waits + transfer, np.finfo(np.float64).tiny)
    return np.asarray(by_itself * np.maximum(exposed, 0.0) / there, dtype=np.float64)


def _messages(workers: NDArray[np.int64], backend: str) -> NDArray[np.float64]:
    workers = np.maximum(workers, 1)
    steps = np.ceil(np.log2(workers)) if backend == "nccl" else workers - 1
    return np.asarray(2.0 * steps, dtype=np.float64)


def _moved(workers: NDArray[np.int64]) -> NDArray[np.float64]:
    workers = np.maximum(workers, 1)
    return np.asarray(2.0 * (workers - 1) / workers, dtype=np.float64)
