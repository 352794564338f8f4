"""What the profiles promise of a plan: step time and speed-ups, beside what they are limited by."""

import math

import numpy as np
from numpy.typing import NDArray

from landbalance.plan.uncertainty import step_interval
from landbalance.plan.workers import Workers
from landbalance.plans import Prediction
from landbalance.shares import equal_shares


def predict(workers: Workers, shares: NDArray[np.int64], train_samples: int) -> Prediction:
    r"""Return the predicted times of a step and an epoch, with the speed-ups and their limits.

    With shares b over all p workers (0: left out) and their times t(b), the step takes ``max t(b)`` plus
    the communication of the workers in use. s is each worker's speed at its share (`speeds`). Both
    speed-ups compare with another way to compute the same batch B, and so do their limits, each with the
    speed that the compared worker really has there:

    - S = equal step / step, S_max = Σs / (p · min s), where min s is what the slowest worker makes of
      an equal share: B/p samples in the computing time E of the equal split. So S_max = Σs · E / B.
    - G = the fastest worker's time A for all of B / step, G_max = Σs / max s, where max s = B / A.

    No split computes B in less than B / Σs seconds at its own speeds, so G ≤ G_max always, and S ≤ S_max
    unless workers are left out: what that saves in communication is no part of S_max. The limits are reached
    when all workers finish together and communication takes no time. Were min s and max s taken at the
    plan's shares, a batch size that suits a device well or badly would push S or G past them.

    The compared times are computed in rounds of what fits in memory, even where a model's norm forbids that.
    """
    batch = int(shares.sum())
    seconds = workers.seconds(shares)
    communication = workers.communication[np.count_nonzero(shares)]
    step = seconds.max() + communication
    equal = equal_shares(len(workers), batch)
    computing = workers.seconds(equal).max()
    equal_step = computing + workers.communication[np.count_nonzero(equal)]
    alone = min(float(kind.curve.seconds(batch)) for kind in workers.kinds)
    total = speeds(workers, shares).sum()
    low, high = step_interval(workers, shares) or (None, None)
    epoch = float(step * math.ceil(train_samples / batch))
    power = _watts(workers, shares)
    return Prediction(
        step_seconds=float(step),
        step_seconds_low=low,
        step_seconds_high=high,
        communication_seconds=float(communication),
        epoch_seconds=epoch,
        epoch_joules=None if power is None else power * epoch,
        equal_step_seconds=float(equal_step),
        fastest_alone_step_seconds=alone,
        speedup_over_equal=float(equal_step / step),
        speedup_over_equal_limit=float(total * computing / batch),
        speedup_over_fastest=float(alone / step),
        speedup_over_fastest_limit=float(total * alone / batch),
        fraction_of_total_speed=float(batch / step / total),
    )


def _watts(workers: Workers, shares: NDArray[np.int64]) -> float | None:
    """Return the power of all nodes with a worker in use; None where one of them does not tell its own."""
    used = {(node, index) for (node, index, _), share in zip(workers.places, shares.tolist(), strict=True) if share}
    if not all(node in workers.watts for node, _ in used):
        return None
    return sum(workers.watts[node] for node, _ in used)


def speeds(workers: Workers, shares: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each worker's samples per second of computing at its share; shape (workers,).

    A worker that is left out counts with its speed at an equal share (at least one sample): it is there, and
    Σs is what all of the site could do.
    """
    equal = np.maximum(equal_shares(len(workers), int(shares.sum())), 1)
    samples = np.where(shares > 0, shares, equal)
    return np.asarray(samples / workers.seconds(samples), dtype=np.float64)
