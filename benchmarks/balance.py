"""What unequal workers reach together: plans against measured steps, on workers slowed down by the kernel.

Workers are pinned to one core each and given a share of it by the kernel's CPU quota (`throttling`); where that is not
permitted, slow devices are emulated, and the output says so. On every rig and for every model the project's own
profile, plan and training loop run, and all variants take turns, so that noise of the machine meets them alike; as its
speed drifts, too, that is done again from the profile on, in several rounds.

    python benchmarks/balance.py [--quick]

prints one JSON object. Per rig, model and global batch B (`<ratio>.<model>.b<B>.…`), from medians of measured steps,
the median of the rounds (`….low` and `….high` are their extremes):

- `fraction_of_sum`: images/s of arm `balanced`, over Σ s_i, where s_i is what worker i does alone at its share while
  the others do the same (they share the machine's memory), in the same turn, of which it is the median.
  `….without_communication`: what of Σ s_i would be left if steps only waited for the slower worker of each, as these
  did, alone, at the same shares: the part that a noisy machine takes;
- `s`, `s_max`: speed-up over arm `equal`, and its limit Σs · E / B, where E is the longest computing of an equal share;
- `g`, `g_max`: speed-up over the fastest worker alone on all of B, and its limit Σs · A / B, where A is that time;
- `predicted_over_measured`: the plan's step time over the measured one;
- `over_gloo`: how many times as long a step of `balanced` takes when all gradients are sent over gloo;
- `images_per_second.…`: the arms, stock DistributedDataParallel with equal shares, and each worker alone.

`fifty.over_fast_alone` is the speed on a rig of 50:1, over that of the fast worker alone; `fifty.slow_share` is what
the slow one was given. `dynamic.won_back`: half-way
through an epoch on two equal workers, one loses half of its core; of the speed that shares for the changed
machine could win back over those of the plan (Σ s_i as measured under the load), the part that shares which move by
themselves do win back. `dynamic.loss_difference` is how far the two runs' training losses are apart.
"""

import argparse
import gc
import itertools
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.figure  # noqa: F401  these are imported once, before workers are forked
import numpy as np
import segmentation_models_pytorch  # noqa: F401
import torch
import torch.distributed as dist
import torchvision  # noqa: F401
from numpy.typing import NDArray
from torch.distributed import distributed_c10d

from comparison import Case, write_tiles
from landbalance.batches import BatchReader
from landbalance.cluster import Cluster
from landbalance.config import Config, parse_config
from landbalance.config.learning import Model
from landbalance.distributed.batchnorm import with_global_batch_norm
from landbalance.distributed.group import Communicator
from landbalance.distributed.launch import LIFELINE
from landbalance.distributed.node_memory import sum_in_place
from landbalance.distributed.place import LISTENER
from landbalance.distributed.reduction import StartSum, chosen_way, in_order, sum_in_group
from landbalance.files import read_json, write_json
from landbalance.layout import Layout
from landbalance.plan.planning import make_plan
from landbalance.plan.workers import measured_workers
from landbalance.plans import Plan
from landbalance.profile.measure import measure
from landbalance.profiles import read_profile
from landbalance.tiles import TileStore
from landbalance.train import loop, worker
from landbalance.train.checkpoint import Position
from landbalance.train.loop import Job
from landbalance.train.rebalance import Shares
from measuring import benchmark_result
from overhead import stock_step
from throttling import brake_kind, brakes, enter, set_share

_log = logging.getLogger("balance")
BATCHES = (32, 128)
NODE = "rig"


@dataclass(frozen=True)
class Rig:
    """Workers with a share of a core each; `cores` says which."""

    name: str
    shares: tuple[float, ...]
    cores: tuple[int, ...] = (0, 1)


RIGS = (
    Rig("1:1", (1, 1)),
    Rig("2:1", (1, 1 / 2)),
    Rig("4:1", (1, 1 / 4)),
    Rig("8:1", (1, 1 / 8)),
    # Four workers on two cores: four fifths of a core are shared out on each.
    Rig("1:1:2:4", (0.8, 0.4, 0.2, 0.2), (0, 1, 1, 1)),
)
FIFTY = Rig("fifty", (1, 1 / 50))
LOADED = Rig("dynamic", (0.8, 0.8))
LOAD_STEPS = (24, 72)
"""Steps before the load, and under it: two windows and the notice pass before shares move."""


