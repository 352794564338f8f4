"""All workers of the cluster, in order of rank, with their measured speed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from landbalance.cluster import Cluster, Node, Worker
from landbalance.config import Config, Experiment
from landbalance.curves import TimeCurve, time_curve
from landbalance.errors import UserError
from landbalance.plan.communication import Exchange, communication_seconds
from landbalance.plans import Plan
from landbalance.profiles import AllReduce, Curve, NodeProfile, Round, typical

_NEAR = 1.5
"""Batches that differ by less than about this factor count as equally near."""


@dataclass(frozen=True)
class WorkerKind:
    """Workers with one curve: an entry of a node's ``workers``, on all nodes of that kind."""

    node: str
    worker: Worker
    curve: TimeCurve
    timings: Curve | None = None
    """The raw timings behind the curve; None when they are not known."""


@dataclass(frozen=True)
class Meeting:
    """How long the workers of one kind of node took together.

    Attributes
    ----------
    allreduce : AllReduce
        Timings of sums by themselves.
    round : Round or None
        Whole steps, communication included, nearest to the batch that is planned; None when not measured.
    samples : tuple of (int, int)
        Each worker's kind and share in these steps.
    """

    allreduce: AllReduce
    round: Round | None
    samples: tuple[tuple[int, int], ...]

    def exchange(self, kinds: Sequence[WorkerKind]) -> Exchange:
        """Return what this says of communication, with the time curves of `kinds`."""
        if self.round is None:
            return Exchange(self.allreduce)
        computing = max(float(kinds[kind].curve.seconds(share)) for kind, share in self.samples)
        return Exchange(self.allreduce, max(0.0, typical(self.round.step_seconds).median - computing))


