"""One epoch of the project's training loop on a tiny network, and the same by a plain loop in one process."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from landbalance.batches import BatchReader
from landbalance.config.data import ClassInfo
from landbalance.config.learning import Arm, Optimiser, Training
from landbalance.distributed.batchnorm import with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator
from landbalance.distributed.reduction import sum_in_group
from landbalance.optimiser import build_optimiser
from landbalance.tiles import IGNORED, Normalisation, Split, StoreInfo, TileStore
from landbalance.train.checkpoint import Position
from landbalance.train.loop import Job, StopRequest, train
from landbalance.train.order import epoch_order, slice_of
from landbalance.train.rebalance import Shares

BANDS, CLASSES, SIZE = 2, 3, 4
LEARNING_RATE = 0.05

Ignore = Literal["nothing", "pixels", "tile"]
Norm = Literal["none", "group", "batch", "pooled batch"]


@dataclass(frozen=True)
class Problem:
    """What is to be trained for one epoch.

    Attributes
    ----------
    shares : tuple of int
        Samples of the global batch per worker.
    ignored : tuple of str
        What is ignored of each sample of the train split: its length is the number of samples.
    ignored_workers : frozenset of int
        Workers whose samples of the first step are ignored altogether.
    class_weights : tuple of float or None
    norm : str
        ``pooled batch``: batch norm also after a pooling that leaves one pixel a sample.
    micro_batches : tuple of (int or None)
        The most samples that each worker computes at once.
    validation : int
        Samples of the validation split.
    """

    shares: tuple[int, ...]
    ignored: tuple[Ignore, ...]
    ignored_workers: frozenset[int] = frozenset()
    class_weights: tuple[float, ...] | None = None
    norm: Norm = "group"
    micro_batches: tuple[int | None, ...] = (None, None, None)
    clip_norm: float | None = None
    label_smoothing: float = 0.0
    shift: int = 0
    seed: int = 0
    validation: int = 1
    arm: Arm = "balanced"

    @property
    def settings(self) -> Training:
        """Return how it is trained: SGD, whose steps show a wrong factor (AdamW's would hide it)."""
        optimiser = Optimiser(name="sgd", learning_rate=LEARNING_RATE, momentum=0.9, weight_decay=1e-3)
        return Training(
            epochs=1, batch_size=sum(self.shares), optimiser=optimiser, schedule="constant",
            clip_norm=self.clip_norm, label_smoothing=self.label_smoothing, shift=self.shift, seed=self.seed,
        )  # fmt: skip

    @property
    def weights(self) -> Tensor | None:
        """Return the class weights as a tensor."""
        return None if self.class_weights is None else torch.tensor(self.class_weights)

    @property
    def order(self) -> NDArray[np.int64]:
        """Return the order of the epoch."""
        return epoch_order(np.arange(len(self.ignored)), self.seed, 0)

    def store(self) -> "Tiles":
        """Return its tiles."""
        random = np.random.default_rng([self.seed, 1])
        count = len(self.ignored) + self.validation
        images = random.normal(size=(count, BANDS, SIZE, SIZE)).astype(np.float32)
        labels = random.integers(0, CLASSES, (count, SIZE, SIZE)).astype(np.uint8)
        for sample, what in enumerate(self.ignored):
            if what != "nothing":
                labels[sample][random.random((SIZE, SIZE)) < (1 if what == "tile" else 0.7)] = IGNORED
        for rank in self.ignored_workers:
            labels[slice_of(0, self.order, self.shares, rank)] = IGNORED
        return Tiles(images, labels, len(self.ignored))


@dataclass(frozen=True)
class Tiles(TileStore):
    """A tile store in memory, which notes what is read of it."""

    pixels: NDArray[np.float32]
    marks: NDArray[np.uint8]
    train: int
    was_read: list[int] = field(default_factory=list)

    def __init__(self, images: NDArray[np.float32], labels: NDArray[np.uint8], train: int) -> None:
        info = StoreInfo(
            task="segmentation",
            bands=[f"B{band}" for band in range(BANDS)],
            classes=[ClassInfo(name=f"c{k}", colour=f"#00000{k}", values=[k]) for k in range(CLASSES)],
            tile_size=SIZE,
            resolution=None,
            tiles=len(images),
            shards=[],
            normalisation=Normalisation(mean=[0.0] * BANDS, std=[1.0] * BANDS),
            percentiles={},
            class_counts={split: [1] * CLASSES for split in ("train", "validation", "test")},
            nodata_share=0.0,
        )
        values = {"folder": Path(), "info": info, "pixels": images, "marks": labels, "train": train, "was_read": []}
        self.__dict__.update(values)

    def ids(self, split: Split) -> NDArray[np.int64]:
        train = np.arange(len(self.pixels)) < self.train
        return np.flatnonzero({"train": train, "validation": ~train}[split])

    def read(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.generic], NDArray[np.uint8]]:
        self.was_read.extend(ids.tolist())
        return self.pixels[ids], self.marks[ids]


