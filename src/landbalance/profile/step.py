"""A training step as the train stage takes it, timed: on real tiles, read ahead, with the other workers or apart."""

import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from landbalance.batches import Batch, BatchReader, prefetched
from landbalance.config.learning import Model, Optimiser
from landbalance.distributed.batchnorm import GlobalBatchNorm2d, with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator, new_group
from landbalance.distributed.reduction import StartSum
from landbalance.models import build_model, check_tile_size
from landbalance.objective import summed_loss
from landbalance.optimiser import build_optimiser
from landbalance.tiles import TileStore
from landbalance.weighting import start_totals, sum_gradients


class TrainingStep:
    """One worker's training step: the same network, loss, reduction of gradients, update and reading as in training.

    The steps with communication must be taken by all workers at the same time, after `sum_with`.
    """

    def __init__(self, model: Model, store: TileStore, clock: Clock, timeout_seconds: float) -> None:
        self._reader, self._clock = BatchReader(store, None, augment=True, seed=0), clock
        info = store.info
        torch.manual_seed(0)
        self._dtype = torch.float64 if model.precision == "float64" else torch.float32
        self._half = model.precision == "bfloat16"
        network = build_model(model, len(info.bands), len(info.classes)).to(clock.device, self._dtype)
        check_tile_size(network, model, len(info.bands), info.tile_size)
        group = new_group("cpu", timeout_seconds) if dist.get_world_size() > 1 else None
        self._together, self._alone = Communicator(clock, group), Communicator(clock)
        self.network: nn.Module = with_global_batch_norm(network, self._together).train()
        self._wrapped = DistributedDataParallel(self.network, forward_sync_buffers=False, gradient_as_bucket_view=True)
        self._apart = False
        # AdamW is the costliest optimiser on offer, and its update takes little of a step.
        self._optimiser = build_optimiser(self.network, Optimiser(name="adamw"))

    def sum_with(self, start_sum: StartSum) -> None:
        """Choose how gradients are summed: once, before the first step with communication."""
        sum_gradients(self._wrapped, self._clock, start_sum, self._dtype)

    def timings(self, samples: int, warmup: int, repeats: int, apart: bool) -> tuple[list[float], list[float]]:
        """Take steps on `samples` samples; return seconds of computing, and of all of the step, of each.

        Parameters
        ----------
        apart : bool
            Leave out all communication. The workers still begin each step together.
        """
        self._apart = apart
        self._norms(self._alone if apart else self._together)
        computed, whole = [], []
        with closing(prefetched(self._batches(samples))) as batches:
            for number in range(warmup + repeats):
                if apart or number == 0:
                    dist.barrier()
                began = time.perf_counter()
                batch = next(batches)
                loading = time.perf_counter() - began
                if not (apart and samples == 0):
                    self._take(batch)
                    if number >= warmup:
                        computed.append(self._clock.computed)
                        whole.append(self._clock.elapsed + loading)
        return computed, whole

    def take_apart(self, samples: int) -> float:
        """Take one step without the others and return its seconds of computing; for watching the memory."""
        self._apart = True
        self._norms(self._alone)
        self._take(next(self._batches(samples)))
        return self._clock.computed

    def _take(self, batch: Batch) -> None:
        clock = self._clock
        clock.start()
        totals = None if self._apart else start_totals("balanced", batch.weight, False, False)
        images = batch.images.to(clock.device, torch.float32 if self._half else self._dtype)
        with torch.autocast(clock.device.type, torch.bfloat16, enabled=self._half):
            logits = (self.network if self._apart else self._wrapped)(images)
        loss = summed_loss(logits, batch.labels.to(clock.device), None)
        factor = 1 / max(batch.weight, 1.0)
        if totals is not None:
            totals.wait(clock)
            factor = totals.loss_factor
        torch.autograd.backward(loss * factor)
        float(loss.detach())
        if totals is not None:
            clock.resume()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        clock.pause()

    def _norms(self, communicator: Communicator) -> None:
        for module in self.network.modules():
            if isinstance(module, GlobalBatchNorm2d):
                module.communicator = communicator

    def _batches(self, samples: int) -> Iterator[Batch]:
        """Yield batches of the train split without end, in another order each time."""
        random = np.random.default_rng(0)
        ids = self._reader.store.ids("train")
        while True:
            yield self._reader.batch(random.choice(ids, samples, replace=samples > len(ids)), epoch=0)