@dataclass(frozen=True)
class Subject:
    """A model and the tiles that it trains on."""

    name: str
    model: Model
    bands: int
    size: int
    quick_size: int


SUBJECTS = (
    Subject("resnet18", Model(architecture="resnet18", norm="group"), 3, 64, 16),
    Subject("unet", Model(architecture="unet", encoder="resnet18", depth=3, width=16, norm="group"), 13, 32, 16),
)


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    rounds : int
        How often all is done, from the profile on.
    turns : int
        How often all variants take turns in a round.
    steps : dict of str to int
        Timed steps of a variant per turn.
    cold : int
        From this global batch on, the variants with long steps are timed from their first step on; all others have
        one that is not counted.
    profile : dict
        Settings of the profile stage.
    """

    rounds: int
    turns: int
    steps: dict[str, int]
    cold: int
    profile: dict[str, Any]

    def uncounted(self, variant: "Variant") -> int:
        """Return how many steps at the beginning of a turn are not counted."""
        long = variant.kind in ("equal", "stock", "fastest") and sum(variant.shares) >= self.cold
        return 0 if long else 1


FULL = Effort(
    rounds=3,
    turns=2,
    steps={"equal": 1, "stock": 1, "unweighted": 1, "balanced": 3, "gloo": 3, "alone": 3, "fastest": 1},
    cold=128,
    profile={"seconds": 30.0},
)
QUICK = Effort(
    rounds=1,
    turns=1,
    steps=dict.fromkeys(FULL.steps, 1),
    cold=0,
    profile={"seconds": 5.0, "repeats": 3, "warmup": 1},
)


# Workers ----------------------------------------------------------------------------------------


def fork_workers(rig: Rig, works: Sequence[Callable[[], None]]) -> None:
    """Run each of `works` in a process of its own, as one job; return when all are done.

    Forked processes need not import torch again, which a throttled one would do for a long time.
    """
    cores = sorted(os.sched_getaffinity(0))
    listener = socket.create_server(("127.0.0.1", 0), backlog=len(works) + 8)
    lifeline_read, lifeline_write = os.pipe()
    processes = []
    for rank, work in enumerate(works):
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.close(lifeline_write)
                os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
                os.sched_setaffinity(0, {cores[rig.cores[rank] % len(cores)]})
                os.environ |= {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(works)),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(listener.getsockname()[1]),
                    "GLOO_SOCKET_IFNAME": "lo",
                    LISTENER: str(listener.fileno()),
                    LIFELINE: str(lifeline_read),
                }
                torch.set_num_threads(1)
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        processes.append(process)
    listener.close()
    os.close(lifeline_read)
    try:
        _join(processes)
    finally:
        os.close(lifeline_write)


def _join(processes: list[int]) -> None:
    waiting = set(processes)
    while waiting:
        process, status = os.wait()
        waiting.discard(process)
        if status:
            for other in waiting:
                os.kill(other, signal.SIGKILL)
            for other in waiting:
                os.waitpid(other, 0)
            raise SystemExit("a worker failed; its message stands above")


@dataclass(frozen=True)
class Variant:
    """A way to compute: arm, workers by rank, and the share of each.

    `alone`: each for itself, at the same time; `sent`: gradients are sent over gloo, whatever else there is.
    """

    name: str
    arm: str
    ranks: tuple[int, ...]
    shares: tuple[int, ...]
    alone: bool = False
    sent: bool = False

    @property
    def kind(self) -> str:
        """Return what the name begins with."""
        return self.name.split(".")[0]

    def of(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ranks that worker `rank` computes together with, and their shares."""
        if not self.alone:
            return self.ranks, self.shares
        return (rank,), (self.shares[self.ranks.index(rank)],)


class FirstTiles(TileStore):
    """A store of which only the first tiles are trained on, so that a run has as many steps as are wanted."""

    count: int

    def ids(self, split: str) -> NDArray[np.int64]:
        """Return the ids of the tiles in `split`."""
        ids = super().ids(split)
        return ids[: self.count] if split == "train" else ids


def first_tiles(store: TileStore, count: int) -> FirstTiles:
    """Return `store` with `count` tiles to train on."""
    part = FirstTiles(store.folder, store.info)
    object.__setattr__(part, "count", count)
    return part