@dataclass(frozen=True)
class Outcome:
    """What an epoch came to.

    Attributes
    ----------
    gradients : list of Tensor
        The whole gradient that each optimiser step used, as one vector.
    statistics : Tensor
        Running statistics of all batch norms, as one vector.
    losses : tuple of float
        Train and validation loss; validation accuracy.
    read : list of int
        Samples that this process read, in any order.
    """

    gradients: list[Tensor]
    statistics: Tensor
    losses: tuple[float, float, float]
    read: list[int]


def network_of(problem: Problem, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Return the initial network, the same wherever it is called."""
    torch.manual_seed(problem.seed)
    layers: list[nn.Module] = [nn.Conv2d(BANDS, 4, 3, padding=1, bias=problem.norm == "none")]
    layers += {"none": [], "group": [nn.GroupNorm(2, 4)]}.get(problem.norm, [nn.BatchNorm2d(4)])
    layers.append(nn.ReLU())
    if problem.norm == "pooled batch":
        layers.append(PooledBranch(4))
    layers.append(nn.Conv2d(4, CLASSES, 1))
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias, 0, 0.2)
    return network.to(dtype)


class PooledBranch(nn.Module):
    """Adds what the mean over the whole tile tells to each pixel: the norm in it sees one pixel a sample."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolution, norm = nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), convolution, norm, nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        return images + self.pooled(images)


def on_this_worker(problem: Problem) -> Outcome:
    """Return what the project's training loop comes to, on one of the workers of the default process group."""
    rank, clock = dist.get_rank(), Clock(torch.device("cpu"))
    group = dist.group.WORLD
    assert isinstance(group, dist.ProcessGroup)
    network = with_global_batch_norm(network_of(problem), Communicator(clock, group))
    optimiser = build_optimiser(network, problem.settings.optimiser)
    gradients: list[Tensor] = []
    optimiser.register_step_pre_hook(lambda *_: gradients.append(_vector([p.grad for p in network.parameters()])))
    store, position = problem.store(), Position()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            title="a test", settings=problem.settings, arm=problem.arm, precision=torch.float64, store=store,
            network=network, averaged=None, optimiser=optimiser, class_weights=problem.weights,
            shares=Shares(list(problem.shares)), watch=None, rank=rank, micro_batch=problem.micro_batches[rank],
            clock=clock, start_sum=sum_in_group(), identity="", checkpoints=Path(folder), stop=StopRequest(),
        )  # fmt: skip
        train(job, position)
    row = position.history[-1]
    losses = (row["train_loss"], row["validation_loss"], row["validation_accuracy"])
    return Outcome(gradients, _statistics(network), losses, store.was_read)


def in_one_process(problem: Problem) -> Outcome:
    """Return what a plain loop comes to: whole batches, PyTorch's own batch norm and mean loss."""
    settings, store = problem.settings, problem.store()
    network = network_of(problem).train()
    optimiser = build_optimiser(network, settings.optimiser)
    weights = None if problem.weights is None else problem.weights.double()
    smoothed_loss_of = nn.CrossEntropyLoss(weights, ignore_index=IGNORED, label_smoothing=problem.label_smoothing)
    loss_of = nn.CrossEntropyLoss(weights, ignore_index=IGNORED)
    augment = settings.augmentation == "dihedral"
    reader = BatchReader(store, problem.weights, augment, settings.seed, settings.shift)
    gradients, total_loss, total_weight = [], 0.0, 0.0
    for start in range(0, len(problem.order), settings.batch_size):
        batch = reader.batch(problem.order[start : start + settings.batch_size], 0)
        logits = network(batch.images.double())
        # The mean over nothing is 0/0; a step without a label is one with gradient 0.
        loss = smoothed_loss_of(logits, batch.labels) if (batch.labels != IGNORED).any() else 0.0 * logits.sum()
        loss.backward()
        if settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
        gradients.append(_vector([parameter.grad for parameter in network.parameters()]))
        optimiser.step()
        optimiser.zero_grad()
        total_loss += float(loss.detach()) * batch.weight
        total_weight += batch.weight
    with torch.inference_mode():
        batch = reader.batch(store.ids("validation"), None)
        logits = network.eval()(batch.images.double())
        losses = (
            total_loss / total_weight if total_weight else float("nan"),
            float(loss_of(logits, batch.labels)),
            float((logits.argmax(1) == batch.labels).double().mean()),
        )
    return Outcome(gradients, _statistics(network), losses, store.was_read)


def _vector(tensors: Sequence[Any]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _statistics(network: nn.Module) -> Tensor:
    buffers = [buffer.double() for buffer in network.buffers()]
    return _vector(buffers) if buffers else torch.zeros(0, dtype=torch.float64)


def worst_difference(found: Outcome, wanted: Outcome) -> float:
    """Return the largest relative difference ‖a - b‖ / ‖b‖ of a step's gradient, or of the running statistics."""
    assert len(found.gradients) == len(wanted.gradients)
    pairs = [*zip(found.gradients, wanted.gradients, strict=True), (found.statistics, wanted.statistics)]
    return max(_relative(ours, theirs) for ours, theirs in pairs)


def _relative(found: Tensor, wanted: Tensor) -> float:
    difference = float((found - wanted).norm())
    if difference == 0:
        return 0.0
    size = float(wanted.norm())
    return difference / size if size else float("inf")
