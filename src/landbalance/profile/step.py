"""A training step as the train stage takes it, timed: on real tiles, read ahead, with the other workers or apart."""

import queue
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from landbalance.config.learning import Model, Optimiser
from landbalance.distributed.batchnorm import GlobalBatchNorm2d, with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator
from landbalance.distributed.reduction import sum_in_group
from landbalance.models import build_model
from landbalance.objective import summed_loss, summed_weight
from landbalance.optimiser import build_optimiser
from landbalance.tiles import TileStore, normalised


class TrainingStep:
    """One worker's training step: the same network, loss, reduction of gradients, update and reading as in training.

    The steps with communication must be taken by all workers at the same time.
    """

    def __init__(self, model: Model, store: TileStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        info = store.info
        torch.manual_seed(0)
        self._dtype = torch.float64 if model.precision == "float64" else torch.float32
        self._half = model.precision == "bfloat16"
        network = build_model(model, len(info.bands), len(info.classes)).to(clock.device, self._dtype)
        group = dist.new_group() if dist.get_world_size() > 1 else None
        assert group is None or isinstance(group, dist.ProcessGroup)
        self._together, self._alone = Communicator(clock, group), Communicator(clock)
        self.network: nn.Module = with_global_batch_norm(network, self._together).train()
        self._wrapped = DistributedDataParallel(self.network, forward_sync_buffers=False, gradient_as_bucket_view=True)
        self._wrapped.register_comm_hook(None, self._sum_bucket)
        self._apart = False
        # AdamW is the costliest optimiser on offer, and its update takes little of a step.
        self._optimiser = build_optimiser(self.network, Optimiser(name="adamw"))

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
        with closing(_prefetched(self._batches(samples))) as batches:
            for number in range(warmup + repeats):
                if apart or number == 0:
                    dist.barrier()
                began = time.perf_counter()
                images, labels, weight = next(batches)
                loading = time.perf_counter() - began
                if not (apart and samples == 0):
                    self._take(images, labels, weight)
                    if number >= warmup:
                        computed.append(self._clock.computed)
                        whole.append(self._clock.elapsed + loading)
        return computed, whole

    def take_apart(self, samples: int) -> float:
        """Take one step without the others and return its seconds of computing; for watching the memory."""
        self._apart = True
        self._norms(self._alone)
        self._take(*next(self._batches(samples)))
        return self._clock.computed

    def _take(self, images: Tensor, labels: Tensor, weight: float) -> None:
        clock = self._clock
        clock.start()
        sums = torch.tensor([weight, 0.0, 0.0], dtype=torch.float64)
        work = None if self._apart else dist.all_reduce(sums, async_op=True)
        images = images.to(clock.device, torch.float32 if self._half else self._dtype)
        with torch.autocast(clock.device.type, torch.bfloat16, enabled=self._half):
            logits = (self.network if self._apart else self._wrapped)(images)
        loss = summed_loss(logits, labels.to(clock.device), None)
        if work is not None:
            with clock.waiting():
                work.wait()
        torch.autograd.backward(loss / max(float(sums[0]), 1.0))
        float(loss.detach())
        if not self._apart:
            clock.resume()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        clock.pause()

    def _sum_bucket(self, state: None, bucket: GradBucket) -> Future[Tensor]:
        clock = self._clock
        if clock.device.type == "cpu" or clock.slowdown > 1 or bucket.is_last():
            clock.pause()
        return sum_in_group()(bucket.buffer())

    def _norms(self, communicator: Communicator) -> None:
        for module in self.network.modules():
            if isinstance(module, GlobalBatchNorm2d):
                module.communicator = communicator

    def _batches(self, samples: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Yield batches of the train split without end, in another order each time."""
        random = np.random.default_rng(0)
        ids = self._store.ids("train")
        while True:
            images, labels = self._store.read(random.choice(ids, samples, replace=samples > len(ids)))
            inputs = torch.from_numpy(normalised(images, self._store.info.normalisation))
            targets = torch.from_numpy(labels.astype(np.int64))
            weight = float(summed_weight(targets, None))
            yield inputs.contiguous(memory_format=torch.channels_last), targets, weight


def _prefetched(batches: Iterator[tuple[Tensor, Tensor, float]]) -> Generator[tuple[Tensor, Tensor, float]]:
    """Yield `batches`, of which a thread makes two ahead, so that reading takes its part of the machine."""
    ready: queue.Queue[tuple[Tensor, Tensor, float] | BaseException] = queue.Queue(2)
    stopped = threading.Event()

    def put(item: tuple[Tensor, Tensor, float] | BaseException) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.05)
            except queue.Full:
                continue

    def fill() -> None:
        try:
            while not stopped.is_set():
                put(next(batches))
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=fill, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