@contextmanager
def default_group(group: Any) -> Iterator[None]:
    """Make a group all there is to the training loop, which uses the default group, as in a job of its own."""
    everyone = distributed_c10d._get_default_group()
    distributed_c10d._update_default_pg(group)
    try:
        yield
    finally:
        distributed_c10d._update_default_pg(everyone)


def measure_variants(
    variants: Sequence[Variant],
    model: Model,
    effort: Effort,
    paces: Sequence[float],
    brake: Path | None,
    target: Path,
    job: Job,
    _: Position,
) -> None:
    """Stand in for the training loop in a worker that is ready: run the loop for each variant in turn; end the worker.

    Rank 0 writes by variant and worker the rows of timing of all turns.
    """
    together = {variant.of(rank)[0] for variant in variants for rank in variant.ranks}
    groups = {ranks: _groups(ranks, job, paces) for ranks in sorted(together)}
    stock = {sum(variant.shares): _stock(job, model, variant) for variant in variants if variant.arm == "stock"}
    loop.save_checkpoint = lambda *_: target  # written between epochs, outside of any step
    enter(brake)
    timings: dict[str, list[list[dict[str, float]]]] = {}
    for turn in range(effort.turns):
        # There and back: what drifts meanwhile then meets first and last alike.
        for variant in variants if turn % 2 == 0 else reversed(variants):
            dist.barrier()
            rows: list[dict[str, float]] = []
            uncounted = effort.uncounted(variant)
            steps = uncounted + effort.steps[variant.kind]
            if variant.arm == "stock":
                rows = stock_rows(stock[sum(variant.shares)], steps)
            elif job.rank in variant.ranks:
                ranks, shares = variant.of(job.rank)
                start_sum = groups[ranks].sent if variant.sent else groups[ranks].start_sum
                rows = trained_rows(variant.arm, ranks, shares, replace(job, start_sum=start_sum), groups[ranks], steps)
            rows = [row for row in rows if row["step"] >= uncounted]
            everyone: list[list[dict[str, float]]] = [[]] * dist.get_world_size()
            dist.all_gather_object(everyone, rows)
            of_workers = timings.setdefault(variant.name, [[] for _ in everyone])
            for found, new in zip(of_workers, everyone, strict=True):
                found += new
    if job.rank == 0:
        write_json(target, timings)
    dist.barrier()
    os._exit(0)


@dataclass(frozen=True)
class Groups:
    """What some workers need to train as a job of their own: groups, the way to sum that it takes, and gloo's."""

    whole: Any
    norms: Any
    start_sum: StartSum
    sent: StartSum


def _groups(ranks: tuple[int, ...], job: Job, paces: Sequence[float]) -> Groups:
    whole, norms, sums = (dist.new_group(list(ranks)) for _ in range(3))
    if job.rank not in ranks:
        return Groups(whole, norms, job.start_sum, job.start_sum)
    ways = {"flat": sum_in_group(whole)}
    total = sum_in_place(sums, [paces[rank] for rank in ranks]) if len(ranks) > 1 else None
    if total is not None:
        ways["memory"] = in_order(total, job.clock.device)
    with default_group(whole):  # as training chooses
        elements = sum(parameter.numel() for parameter in job.network.parameters())
        name = chosen_way(ways, elements, job.clock.device, measured=True)
    return Groups(whole, norms, ways[name], ways["flat"])


def trained_rows(
    arm: str, ranks: tuple[int, ...], shares: tuple[int, ...], job: Job, groups: Groups, steps: int
) -> list[dict[str, float]]:
    """Return this worker's timing rows of the training loop on the workers `ranks`, which it is one of."""
    rank, position, batch = ranks.index(job.rank), Position(), sum(shares)
    with default_group(groups.whole):
        part = replace(
            job,
            arm=arm,
            settings=job.settings.model_copy(update={"batch_size": batch}),
            store=first_tiles(job.store, steps * batch),
            network=with_global_batch_norm(job.network, Communicator(job.clock, groups.norms)),
            shares=Shares(list(shares)),
            watch=None,
            rank=rank,
        )
        loop.train(part, position)
        gc.collect()  # the hooks of this run's gradients must not outlive it
    return [row for row in position.timing if row["rank"] == rank]


