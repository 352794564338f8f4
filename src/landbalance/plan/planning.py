"""The plan stage: from profiles to the shares of an experiment's global batch."""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landbalance.cluster import Cluster
from landbalance.config import Config, Experiment
from landbalance.errors import UserError
from landbalance.files import write_json
from landbalance.plan.batches import batch_points
from landbalance.plan.notes import plan_notes
from landbalance.plan.picture import draw_plan
from landbalance.plan.predict import predict, speeds
from landbalance.plan.problem import problem_of, room
from landbalance.plan.summary import plan_lines, reason
from landbalance.plan.workers import Workers, measured_workers
from landbalance.plans import Plan, PlannedWorker, planned_curve
from landbalance.profiles import NodeProfile
from landbalance.shares import Problem, equal_shares, finish_time, optimal_shares

_log = logging.getLogger(__name__)


def run(
    name: str,
    config: Config,
    cluster: Cluster,
    profiles: dict[str, NodeProfile],
    train_samples: int,
    target: Path,
) -> None:
    """Write the plan of experiment `name` to `target`, and its picture beside it as ``.svg``.

    Parameters
    ----------
    name : str
        A name under ``experiments``.
    config : Config
        What is computed.
    cluster : Cluster
        All nodes that may train.
    profiles : dict of str to NodeProfile
        The profile of each kind of node, by the node's name.
    train_samples : int
        Tiles of the train split, at least 1.
    target : Path
        The JSON file to write, see `landbalance.plans.Plan`.

    Raises
    ------
    UserError
        When a profile is missing or does not fit, or the workers cannot hold the batch.
    """
    experiment = config.experiments[name]
    workers = measured_workers(config, experiment, cluster, profiles)
    plan = make_plan(name, config, workers, train_samples)
    _log.info(
        "plan %s (%s): %d samples a step over %d of %d workers",
        name, plan.arm, plan.batch_size, len(plan.used), len(workers),
    )  # fmt: skip
    for line in plan_lines(plan):
        _log.info("%s", line)
    for note in plan.notes:
        _log.warning("%s", note)
    place = {place: index for index, place in enumerate(workers.places)}
    order = [place[worker.node, worker.node_index, worker.local_index] for worker in plan.workers]
    equal = equal_shares(len(workers), plan.batch_size)
    draw_plan(plan, equal[order], workers.seconds(equal)[order], target.with_suffix(".svg"))
    write_json(target, plan.model_dump(mode="json"))


def planned(name: str, config: Config, cluster: Cluster, profiles: dict[str, NodeProfile], train_samples: int) -> Plan:
    """Return the plan of experiment `name` on `cluster`, and write nothing; the parameters are those of `run`."""
    workers = measured_workers(config, config.experiments[name], cluster, profiles)
    return make_plan(name, config, workers, train_samples)


def make_plan(name: str, config: Config, workers: Workers, train_samples: int) -> Plan:
    """Return the plan of experiment `name` for measured workers.

    The arm `equal` shares the batch equally over all workers; `unweighted` and `balanced` differ only in how
    gradients are weighed and have the same shares: those that make a step fastest.

    Raises
    ------
    UserError
        When the workers cannot hold the batch, or arm `equal` has more workers than samples.
    """
    experiment = config.experiments[name]
    batch = config.training[experiment.training].batch_size
    hard = config.models[experiment.model].norm == "batch"
    reasons: dict[int, str] = {}
    if experiment.arm == "equal":
        shares = equal_shares(len(workers), batch)
        _check_equal(experiment, workers, shares, hard)
    else:
        if hard:
            _check_memory(experiment, workers, batch)
        problem = problem_of(workers, batch, hard)
        shares = optimal_shares(problem, workers.kind)
        reasons = _reasons(problem, workers, shares)
    plan = Plan(
        experiment=name,
        arm=experiment.arm,
        batch_size=batch,
        workers=_planned(workers, shares, reasons),
        predicted=predict(workers, shares, train_samples),
        batch_sizes=batch_points(workers, batch, hard),
        curves=[planned_curve(kind.curve) for kind in workers.kinds],
    )
    return plan.model_copy(update={"notes": plan_notes(config, plan, workers, train_samples)})


