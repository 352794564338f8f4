"""What the figures of a plan do not show, in words; the plan file keeps them."""

from collections.abc import Iterator

import numpy as np

from landbalance.config import Config
from landbalance.plan.batches import WELL_USED
from landbalance.plan.workers import Workers
from landbalance.plans import Plan
from landbalance.shares import equal_shares

_DOUBTFUL = 0.1
"""From this half-width of its interval on, as a part, a predicted step time is noted as doubtful."""


def plan_notes(config: Config, plan: Plan, workers: Workers, train_samples: int) -> list[str]:
    """Return the notes on a plan, a sentence each.

    Parameters
    ----------
    config : Config
        What is computed.
    plan : Plan
        The plan; its own notes are not looked at.
    workers : Workers
        The workers that it was made for.
    train_samples : int
        Tiles of the train split.
    """
    experiment = config.experiments[plan.experiment]
    hard = config.models[experiment.model].norm == "batch"
    return [
        *_on_samples(f"training.{experiment.training}.batch_size", plan, train_samples),
        *_on_doubt(plan),
        *_on_communication(plan, workers),
        *_on_extrapolation(plan, workers),
        *_on_memory(plan, workers, hard),
        *_on_batch_size(plan),
    ]


def _on_samples(key: str, plan: Plan, train_samples: int) -> Iterator[str]:
    if train_samples < plan.batch_size:
        yield (
            f"{key} is {plan.batch_size}, but the train split has {train_samples} tiles: an epoch is one smaller step"
        )


def _on_doubt(plan: Plan) -> Iterator[str]:
    low, high = plan.predicted.step_seconds_low, plan.predicted.step_seconds_high
    if low is None or high is None:
        return
    doubt = (high - low) / 2 / plan.predicted.step_seconds
    if doubt > _DOUBTFUL:
        yield (
            f"the profiles know the step's time only to ±{100 * doubt:.0f} %, so the shares may be far from the best: "
            "measure again (landbalance profile … --again) when nothing else runs, or with a larger profile.seconds"
        )


def _on_communication(plan: Plan, workers: Workers) -> Iterator[str]:
    if len(workers) > 1 and all(meeting.allreduce.world_size == 1 for meeting in workers.meetings):
        yield (
            "communication was not measured (no node has two workers): the plan counts it as 0 seconds, so the step "
            "will be longer than predicted"
        )
    elif len({(worker.node, worker.node_index) for worker in plan.used}) > 1:
        yield "communication was measured inside a node; a slower network between nodes is not in the figures"


def _on_extrapolation(plan: Plan, workers: Workers) -> Iterator[str]:
    shares = workers.shares_of(plan)
    beyond = workers.extrapolated(shares)
    for index in np.unique(workers.kind[beyond]).tolist():
        kind = workers.kinds[index]
        share = int(shares[beyond & (workers.kind == index)].max())
        at_once = share if kind.curve.cap is None else min(share, kind.curve.cap)
        yield (
            f"{kind.node}, {kind.worker.title}: {at_once} samples at once are more than the {kind.curve.measured} that "
            "were timed, so their time is extrapolated; raise profile.seconds, and measure again"
        )


def _on_memory(plan: Plan, workers: Workers, hard: bool) -> Iterator[str]:
    caps = np.array([kind.curve.cap or plan.batch_size for kind in workers.kinds])[workers.kind]
    if hard and (equal_shares(len(workers), plan.batch_size) > caps).any():
        yield "equal shares would not fit in memory with norm: batch; their step is given as if computed in rounds"
    parts = {
        f"{worker.node}, {worker.title} computes its {worker.share} samples in parts of at most {worker.micro_batch}, "
        "which is what fits in its memory"
        for worker in plan.used
        if worker.micro_batch is not None and worker.share > worker.micro_batch
    }
    yield from sorted(parts)


def _on_batch_size(plan: Plan) -> Iterator[str]:
    mine = next((point for point in plan.batch_sizes if point.batch_size == plan.batch_size), None)
    advised = [point.batch_size for point in plan.batch_sizes if point.recommended]
    if mine is None or mine.fraction_of_best >= WELL_USED or not advised:
        return
    yield (
        f"a global batch of {plan.batch_size} uses these workers at {100 * mine.fraction_of_best:.0f} % of the speed "
        f"that other sizes reach; {', '.join(map(str, advised))} would reach {100 * WELL_USED:.0f} % or more. The "
        "batch size changes what is learned, so it stays as you set it"
    )