def stock_rows(step: Callable[[], None], steps: int) -> list[dict[str, float]]:
    """Return this worker's timing rows of plain DistributedDataParallel."""
    rows = []
    for number in range(steps):
        began = time.perf_counter()
        step()
        rows.append({"step": number, "step_seconds": time.perf_counter() - began})
    return rows


def _stock(job: Job, model: Model, variant: Variant) -> Callable[[], None]:
    share = variant.shares[job.rank]
    batch = BatchReader(job.store, None, False, 0).batch(job.store.ids("train")[:share], None)
    return stock_step(model, batch.images, batch.labels)


def train_under_load(brake: Path | None, target: Path, job: Job, position: Position) -> None:
    """Stand in for the training loop: the last worker loses half of its core after the first steps; end the worker."""
    begin, steps = job.clock.start, itertools.count()

    def start() -> None:
        if next(steps) == LOAD_STEPS[0] and job.rank == len(LOADED.shares) - 1:
            if brake is None:
                job.clock.slowdown *= 2
            else:
                set_share(brake, LOADED.shares[-1] / 2)
        begin()

    job.clock.start = start
    loop.save_checkpoint = lambda *_: target
    enter(brake)
    loop.train(job, position)
    if job.rank == 0:
        write_json(target, {"timing": position.timing, "loss": position.history[-1]["train_loss"]})
    dist.barrier()
    os._exit(0)


# Rigs -------------------------------------------------------------------------------------------


def settings_of(subject: Subject, size: int, effort: Effort, batches: Sequence[int]) -> Config:
    """Return a configuration with an experiment for each arm and global batch size."""
    names = [f"B{band:02d}" for band in range(subject.bands)]
    classes = [{"name": name, "colour": f"#00000{number}", "values": [name]} for number, name in enumerate("abc", 1)]
    shared = {"sources": [{"path": "made", "licence": "CC0"}], "classes": classes}
    segmentation = {
        "task": "segmentation",
        "scenes": {"made": {"bands": {name: "made.tif" for name in names}}},
        "labels": {"path": "made.gpkg", "field": "class"},
        "tiles": {"size": size},
        "split": {"by": "block", "size": 128},
    }
    folders = {
        "task": "classification",
        "folders": {"path": "made", "bands": names},
        "split": {"by": "sample"},
    }
    return parse_config(
        {
            "datasets": {"tiles": shared | (segmentation if subject.model.architecture == "unet" else folders)},
            "models": {subject.name: subject.model.model_dump()},
            "training": {f"b{batch}": {"epochs": 1, "batch_size": batch} for batch in batches},
            "experiments": {
                f"{arm}.b{batch}": {"dataset": "tiles", "model": subject.name, "training": f"b{batch}", "arm": arm}
                for batch in batches
                for arm in ("equal", "unweighted", "balanced")
            },
            "profile": effort.profile,
        }
    )


def cluster_of(rig: Rig, kind: str) -> Cluster:
    """Return the description of a rig: one node, on which an emulated worker is named as such."""
    slow = [1 / share if kind == "emulation" else 1.0 for share in rig.shares]
    workers = [{"device": "cpu", "threads": 1, "slowdown": slowdown} for slowdown in slow]
    return Cluster.model_validate({"nodes": [{"name": NODE, "workers": workers}]})


def profiled(rig: Rig, kind: str, subject: Subject, config: Config, layout: Layout) -> None:
    """Run the profile stage on the rig."""
    node = cluster_of(rig, kind).nodes[0]
    with brakes(kind, list(rig.shares)) as folders:

        def work(folder: Path | None) -> None:
            enter(folder)
            measure("tiles", subject.name, node, config, layout)

        fork_workers(rig, [partial(work, folder) for folder in folders])


def planned(
    rig: Rig, kind: str, subject: Subject, config: Config, layout: Layout, batches: Sequence[int]
) -> dict[str, Plan]:
    """Return the plan of each experiment."""
    profile = read_profile(layout.profile("tiles", subject.name, NODE))
    plans = {}
    for name, experiment in config.experiments.items():
        workers = measured_workers(config, experiment, cluster_of(rig, kind), {NODE: profile})
        plans[name] = make_plan(name, config, workers, max(batches))
    return plans


