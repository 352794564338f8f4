"""Training one case by the project's loop on real workers, and by a plain loop in one process.

The plain loop knows nothing of shares: whole batches, PyTorch's own batch norm and mean loss.
`run_on_workers` starts this file as each worker.
"""

import contextlib
import json
import pickle
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from landbalance.batches import orientations, oriented
from landbalance.config.data import ClassInfo
from landbalance.config.learning import Arm, Model, Optimiser, Training
from landbalance.distributed.batchnorm import with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator, joined
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.place import place_in_job
from landbalance.distributed.reduction import Member, ways_to_sum
from landbalance.files import write_json
from landbalance.models import build_model
from landbalance.objective import balanced_class_weights
from landbalance.optimiser import build_optimiser, learning_rate
from landbalance.tiles import IGNORED, Normalisation, Shard, StoreInfo, TileStore, normalised, open_tiles, write_lookup
from landbalance.train.checkpoint import Position, load_checkpoint
from landbalance.train.loop import Job, StoppedError, StopRequest, train
from landbalance.train.order import epoch_order, proportional
from landbalance.train.rebalance import Shares

UNET = Model(architecture="unet", encoder="resnet18", depth=3, width=16)
RESNET = Model(architecture="resnet18")
Kind = Literal["float64", "float32"]


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes
    ----------
    runs : tuple of tuple of int
        Shares of successive runs; each goes on from where the one before stopped, after three steps.
    samples : int or None
        Train tiles; two epochs of whole batches make the steps when None.
    labels : str
        Which labels are ignored. `random`: a share per tile, drawn evenly; `ignored`: all or none of a tile;
        `lopsided`: 99 % or none of a tile. For classification, `random` ignores no tile and the others every other.
    tiles : str or None
        The case whose tiles are used; its own when None.
    """

    name: str
    runs: tuple[tuple[int, ...], ...]
    model: Model = UNET
    steps: int = 10
    samples: int | None = None
    size: int = 32
    noise: float = 60.0
    labels: Literal["random", "ignored", "lopsided"] = "random"
    learning_rate: float = 0.002
    settings: tuple[tuple[str, Any], ...] = ()
    micro_batch: int | None = None
    arm: Arm = "balanced"
    tiles: str | None = None

    @property
    def batch_size(self) -> int:
        """Return the global batch size."""
        return sum(self.runs[0])

    @property
    def train_tiles(self) -> int:
        """Return the number of train tiles."""
        return self.samples or self.steps // 2 * self.batch_size

    @property
    def training(self) -> Training:
        """Return how the case trains: SGD with momentum, whose steps show a wrong factor (AdamW's would hide it)."""
        return Training(
            epochs=self.steps // -(-self.train_tiles // self.batch_size),
            batch_size=self.batch_size,
            optimiser=Optimiser(name="sgd", learning_rate=self.learning_rate, momentum=0.9, weight_decay=1e-3),
            **dict(self.settings),
        )


@dataclass(frozen=True)
class Trained:
    """What training left: the network's state, and the mean loss of each epoch's steps."""

    state: dict[str, torch.Tensor]
    losses: list[float]


def write_tiles(folder: Path, case: Case, bands: int = 4) -> TileStore:
    """Write a store of random tiles with learnable labels for the case; return it opened."""
    random = np.random.default_rng(zlib.crc32((case.tiles or case.name).encode()))
    samples, size, segmentation = case.train_tiles, case.size, case.model.architecture == "unet"
    count = samples + 2
    kinds = random.integers(0, 3, (count, 4, 4) if segmentation else (count, 1, 1))
    kinds = kinds.repeat(size // kinds.shape[1], 1).repeat(size // kinds.shape[2], 2)
    images = random.normal(1000, case.noise, (count, bands, size, size)).astype(np.float32)
    images[:, 0] += 100 * kinds
    every_other = random.integers(0, 2, (count, 1, 1))
    if segmentation:
        kept = {
            "random": random.random((count, 1, 1)),
            "ignored": every_other,
            "lopsided": np.where(every_other, 0.01, 1.0),
        }[case.labels]
        labels = np.where(random.random(kinds.shape) < kept, kinds, IGNORED).astype(np.uint8)
    else:
        kept = np.ones_like(every_other) if case.labels == "random" else every_other
        labels = np.where(kept, kinds[:, :1, :1], IGNORED)[:, 0, 0].astype(np.uint8)
    folder.mkdir(parents=True)
    np.save(folder / "images-000.npy", images)
    np.save(folder / "labels.npy", labels)
    import pandas as pd

    splits = ["train"] * samples + ["validation"] * 2
    pd.DataFrame({"split": splits}).to_parquet(folder / "index.parquet")
    write_lookup(folder, splits, np.arange(count))
    classes = [ClassInfo(name=name, colour=f"#00000{number}", values=[name]) for number, name in enumerate("abc", 1)]
    info = StoreInfo(
        task="segmentation" if segmentation else "classification",
        bands=[f"B{band}" for band in range(bands)],
        classes=classes,
        tile_size=size,
        resolution=None,
        tiles=count,
        shards=[Shard(images="images-000.npy", count=count)],
        normalisation=Normalisation(
            mean=images.mean((0, 2, 3)).tolist(), std=images.std((0, 2, 3)).tolist(), missing=None
        ),
        percentiles={},
        class_counts={
            "train": [int((labels[:samples] == k).sum()) for k in range(3)],
            "validation": [0, 0, 0],
            "test": [0, 0, 0],
        },
        nodata_share=0.0,
    )
    write_json(folder / "statistics.json", info.model_dump(mode="json"))
    return open_tiles(folder)


def class_weights_of(case: Case, info: StoreInfo) -> torch.Tensor | None:
    """Return the weights of classes that the case's settings ask for."""
    balanced = case.training.class_weights == "balanced"
    return balanced_class_weights(info.class_counts["train"]) if balanced else None


def fresh_network(case: Case, info: StoreInfo, dtype: torch.dtype) -> nn.Module:
    """Return the same initial network wherever it is called.

    Biases do not begin at 0: relative to a bias that has hardly moved away from it, rounding looks large.
    """
    torch.manual_seed(0)
    network = build_model(case.model, len(info.bands), len(info.classes))
    for parameter in network.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, float(parameter.detach().mean()), 0.2)
    return network.to(dtype)


def one_process(case: Case, store: TileStore, kind: Kind, backwards: bool = False, by_samples: bool = False) -> Trained:
    """Train the case by a plain loop.

    Parameters
    ----------
    backwards : bool
        Take the samples of each batch in reverse order: mathematically the same, so that what differs is rounding.
    by_samples : bool
        Weigh the mean losses of the workers' slices by numbers of samples, Σ (b_i/B) L_i / W_i. Batch norm sees
        the whole batch: this is what workers with global batch norm would do, emulated in one process.
    """
    dtype, settings, info = getattr(torch, kind), case.training, store.info
    network = fresh_network(case, info, dtype).train()
    averaged = {key: value.clone() for key, value in network.state_dict().items()}
    optimiser = build_optimiser(network, settings.optimiser)
    weights = class_weights_of(case, info)
    loss_of = nn.CrossEntropyLoss(None if weights is None else weights.to(dtype), ignore_index=IGNORED)
    ids, losses, done = store.ids("train"), [], 0
    for epoch in range(settings.epochs):
        order = epoch_order(ids, settings.seed, epoch)
        total, total_weight = 0.0, 0.0
        for start in range(0, len(order), settings.batch_size):
            samples = order[start : start + settings.batch_size]
            images, labels = oriented_tiles(store, samples[::-1] if backwards else samples, settings.seed, epoch)
            rate = learning_rate(settings, done, -(-len(ids) // settings.batch_size))
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad()
            logits = network(torch.from_numpy(normalised(images, info.normalisation)).to(dtype))
            targets = torch.from_numpy(labels.astype(np.int64))
            weight = float((labels != IGNORED).sum())
            loss = loss_of(logits, targets) if weight else logits.sum() * 0
            total, total_weight = total + float(loss.detach()) * weight, total_weight + weight
            if by_samples:
                sizes = proportional(len(samples), case.runs[0])
                slices = zip(logits.split(sizes), targets.split(sizes), sizes, strict=True)
                means = [size * loss_of(*pair) for *pair, size in slices if (pair[1] != IGNORED).any()]
                loss = torch.stack(means).sum() / len(samples)
            loss.backward()
            if settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
            optimiser.step()
            done += 1
            for key, value in network.state_dict().items():
                if settings.ema is None or "running" in key or "num_batches" in key:
                    averaged[key] = value.clone()
                else:
                    averaged[key] += (1 - settings.ema) * (value - averaged[key])
        losses.append(total / total_weight)
    assert done == case.steps
    return Trained(averaged, losses)


def oriented_tiles(store: TileStore, samples: np.ndarray, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of the samples, each turned and mirrored as this epoch wants it."""
    images, labels = store.read(samples)
    turns = orientations(samples, seed, epoch)
    images = np.stack([oriented(tile, turn) for tile, turn in zip(images, turns, strict=True)])
    if labels.ndim == 3:
        labels = np.stack([oriented(tile, turn) for tile, turn in zip(labels, turns, strict=True)])
    return images, labels


def run_on_workers(cases: Sequence[Case], kinds: Sequence[Kind], root: Path) -> None:
    """Train all cases, whose tiles are in `root`, on workers of this machine; `trained` reads what they left."""
    for number, (size, runs) in enumerate(_launches(cases)):
        listed = root / f"runs-{number}.pickle"
        listed.write_bytes(pickle.dumps((kinds, runs)))
        command = [sys.executable, __file__, str(root), str(listed)]
        run_workers(command, [LocalWorker(f"worker {rank}", 1) for rank in range(size)])


def trained(case: Case, kind: Kind, root: Path) -> Trained:
    """Return what `run_on_workers` left of a case."""
    folder = root / case.name / kind
    return Trained(torch.load(folder / "state.pt", weights_only=True), json.loads((folder / "losses.json").read_text()))


def _launches(cases: Sequence[Case]) -> Iterator[tuple[int, list[tuple[Case, int]]]]:
    """Yield a number of workers and the runs to do with it, in an order that resumes can follow."""
    rounds = max(len(case.runs) for case in cases)
    for run in range(rounds):
        for size in sorted({len(case.runs[run]) for case in cases if run < len(case.runs)}):
            yield size, [(case, run) for case in cases if run < len(case.runs) and len(case.runs[run]) == size]


class _StopAfter(StopRequest):
    """Asks for a stop once it has been asked `steps` times."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def requested(self) -> bool:  # type: ignore[override]
        """Whether the job should stop; asked once a step."""
        self._left -= 1
        return self._left < 0


def _train_as_worker(case: Case, run: int, store: TileStore, kind: Kind, folder: Path) -> None:
    """Be one worker of one run of the case; rank 0 saves what the last run leaves."""
    dtype, settings, clock = getattr(torch, kind), case.training, Clock(torch.device("cpu"))
    network = fresh_network(case, store.info, dtype)
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    with_global_batch_norm(network, Communicator(clock, group))
    members = [Member("node", 0, "cpu", max(share, 1)) for share in case.runs[run]]
    ways = ways_to_sum(members, clock.device, 600)
    averaged = fresh_network(case, store.info, dtype) if settings.ema is not None else None
    optimiser = build_optimiser(network, settings.optimiser)
    position = Position()
    if run > 0:
        checkpoint = load_checkpoint(folder / "checkpoints", case.name)
        assert checkpoint is not None
        network.load_state_dict(checkpoint.network)
        optimiser.load_state_dict(checkpoint.optimiser)
        if averaged is not None and checkpoint.averaged is not None:
            averaged.load_state_dict(checkpoint.averaged)
        position = checkpoint.position
    last = run == len(case.runs) - 1
    job = Job(
        title=case.name, settings=settings, arm=case.arm, precision=dtype, store=store, network=network,
        averaged=averaged, optimiser=optimiser, class_weights=class_weights_of(case, store.info),
        shares=Shares(list(case.runs[run])), watch=None, rank=dist.get_rank(), micro_batch=case.micro_batch,
        clock=clock, start_sum=ways.get("memory", ways["flat"]), identity=case.name, checkpoints=folder / "checkpoints",
        stop=StopRequest() if last else _StopAfter(3),
    )  # fmt: skip
    with contextlib.suppress(StoppedError):
        train(job, position)
    if job.rank == 0 and last:
        torch.save(job.result.state_dict(), folder / "state.pt")
        write_json(folder / "losses.json", [row["train_loss"] for row in position.history])


def main() -> None:
    """Be one worker of all the listed runs."""
    root, listed = Path(sys.argv[1]), Path(sys.argv[2])
    place = place_in_job()
    assert place is not None
    torch.set_num_threads(1)
    kinds, runs = pickle.loads(listed.read_bytes())
    with joined(place, 600):
        for case, run in runs:
            store = open_tiles(root / case.name / "tiles")
            for kind in kinds:
                folder = root / case.name / kind
                folder.mkdir(exist_ok=True)
                _train_as_worker(case, run, store, kind, folder)
        dist.barrier()


if __name__ == "__main__":
    main()