def _check_equal(experiment: Experiment, workers: Workers, shares: NDArray[np.int64], hard: bool) -> None:
    key, batch = f"training.{experiment.training}.batch_size", int(shares.sum())
    if shares.min() == 0:
        raise UserError(
            f"{key}: found {batch}; arm equal gives each of the cluster's {len(workers)} workers a sample: allowed is "
            f"{len(workers)} or more. Raise it, take workers out of the cluster description, or choose arm balanced, "
            "which leaves workers out by itself."
        )
    if not hard:
        return
    limited = [(kind.curve.cap, index) for index, kind in enumerate(workers.kinds) if kind.curve.cap is not None]
    for cap, index in sorted(limited):  # the tightest first: its message says what fits everywhere
        kind, share = workers.kinds[index], int(shares[workers.kind == index].max())
        if share > cap:
            raise UserError(
                f"{key}: found {batch}; an equal share of it is {share} samples, but {kind.node}, {kind.worker.title} "
                f"holds at most {cap} in memory, and models.{experiment.model} has norm: batch, which needs the whole "
                f"batch at once. Lower it to {cap * len(workers)} or less, set models.{experiment.model}.norm to "
                "group, which can compute a share in rounds, or choose arm balanced."
            )


def _check_memory(experiment: Experiment, workers: Workers, batch: int) -> None:
    if (held_at_once := room(workers, batch)) >= batch:
        return
    held = ", ".join(
        f"{count} × {kind.curve.cap} on {kind.node}, {kind.worker.title}"
        for kind, count in zip(workers.kinds, workers.counts.tolist(), strict=True)
    )
    raise UserError(
        f"training.{experiment.training}.batch_size: found {batch}; models.{experiment.model} has norm: batch, which "
        f"needs the whole batch at once, and the workers hold at most {held_at_once} samples in memory ({held}). Lower "
        f"it to {held_at_once} or less, or set models.{experiment.model}.norm to group, which can compute a share in "
        "rounds."
    )


def _reasons(problem: Problem, workers: Workers, shares: NDArray[np.int64]) -> dict[int, str]:
    """Return by kind why workers of it are left out: the best step with one more of them, against the plan's."""
    used = np.bincount(workers.kind[shares > 0], minlength=len(workers.kinds))
    step = finish_time(problem, used) + float(workers.communication[used.sum()])
    reasons = {}
    for kind in np.unique(workers.kind[shares == 0]).tolist():
        if used.sum() == problem.batch:
            reasons[kind] = (
                f"the global batch has no sample left for it: each of the {problem.batch} "
                "is with a worker that is no slower"
            )
            continue
        more = used.copy()
        more[kind] += 1
        with_it = finish_time(problem, more) + float(workers.communication[more.sum()])
        reasons[kind] = reason(with_it, step)
    return reasons


def _planned(workers: Workers, shares: NDArray[np.int64], reasons: dict[int, str]) -> list[PlannedWorker]:
    """Return the workers in use by rank, then those left out; `reasons` says by kind why."""
    seconds, speed = workers.seconds(shares), speeds(workers, shares)
    planned = []
    order = np.argsort(shares == 0, kind="stable")
    for rank, index in enumerate(order.tolist()):
        kind = workers.kinds[workers.kind[index]]
        used = bool(shares[index])
        planned.append(
            PlannedWorker(
                rank=rank if used else None,
                node=kind.node,
                node_index=int(workers.node_index[index]),
                local_index=int(workers.local_index[index]),
                title=kind.worker.title,
                device=kind.worker.device,
                threads=kind.worker.threads,
                slowdown=kind.worker.slowdown,
                emulated=kind.worker.emulated,
                share=int(shares[index]),
                micro_batch=kind.curve.cap,
                speed=float(speed[index]),
                predicted_seconds=float(seconds[index]),
                curve=int(workers.kind[index]),
                left_out=None if used else reasons[int(workers.kind[index])],
            )
        )
    return planned