def variants_of(rig: Rig, plans: dict[str, Plan], batch: int) -> list[Variant]:
    """Return what is measured of a rig at one global batch size."""
    everyone = tuple(range(len(rig.shares)))
    fastest = int(np.argmax(rig.shares))
    found = []
    for arm in ("equal", "unweighted", "balanced"):
        used = plans[f"{arm}.b{batch}"].used
        ranks, shares = tuple(item.local_index for item in used), tuple(item.share for item in used)
        found.append(Variant(f"{arm}.b{batch}", arm, ranks, shares))
    share_of = dict(zip(found[-1].ranks, found[-1].shares, strict=True))
    equal = found[0].shares
    # As in the plan, a worker that is left out counts with its speed at an equal share.
    alone = tuple(share_of.get(rank, equal[rank]) for rank in everyone)
    return [
        *found,
        replace(found[-1], name=f"gloo.b{batch}", sent=True),
        Variant(f"alone.b{batch}", "balanced", everyone, alone, alone=True),
        Variant(f"stock.b{batch}", "stock", everyone, equal),
        Variant(f"fastest.b{batch}", "balanced", (fastest,), (batch,)),
    ]


def trained(
    rig: Rig,
    kind: str,
    subject: Subject,
    config: Config,
    layout: Layout,
    plans: dict[str, Plan],
    variants: list[Variant],
    effort: Effort,
) -> dict[str, list[list[dict[str, float]]]]:
    """Return the timing rows of each variant and worker; the workers are those of arm `equal`, which uses all."""
    name, target = next(name for name in plans if name.startswith("equal.")), layout.root / "timings.json"
    paces = [planned.speed for planned in sorted(plans[name].workers, key=lambda planned: planned.local_index)]
    with brakes(kind, list(rig.shares)) as folders:

        def work(folder: Path | None) -> None:
            worker.train = partial(measure_variants, variants, subject.model, effort, paces, folder, target)
            worker.work(name, config, layout, plans[name])

        fork_workers(rig, [partial(work, folder) for folder in folders])
    return read_json(target)


# Figures ----------------------------------------------------------------------------------------


def step_seconds(rows: list[list[dict[str, float]]]) -> NDArray[np.float64]:
    """Return how long each step took: as long as its slowest worker."""
    return np.max([[row["step_seconds"] for row in own] for own in rows if own], axis=0)


def turns(values: NDArray[np.float64], effort: Effort) -> list[float]:
    """Return the median of each turn's steps."""
    return [float(np.median(part)) for part in np.split(values, effort.turns)]


def figures_of(
    batch: int, plan: Plan, variants: list[Variant], timings: dict[str, list[list[dict[str, float]]]], effort: Effort
) -> dict[str, float]:
    """Return the figures of a round for one rig, model and global batch size."""
    kinds = ("equal", "unweighted", "balanced", "gloo", "stock")
    steps = {kind: step_seconds(timings[f"{kind}.b{batch}"]) for kind in kinds}
    fastest = float(np.median(step_seconds(timings[f"fastest.b{batch}"])))
    alone = next(variant for variant in variants if variant.name == f"alone.b{batch}")
    by_worker = np.array([[row["step_seconds"] for row in own] for own in timings[alone.name]])
    speeds = [share / float(np.median(own)) for share, own in zip(alone.shares, by_worker, strict=True)]
    of_turns = [
        sum(share / seconds for share, seconds in zip(alone.shares, medians, strict=True))
        for medians in zip(*(turns(own, effort) for own in by_worker), strict=True)
    ]
    # The machine's speed drifts: what is compared was measured in the same turn.
    fractions = np.divide(batch, np.multiply(turns(steps["balanced"], effort), of_turns))
    used = np.array([worker in plan_ranks(plan) for worker in alone.ranks])
    waiting = np.divide(batch, np.multiply(turns(by_worker[used].max(axis=0), effort), of_turns))
    computing = [float(np.median([row["compute_seconds"] for row in own])) for own in timings[f"equal.b{batch}"]]
    total, step = sum(speeds), float(np.median(steps["balanced"]))
    figures = {
        "fraction_of_sum": float(np.median(fractions)),
        "fraction_of_sum.without_communication": float(np.median(waiting)),
        "s": float(np.median(steps["equal"])) / step,
        "s_max": total * max(computing) / batch,
        "g": fastest / step,
        "g_max": total * fastest / batch,
        "predicted_over_measured": plan.predicted.step_seconds / step,
        "over_gloo": float(np.median(steps["gloo"])) / step,
        "step_seconds": step,
        "predicted_seconds": plan.predicted.step_seconds,
        "predicted_seconds.lower": plan.predicted.step_seconds_low or float("nan"),
        "predicted_seconds.upper": plan.predicted.step_seconds_high or float("nan"),
        "images_per_second.fastest_alone": batch / fastest,
    }
    figures |= {f"images_per_second.{kind}": batch / float(np.median(seconds)) for kind, seconds in steps.items()}
    figures |= {f"images_per_second.alone.{rank}": speed for rank, speed in enumerate(speeds)}
    return figures | {f"share.{worker.local_index}": worker.share for worker in plan.workers}