@dataclass(frozen=True)
class Workers:
    """Every worker of the cluster: by kind of node, node, and place on the node, so that a node's are adjacent.

    Attributes
    ----------
    kinds : tuple of WorkerKind
        The kinds, by kind of node and entry.
    kind, node_index, local_index : NDArray[np.int64]
        Each worker's kind, node (of its kind of node) and place on the node; shape (workers,).
    communication : NDArray[np.float64]
        Seconds that 0, 1, … workers spend in summing the gradient; shape (workers + 1,).
    meetings : tuple of Meeting
        The raw timings behind `communication`, of each kind of node that has them.
    ways : frozenset of str
        The ways to sum that they have if all of them take part.
    watts : mapping of str to float
        Power of a node whose workers compute, by the kind of node; those that do not count it are not there.
    """

    kinds: tuple[WorkerKind, ...]
    kind: NDArray[np.int64]
    node_index: NDArray[np.int64]
    local_index: NDArray[np.int64]
    communication: NDArray[np.float64]
    meetings: tuple[Meeting, ...] = ()
    ways: frozenset[str] = frozenset({"flat"})
    watts: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Return the number of workers of each kind; shape (kinds,)."""
        return np.bincount(self.kind, minlength=len(self.kinds))

    @property
    def places(self) -> list[tuple[str, int, int]]:
        """Return each worker's kind of node, node and place on the node, in order."""
        nodes = (self.kinds[kind].node for kind in self.kind.tolist())
        return list(zip(nodes, self.node_index.tolist(), self.local_index.tolist(), strict=True))

    def seconds(self, shares: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the seconds of computing of each worker's share; both of shape (workers,)."""
        seconds = np.zeros(len(self))
        for index, kind in enumerate(self.kinds):
            mine = self.kind == index
            seconds[mine] = kind.curve.seconds(shares[mine])
        return seconds

    def extrapolated(self, shares: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which workers compute more samples at once than were timed; both of shape (workers,)."""
        most = [np.iinfo(np.int64).max if kind.curve.cap is None else kind.curve.cap for kind in self.kinds]
        measured = np.array([kind.curve.measured for kind in self.kinds])
        return np.asarray(np.minimum(shares, np.array(most)[self.kind]) > measured[self.kind])

    def shares_of(self, plan: Plan) -> NDArray[np.int64]:
        """Return the shares of a plan for these workers, in their order; shape (workers,)."""
        planned = {(worker.node, worker.node_index, worker.local_index): worker.share for worker in plan.workers}
        return np.array([planned[place] for place in self.places], dtype=np.int64)


def measured_workers(
    config: Config, experiment: Experiment, cluster: Cluster, profiles: Mapping[str, NodeProfile]
) -> Workers:
    """Return the cluster's workers with the curves of their nodes' profiles.

    Raises
    ------
    UserError
        When a profile is missing, or was taken of other workers or other data than are described.
    """
    kinds: list[WorkerKind] = []
    kind: list[int] = []
    node_index: list[int] = []
    local_index: list[int] = []
    meetings: list[Meeting] = []
    batch = config.training[experiment.training].batch_size
    for node in cluster.nodes:
        profile = _fitting_profile(config, experiment, node, profiles)
        entries = [len(kinds) + entry for entry, worker in enumerate(node.workers) for _ in range(worker.count)]
        kind += entries * node.count
        node_index += [index for index in range(node.count) for _ in entries]
        local_index += list(range(len(entries))) * node.count
        for worker, curve in zip(node.workers, profile.curves, strict=True):
            timed = time_curve(curve.batch_sizes, curve.seconds, curve.largest_batch)
            kinds.append(WorkerKind(node.name, worker, timed, curve))
        if profile.allreduce is not None:
            meetings.append(_meeting(profile.allreduce, profile.rounds, entries, kinds, batch))
    ways = ways_within(cluster)
    communication = communication_seconds([meeting.exchange(kinds) for meeting in meetings], len(kind), ways)
    places = np.array(kind), np.array(node_index), np.array(local_index)
    counted = {node.name: profiles[node.name].watts for node in cluster.nodes}
    power = {name: value for name, value in counted.items() if value is not None}
    return Workers(tuple(kinds), *places, communication, tuple(meetings), ways, power)


def ways_within(cluster: Cluster) -> frozenset[str]:
    """Return the ways, of those of `landbalance.distributed.reduction`, that all workers of a cluster may have."""
    ways = {"flat", "leaders"}
    if sum(node.count for node in cluster.nodes) == 1:
        ways.add("memory")
    if all(worker.device == "cuda" for node in cluster.nodes for worker in node.workers):
        ways.add("nccl")
    return frozenset(ways)


def _meeting(
    allreduce: AllReduce, rounds: Sequence[Round], entries: list[int], kinds: Sequence[WorkerKind], batch: int
) -> Meeting:
    """Return the round of all workers that is nearest to `batch`, and of these the one they finish most together."""

    def unlike(steps: Round) -> tuple[int, float, int]:
        pairs = zip(entries, steps.samples, strict=True)
        seconds = [float(kinds[kind].curve.seconds(samples)) for kind, samples in pairs]
        # About as near is as good: among those, steps that end together and were taken often say most.
        far = round(abs(math.log(sum(steps.samples) / batch)) / math.log(_NEAR))
        return far, round(1 - min(seconds) / max(seconds), 1), -len(steps.step_seconds)

    whole = [
        steps
        for steps in rounds
        if len(steps.samples) == len(entries) and min(steps.samples) > 0 and steps.step_seconds
    ]
    if not whole:
        return Meeting(allreduce, None, ())
    nearest = min(whole, key=unlike)
    return Meeting(allreduce, nearest, tuple(zip(entries, nearest.samples, strict=True)))


def _fitting_profile(
    config: Config, experiment: Experiment, node: Node, profiles: Mapping[str, NodeProfile]
) -> NodeProfile:
    command = f"landbalance profile {experiment.dataset} {experiment.model} {node.name}"
    profile = profiles.get(node.name)
    if profile is None:
        raise UserError(
            f"no profile of node {node.name} for model {experiment.model} on dataset {experiment.dataset}: a "
            f"plan needs one for each of the cluster's nodes. Make it on such a node: {command}"
        )
    if mistake := _mismatch(config, experiment, node, profile) or _unusable(profile):
        raise UserError(f"profile of node {node.name}: {mistake}. Measure it again: {command} --again")
    return profile


def _mismatch(config: Config, experiment: Experiment, node: Node, profile: NodeProfile) -> str | None:
    """Return in what the profile differs from what is planned for."""
    dataset = config.datasets[experiment.dataset]
    facts: list[tuple[str, object, object]] = [
        ("dataset", profile.dataset, experiment.dataset),
        ("model", profile.model, experiment.model),
        ("node", profile.node, node.name),
        ("number of bands", profile.bands, len(dataset.bands)),
        ("number of entries under workers", len(profile.curves), len(node.workers)),
    ]
    if dataset.cut_scenes:
        facts.append(("tile size", profile.tile_size, dataset.tiles.size))
    for entry, (curve, worker) in enumerate(zip(profile.curves, node.workers, strict=False), start=1):
        facts += [
            (f"worker {entry}", curve.title, worker.title),
            (f"device of worker {entry}", curve.device, worker.device),
            (f"count of worker {entry}", curve.count, worker.count),
        ]
    for what, found, wanted in facts:
        if found != wanted:
            return f"{what} is {found} there, but {wanted} in the configuration and cluster description"
    return None


def _unusable(profile: NodeProfile) -> str | None:
    """Return what makes the timings no curve."""
    for curve in profile.curves:
        if mistake := _unusable_curve(curve):
            return f"{curve.title}: {mistake}"
    if profile.allreduce is not None and not profile.allreduce.seconds:
        return "allreduce holds no timings"
    return None


def _unusable_curve(curve: Curve) -> str | None:
    sizes = curve.batch_sizes
    if any(after <= before for before, after in pairwise(sizes)):
        return f"batch sizes {sizes} do not ascend"
    if len(curve.seconds) != len(sizes):
        return f"{len(sizes)} batch sizes, but timings of {len(curve.seconds)}"
    for size, timings in zip(sizes, curve.seconds, strict=True):
        if not timings:
            return f"no timings of batch size {size}"
        if float(np.median(timings)) <= 0:
            return f"the median time of batch size {size} is 0"
    return None
