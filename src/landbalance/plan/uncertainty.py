"""How well the timings of a profile fix the predicted step time."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from landbalance.curves import TimeCurve, curve_through
from landbalance.plan.communication import seconds_of
from landbalance.plan.workers import Workers
from landbalance.profiles import typical

_REPLICATES = 200
_LEVELS = (2.5, 97.5)


def step_interval(workers: Workers, shares: NDArray[np.int64]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median step time with these shares, in seconds.

    A percentile bootstrap (Efron 1979): the medians of all timings are drawn anew, each from its own raw timings,
    curves are fitted to them as the plan's are, and the step is predicted again. It covers the noise of the profile; a
    machine that is busier in training than it was in the profile is not covered.

    Parameters
    ----------
    workers : Workers
        All workers of the cluster.
    shares : NDArray[np.int64]
        Samples of each worker, 0 for one that is left out; shape (workers,).

    Returns
    -------
    tuple of float, or None
        The lower and the upper end; None when a worker comes without raw timings.
    """
    if any(kind.timings is None for kind in workers.kinds):
        return None
    drawn = _Drawn(workers, np.random.default_rng(0))
    used = workers.kind[shares > 0]
    of_plan = {(kind, int(shares[(workers.kind == kind) & (shares > 0)].max())) for kind in np.unique(used).tolist()}
    steps = drawn.slowest(of_plan) + drawn.communication(len(used))
    low, high = np.percentile(steps, _LEVELS)
    # The maximum over noisy curves lies above the curves' own maximum; the prediction itself is always in the interval.
    predicted = float(workers.seconds(shares).max() + workers.communication[len(used)])
    return min(float(low), predicted), max(float(high), predicted)


class _Drawn:
    """Replicates of all that was timed; curves are drawn once, since communication follows from them too."""

    def __init__(self, workers: Workers, random: np.random.Generator) -> None:
        self._workers, self._random = workers, random
        self._curves: dict[int, list[TimeCurve]] = {}

    def slowest(self, work: Collection[tuple[int, int]]) -> NDArray[np.float64]:
        """Return when the last of some (kind, samples) is done, in seconds; shape (replicates,)."""
        times = [[float(curve.seconds(samples)) for curve in self._of(kind)] for kind, samples in sorted(work)]
        return np.asarray(np.max(times, axis=0))

    def communication(self, workers: int) -> NDArray[np.float64]:
        """Return the seconds that communication adds to a step of so many workers; shape (replicates,)."""
        seconds, ways = np.zeros(_REPLICATES), self._workers.ways
        for meeting in self._workers.meetings if workers > 1 else ():
            timings = meeting.allreduce
            of_way, of_step = timings.seconds_by(ways), timings.seconds_by([timings.way])
            whole = _medians(of_way, self._random)
            latency = _medians(timings.latency_seconds or [0.0], self._random)
            exposed = None
            if meeting.round is not None:
                together = _medians(meeting.round.step_seconds, self._random)
                exposed = np.maximum(together - self.slowest(set(meeting.samples)), 0.0)
                if of_way is not of_step:
                    exposed = exposed + np.maximum(whole - _medians(of_step, self._random), 0.0)
            seconds = np.maximum(seconds, seconds_of(timings, workers, whole, latency, exposed))
        return seconds

    def _of(self, kind: int) -> list[TimeCurve]:
        timings = self._workers.kinds[kind].timings
        assert timings is not None
        if kind not in self._curves:
            weights = [len(values) for values in timings.seconds]
            medians = np.stack([_medians(values, self._random) for values in timings.seconds], axis=1)
            self._curves[kind] = [
                curve_through(timings.batch_sizes, row, weights, timings.largest_batch) for row in medians.tolist()
            ]
        return self._curves[kind]


def _medians(values: Sequence[float], random: np.random.Generator) -> NDArray[np.float64]:
    """Return medians of resamples of `values`; shape (replicates,).

    The median of n draws with replacement is an order statistic whose place follows the Beta distribution of the median
    of n uniform numbers (Maritz and Jarrett 1978), so it can be drawn at once, however many values there are.
    """
    outliers = typical(values).outliers
    kept = np.sort([value for value in values if value not in outliers])
    half = (len(kept) + 1) / 2
    places = random.beta(half, half, _REPLICATES) * (len(kept) - 1)
    return np.asarray(np.interp(places, np.arange(len(kept)), kept), dtype=np.float64)