def over_rounds(prefix: str, rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure, and the extremes of those that are judged."""
    figures = {}
    for name in rounds[0]:
        values = [figures[name] for figures in rounds]
        figures[f"{prefix}.{name}"] = float(np.median(values))
        if name in ("fraction_of_sum", "s", "g", "predicted_over_measured", "over_gloo", "step_seconds"):
            figures |= {f"{prefix}.{name}.low": min(values), f"{prefix}.{name}.high": max(values)}
    return figures


def plan_ranks(plan: Plan) -> set[int]:
    """Return which workers of the rig the plan uses."""
    return {worker.local_index for worker in plan.used}


def measured(rig: Rig, kind: str, subject: Subject, batches: Sequence[int], effort: Effort) -> dict[str, float]:
    """Return the figures of a rig and a model, for each global batch size."""
    began, figures = time.monotonic(), {}
    rounds = [one_round(rig, kind, subject, batches, effort) for _ in range(effort.rounds)]
    for batch in batches:
        figures |= over_rounds(f"{rig.name}.{subject.name}.b{batch}", [found[batch] for found in rounds])
    print(f"{rig.name} {subject.name}, {time.monotonic() - began:.0f} s: {json.dumps(figures)}", file=sys.stderr)
    return figures


def one_round(
    rig: Rig, kind: str, subject: Subject, batches: Sequence[int], effort: Effort
) -> dict[int, dict[str, float]]:
    """Profile, plan and measure all variants; return the figures by global batch size."""
    count = (max(effort.steps.values()) + 1) * max(batches)
    with planned_rig(rig, kind, subject, batches, effort, count) as (config, layout, plans):
        variants = [variant for batch in batches for variant in variants_of(rig, plans, batch)]
        timings = trained(rig, kind, subject, config, layout, plans, variants, effort)
    return {batch: figures_of(batch, plans[f"balanced.b{batch}"], variants, timings, effort) for batch in batches}


@contextmanager
def planned_rig(
    rig: Rig, kind: str, subject: Subject, batches: Sequence[int], effort: Effort, count: int
) -> Iterator[tuple[Config, Layout, dict[str, Plan]]]:
    """Yield configuration, folders with `count` tiles, and plans by experiment, after the rig was profiled."""
    size = subject.quick_size if effort is QUICK else subject.size
    config = settings_of(subject, size, effort, batches)
    with tempfile.TemporaryDirectory() as temporary:
        layout = Layout(Path(temporary))
        case = Case("tiles", ((1,),), model=subject.model, samples=count, size=size)
        write_tiles(layout.tile("tiles"), case, bands=subject.bands)
        profiled(rig, kind, subject, config, layout)
        yield config, layout, planned(rig, kind, subject, config, layout, batches)


def fifty_figures(kind: str, effort: Effort) -> dict[str, float]:
    """Return how fast the plan's workers of a rig of 50:1 are, over the fast one alone, and the slow one's share."""
    subject, batch = SUBJECTS[-1], BATCHES[0]
    effort = replace(effort, steps=effort.steps | {"balanced": 8, "fastest": 8})
    with planned_rig(FIFTY, kind, subject, (batch,), effort, 9 * batch) as (config, layout, plans):
        variants = [item for item in variants_of(FIFTY, plans, batch) if item.kind in ("balanced", "fastest")]
        timings = trained(FIFTY, kind, subject, config, layout, plans, variants, effort)
    seconds = {item.kind: float(np.median(step_seconds(timings[item.name]))) for item in variants}
    slow = plans[f"balanced.b{batch}"].workers[-1]
    return {"fifty.over_fast_alone": seconds["fastest"] / seconds["balanced"], "fifty.slow_share": slow.share}


def dynamic_figures(kind: str, effort: Effort) -> dict[str, float]:
    """Return what shares that move while training win back when a worker becomes slower."""
    subject, batch = SUBJECTS[-1], BATCHES[0]
    name, found = f"balanced.b{batch}", {}
    with planned_rig(LOADED, kind, subject, (batch,), effort, sum(LOAD_STEPS) * batch) as (config, layout, plans):
        for rebalance in (False, True):
            settings = {
                key: value.model_copy(update={"rebalance": rebalance}) for key, value in config.training.items()
            }
            found[rebalance] = loaded_run(
                kind, config.model_copy(update={"training": settings}), layout, name, plans[name]
            )
    before, under, best = speeds_of(found[False]["timing"], batch)
    _, moved, _ = speeds_of(found[True]["timing"], batch)
    losses = [found[rebalance]["loss"] for rebalance in (False, True)]
    return {
        "dynamic.won_back": (moved - under) / (best - under),
        "dynamic.loss_difference": abs(losses[1] - losses[0]) / losses[0],
        "dynamic.images_per_second.before": before,
        "dynamic.images_per_second.loaded": under,
        "dynamic.images_per_second.moved": moved,
        "dynamic.images_per_second.sum_loaded": best,
    }


def loaded_run(kind: str, config: Config, layout: Layout, name: str, plan: Plan) -> dict[str, Any]:
    """Return timing rows and loss of a training run in which a worker becomes slower."""
    target = layout.root / "loaded.json"
    with brakes(kind, list(LOADED.shares)) as folders:

        def work(folder: Path | None) -> None:
            worker.train = partial(train_under_load, folder, target)
            worker.work(name, config, layout, plan)

        fork_workers(LOADED, [partial(work, folder) for folder in folders])
    return read_json(target)


def speeds_of(timing: list[dict[str, float]], batch: int) -> tuple[float, float, float]:
    """Return images/s before the load and in the last steps under it, and Σ s_i in these last steps."""
    steps: dict[float, list[dict[str, float]]] = {}
    for row in timing:
        steps.setdefault(row["step"], []).append(row)
    seconds = [max(row["step_seconds"] for row in steps[number]) for number in sorted(steps)]
    last = [steps[number] for number in sorted(steps)[-LOAD_STEPS[1] // 3 :]]
    total = float(np.median([sum(row["samples"] / row["compute_seconds"] for row in rows) for rows in last]))
    before, under = (float(np.median(part)) for part in (seconds[1 : LOAD_STEPS[0]], seconds[-len(last) :]))
    return batch / before, batch / under, total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller tiles and fewer steps")
    parser.add_argument("--rig", action="append", help="only the rigs of this name")
    parser.add_argument("--model", action="append", help="only the models of this name")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    kind = brake_kind()
    figures: dict[str, float] = {}
    torch.set_num_threads(1)
    for rig in RIGS:
        for subject in SUBJECTS:
            if rig.name not in (options.rig or [rig.name]) or subject.name not in (options.model or [subject.name]):
                continue
            figures |= measured(rig, kind, subject, BATCHES, effort)
    if FIFTY.name in (options.rig or [FIFTY.name]):
        figures |= fifty_figures(kind, effort)
    if LOADED.name in (options.rig or [LOADED.name]):
        figures |= dynamic_figures(kind, effort)
    conditions = {
        "throttling": kind,
        "rigs": {rig.name: {"share of a core": rig.shares, "core": rig.cores} for rig in (*RIGS, FIFTY, LOADED)},
        "tiles": {
            subject.name: f"{subject.bands} bands of {size} × {size}"
            for subject in SUBJECTS
            for size in [subject.quick_size if options.quick else subject.size]
        },
        "norm": "group",
        "optimiser": "adamw",
        "rounds": effort.rounds,
        "turns per round": effort.turns,
        "timed steps per turn": effort.steps,
        "backend": "gloo",
    }
    print(json.dumps(benchmark_result("balance", conditions, figures), indent=2))


if __name__ == "__main__":
    main()
