"""The training loop, run by every worker; read it from top to bottom.

All workers hold the same network. In each step a worker computes the gradient of its slice of the
global batch; `landbalance.weighting` makes the sum of these gradients that of the whole batch;
each worker then takes the same optimiser step.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from landbalance.batches import Batch, BatchReader, prefetched
from landbalance.config.learning import Arm, Training
from landbalance.distributed.clock import Clock
from landbalance.distributed.reduction import StartSum
from landbalance.objective import summed_loss
from landbalance.optimiser import learning_rate
from landbalance.progress import Progress
from landbalance.tiles import IGNORED, TileStore
from landbalance.train.checkpoint import Checkpoint, Position, save_checkpoint
from landbalance.train.order import epoch_order, proportional, slice_of, steps_per_epoch
from landbalance.train.rebalance import NOTICE, Shares, Watch
from landbalance.weighting import StepTotals, start_totals, sum_gradients

_log = logging.getLogger(__name__)


class StopRequest:
    """Set by a signal handler; the job then writes a checkpoint and ends."""

    requested = False


class StoppedError(Exception):
    """The job stopped on request; a checkpoint was written."""


@dataclass(frozen=True)
class Job:
    """What one worker needs to train with the others.

    Attributes
    ----------
    precision : torch.dtype
        float32 or float64 of all computing, or bfloat16 for autocast.
    averaged : Module or None
        Another copy of the network, for the moving average of its weights.
    shares : Shares
        Samples of the global batch per rank, by step.
    watch : Watch or None
        Says when shares should move; None when they stay.
    micro_batch : int or None
        The most samples that this worker computes at once.
    start_sum : StartSum
        The way to sum gradients over the workers.
    identity : str
        What the job computes, as text; checkpoints carry it.
    """

    title: str
    settings: Training
    arm: Arm
    precision: torch.dtype
    store: TileStore
    network: nn.Module
    averaged: nn.Module | None
    optimiser: torch.optim.Optimizer
    class_weights: Tensor | None
    shares: Shares
    watch: Watch | None
    rank: int
    micro_batch: int | None
    clock: Clock
    start_sum: StartSum
    identity: str
    checkpoints: Path
    stop: StopRequest

    @property
    def sent(self) -> torch.dtype:
        """Return the type that gradients are sent as."""
        if self.settings.reduction == "bfloat16":
            return torch.bfloat16
        return torch.float64 if self.precision == torch.float64 else torch.float32

    @property
    def result(self) -> nn.Module:
        """Return the network that is validated and saved."""
        return self.network if self.averaged is None else self.averaged


def train(job: Job, position: Position) -> None:
    """Train from `position` to the last epoch; network, optimiser and position change in place.

    Raises
    ------
    StoppedError
        When any worker was asked to stop; a checkpoint was written before.
    """
    settings, clock = job.settings, job.clock
    # The workers' batch norms agree by themselves; DDP must not overwrite buffers with rank 0's.
    network = DistributedDataParallel(job.network, forward_sync_buffers=False, gradient_as_bucket_view=True)
    sum_gradients(network, clock, job.start_sum, job.sent)
    augment = settings.augmentation == "dihedral"
    reader = BatchReader(job.store, job.class_weights, augment, settings.seed, settings.shift)
    ids = job.store.ids("train")
    steps = steps_per_epoch(len(ids), settings.batch_size)
    saved, computed = time.monotonic(), 0.0

    done = position.epoch * steps + position.step
    with Progress(f"train {job.title}", settings.epochs * steps, "step", before=done) as progress:
        while position.epoch < settings.epochs:
            began = time.monotonic()
            # Sums of all workers go on from the checkpoint on rank 0 alone, or they would be counted twice.
            sums = torch.tensor([position.loss, position.weight], dtype=torch.float64) * (job.rank == 0)
            timing: list[dict[str, float]] = []
            job.network.train()
            ended = time.perf_counter()
            for batches in _epoch(job, reader, ids, position):
                loading = time.perf_counter() - ended
                total_steps = position.epoch * steps + position.step
                # Dropout, where a model has it, then repeats after a resume.
                torch.manual_seed(hash((settings.seed, total_steps, job.rank)))
                rate = learning_rate(settings, total_steps, steps)
                for group in job.optimiser.param_groups:
                    group["lr"] = rate

                clock.start()
                clock.steps += 1
                due = job.rank == 0 and time.monotonic() - saved > settings.checkpoint_seconds
                weight = sum(batch.weight for batch in batches)
                totals = start_totals(job.arm, weight, job.stop.requested, due, computed)
                arrived = False
                for number, batch in enumerate(batches):
                    last = number == len(batches) - 1
                    with contextlib.nullcontext() if last else network.no_sync():
                        logits = _logits(job, network, batch)
                        labels = batch.labels.to(clock.device)
                        loss = summed_loss(logits, labels, job.class_weights, settings.label_smoothing)
                        if not arrived:
                            totals.wait(clock)
                            arrived = True
                        torch.autograd.backward(loss * totals.loss_factor)
                    sums += torch.tensor([float(loss.detach()), batch.weight], dtype=torch.float64)
                clock.resume()
                if settings.clip_norm is not None:
                    nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
                job.optimiser.step()
                job.optimiser.zero_grad(set_to_none=True)
                if job.averaged is not None and settings.ema is not None:
                    _average(job.averaged, job.network, settings.ema)
                clock.pause()
                clock.waits = False
                computed = clock.computed

                _watch_shares(job, position, total_steps, totals)
                ended = time.perf_counter()
                timing.append(_timing(job, position, batches, loading))
                progress.advance(note=f"epoch {position.epoch + 1}/{settings.epochs}")
                position.step += 1
                if totals.stop or (totals.checkpoint and position.step < steps):
                    _save(job, position, steps, sums, timing, began)
                    timing, began, saved = [], time.monotonic(), time.monotonic()
                    if totals.stop:
                        dist.barrier()  # whoever ends first would make the launcher end the one that writes
                        raise StoppedError
                    ended = time.perf_counter()
            _finish_epoch(job, position, reader, sums, timing, steps, began)
            _save(job, position, steps, None, [], time.monotonic())
            saved = time.monotonic()


def _logits(job: Job, network: nn.Module, batch: Batch) -> Tensor:
    device, half = job.clock.device, job.precision == torch.bfloat16
    images = batch.images.to(device, torch.float32 if half else job.precision)
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        logits: Tensor = network(images)
    return logits


@torch.no_grad()
def _average(averaged: nn.Module, network: nn.Module, decay: float) -> None:
    """Move the average towards the network; it takes over the statistics of batch norms as they are."""
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - decay)
    for mean, now in zip(averaged.buffers(), network.buffers(), strict=True):
        mean.copy_(now)


def _watch_shares(job: Job, position: Position, step: int, totals: StepTotals) -> None:
    """Move shares, on all workers alike, when how long each computed in the step before says so."""
    # An epoch's first step follows its last, which may be a smaller batch; after a resume none was timed.
    if job.watch is None or position.step == 0 or not totals.computed.all():
        return
    now = job.shares.at(step - 1)
    if now != job.shares.at(step + NOTICE):
        return  # a change is on its way
    decided = [job.watch.change(step, now, totals.computed)]
    if not job.watch.looked:
        return
    # From the same numbers, but perhaps on another processor: a last bit must not tear the shares apart.
    dist.broadcast_object_list(decided)
    (change,) = decided
    if change is not None:
        job.shares.changes.append(change)
        position.changes.append(asdict(change) | {"planned": job.shares.planned})
        if job.rank == 0:
            _log.info("shares move from %s to %s at step %d: %s", now, change.shares, change.step + 1, change.reason)


def _epoch(job: Job, reader: BatchReader, ids: NDArray[np.int64], position: Position) -> Iterator[list[Batch]]:
    """Yield this worker's batches of the epoch's remaining steps: a list of micro-batches per step."""
    order = epoch_order(ids, job.settings.seed, position.epoch)
    epoch, first = position.epoch, position.step
    steps = steps_per_epoch(len(order), job.settings.batch_size)

    def batches() -> Iterator[list[Batch]]:
        for step in range(first, steps):
            samples = slice_of(step, order, job.shares.at(epoch * steps + step), job.rank)
            at_once = job.micro_batch or max(len(samples), 1)
            starts = range(0, max(len(samples), 1), at_once)
            yield [reader.batch(samples[start : start + at_once], epoch) for start in starts]

    return prefetched(batches())


def _timing(job: Job, position: Position, batches: list[Batch], loading: float) -> dict[str, float]:
    """Return this worker's row of ``timing.parquet``; the step's time includes waiting for its data."""
    return {
        "epoch": position.epoch,
        "step": position.step,
        "rank": job.rank,
        "samples": sum(len(batch.labels) for batch in batches),
        "compute_seconds": job.clock.computed,
        "wait_seconds": job.clock.waited,
        "load_seconds": loading,
        "step_seconds": job.clock.elapsed + loading,
    }


def _finish_epoch(
    job: Job,
    position: Position,
    reader: BatchReader,
    sums: Tensor,
    timing: list[dict[str, float]],
    steps: int,
    began: float,
) -> None:
    """Validate, and write the epoch into the history; the position moves to the next epoch."""
    job.clock.waits = True
    dist.all_reduce(sums)
    loss, weight, correct, labelled = _validation(job, reader, (position.epoch + 1) * steps)
    position.timing += _gathered(timing)
    position.seconds += time.monotonic() - began
    row = {
        "epoch": position.epoch + 1,
        "learning_rate": learning_rate(job.settings, (position.epoch + 1) * steps - 1, steps),
        "train_loss": float(sums[0] / sums[1]) if sums[1] else float("nan"),
        "validation_loss": loss / weight if weight else float("nan"),
        "validation_accuracy": correct / labelled if labelled else float("nan"),
        "seconds": position.seconds,
    }
    position.history.append(row)
    position.epoch, position.step, position.loss, position.weight = position.epoch + 1, 0, 0.0, 0.0
    if job.rank == 0:
        _log.info(
            "epoch %d/%d: loss %.3f, validation loss %.3f, validation accuracy %.3f",
            row["epoch"], job.settings.epochs, row["train_loss"], row["validation_loss"], row["validation_accuracy"],
        )  # fmt: skip


@torch.inference_mode()
def _validation(job: Job, reader: BatchReader, total_steps: int) -> list[float]:
    """Return sums over the validation split: loss, weight, correct and labelled elements."""
    network = job.result.eval()
    ids = job.store.ids("validation")
    shares = job.shares.at(total_steps)
    sizes = proportional(len(ids), shares)
    start = sum(sizes[: job.rank])
    mine = ids[start : start + sizes[job.rank]]
    at_once = job.micro_batch or max(shares[job.rank], 1)
    sums = torch.zeros(4, dtype=torch.float64)
    for first in range(0, len(mine), at_once):
        job.clock.start()
        batch = reader.batch(mine[first : first + at_once], None)
        labels = batch.labels.to(job.clock.device)
        logits = _logits(job, network, batch)
        labelled = labels != IGNORED
        correct = (logits.argmax(1) == labels)[labelled].sum()
        loss = summed_loss(logits, labels, job.class_weights)
        sums += torch.tensor([float(loss), batch.weight, float(correct), float(labelled.sum())], dtype=torch.float64)
        job.clock.pause()
    job.clock.waits = True
    dist.all_reduce(sums)
    job.clock.waits = False
    values: list[float] = sums.tolist()
    return values


def _save(
    job: Job, position: Position, steps: int, sums: Tensor | None, timing: list[dict[str, float]], began: float
) -> None:
    """Write a checkpoint on rank 0; `sums` are those of a step in the middle of an epoch."""
    if sums is not None:
        totals = sums.clone()
        dist.all_reduce(totals)
        position.loss, position.weight = totals.tolist()
        position.timing += _gathered(timing)
        position.seconds += time.monotonic() - began
    if job.rank == 0:
        total_steps = position.epoch * steps + position.step
        averaged = None if job.averaged is None else job.averaged.state_dict()
        state = Checkpoint(position, job.network.state_dict(), averaged, job.optimiser.state_dict())
        path = save_checkpoint(job.checkpoints, job.identity, total_steps, state)
        _log.debug("checkpoint %s", path)


def _gathered(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the rows of all workers, ordered by step and rank."""
    parts: list[list[dict[str, float]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(parts, rows)
    return sorted((row for part in parts for row in part), key=lambda row: (row["epoch"], row["step"], row["rank"]))
