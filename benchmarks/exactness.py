"""How far training on unequal shares is from one process on the whole batch.

Each case trains 10 steps with the project's training loop on several workers of this machine, and
again with a plain PyTorch loop in one process that knows nothing of shares. A figure is the largest
relative difference of a parameter tensor, ‖a - b‖ / ‖b‖.

    python benchmarks/exactness.py [--quick]

prints one JSON object; `--quick` leaves out the ResNet-18.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from landbalance.config.data import ClassInfo
from landbalance.config.learning import Arm, Model, Optimiser, Training
from landbalance.distributed.batchnorm import with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator, joined
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.place import place_in_job
from landbalance.files import write_json
from landbalance.models import build_model
from landbalance.objective import balanced_class_weights
from landbalance.optimiser import build_optimiser
from landbalance.tiles import IGNORED, Normalisation, StoreInfo, TileStore, normalised, open_tiles
from landbalance.train.checkpoint import Position, load_checkpoint
from landbalance.train.loop import Job, StoppedError, StopRequest, train
from landbalance.train.order import epoch_order, orientations, oriented
from measuring import benchmark_result

UNET = Model(architecture="unet", encoder="resnet18", depth=3, width=16)
RESNET = Model(architecture="resnet18")
STEPS = 10
LEARNING_RATE = 0.002


@dataclass(frozen=True)
class Case:
    """One comparison; `runs` are the shares of successive runs, each going on from the one before."""

    name: str
    runs: tuple[tuple[int, ...], ...]
    model: Model = UNET
    samples: int | None = None
    size: int = 32
    labels: str = "random"
    settings: tuple[tuple[str, Any], ...] = ()
    micro_batch: int | None = None
    arm: Arm = "balanced"

    @property
    def batch_size(self) -> int:
        """Return the global batch size."""
        return sum(self.runs[0])


CASES = (
    Case("shares_7_3", ((7, 3),)),
    # Four samples, or a deep network: larger tiles, or batch norm amplifies float32 rounding beyond the bound.
    Case("shares_1_3", ((1, 3),), size=64),
    Case("shares_1_1_14", ((1, 1, 14),)),
    Case("last_batch_5_0", ((15, 1),), samples=21),
    Case("lopsided_ignored", ((5, 5),), labels="lopsided"),
    Case("ignored_tile", ((6, 2),), labels="ignored"),
    Case("class_weights", ((7, 3),), settings=(("class_weights", "balanced"),)),
    Case("accumulation_3_5", ((15, 5),), model=UNET.model_copy(update={"norm": "group"}), micro_batch=5),
    Case("group_norm", ((7, 3),), model=UNET.model_copy(update={"norm": "group"})),
    Case("clipping", ((7, 3),), settings=(("clip_norm", 0.5),)),
    Case("ema", ((7, 3),), settings=(("ema", 0.9),)),
    Case("resume_2_1_3", ((7, 3), (10,), (4, 4, 2))),
    Case("resnet18_7_3", ((7, 3),), model=RESNET, size=64),
    Case("resnet18_1_1_14", ((1, 1, 14),), model=RESNET, size=64),
)
UNWEIGHTED = replace(CASES[0], name="unweighted", runs=((1, 9),), labels="lopsided", arm="unweighted")


def settings_of(case: Case) -> Training:
    """Return how the case trains: SGD with momentum, whose steps show a wrong factor (AdamW's would hide it)."""
    samples = case.samples or STEPS // 2 * case.batch_size
    epochs = STEPS // -(-samples // case.batch_size)
    return Training(
        epochs=epochs,
        batch_size=case.batch_size,
        optimiser=Optimiser(name="sgd", learning_rate=LEARNING_RATE, momentum=0.9, weight_decay=1e-3),
        **dict(case.settings),
    )


def write_tiles(folder: Path, case: Case, random: np.random.Generator, bands: int = 4) -> TileStore:
    """Write a store of random tiles with learnable labels for the case; return it opened."""
    samples, size = case.samples or STEPS // 2 * case.batch_size, case.size
    count = samples + 2
    segmentation = case.model.architecture == "unet"
    kinds = random.integers(0, 3, (count, 1, 1)) if not segmentation else random.integers(0, 3, (count, 4, 4))
    kinds = kinds.repeat(size // kinds.shape[1], 1).repeat(size // kinds.shape[2], 2)
    images = random.normal(1000, 60, (count, bands, size, size)).astype(np.float32)
    images[:, 0] += 100 * kinds
    labels = kinds.astype(np.uint8)
    if segmentation:
        keep = {"random": random.random((count, 1, 1)), "ignored": random.integers(0, 2, (count, 1, 1))}.get(
            case.labels, np.where(random.random((count, 1, 1)) < 0.5, 0.01, 1.0)
        )
        labels = np.where(random.random(labels.shape) < keep, labels, IGNORED).astype(np.uint8)
    else:
        labels = labels[:, 0, 0]
    folder.mkdir(parents=True)
    np.save(folder / "images-000.npy", images)
    np.save(folder / "labels-000.npy", labels)
    splits = ["train"] * samples + ["validation"] * 2
    import pandas as pd

    pd.DataFrame({"split": splits}).to_parquet(folder / "index.parquet")
    names, colours = ("a", "b", "c"), ("#000001", "#000002", "#000003")
    info = StoreInfo(
        task="segmentation" if segmentation else "classification",
        bands=[f"B{band}" for band in range(bands)],
        classes=[
            ClassInfo(name=name, colour=colour, values=[name]) for name, colour in zip(names, colours, strict=True)
        ],
        tile_size=size,
        resolution=None,
        tiles=count,
        tiles_per_shard=count,
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
    balanced = settings_of(case).class_weights == "balanced"
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


def one_process(case: Case, store: TileStore, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return the state after training by a plain loop: whole batches, PyTorch's own batch norm and mean loss."""
    settings, info = settings_of(case), store.info
    network = fresh_network(case, info, dtype).train()
    averaged = {key: value.clone() for key, value in network.state_dict().items()}
    optimiser = build_optimiser(network, settings.optimiser)
    weights = class_weights_of(case, info)
    loss_of = nn.CrossEntropyLoss(None if weights is None else weights.to(dtype), ignore_index=IGNORED)
    ids, done = store.ids("train"), 0
    for epoch in range(settings.epochs):
        order = epoch_order(ids, settings.seed, epoch)
        for start in range(0, len(order), settings.batch_size):
            samples = order[start : start + settings.batch_size]
            images, labels = store.read(samples)
            turns = orientations(samples, settings.seed, epoch)
            images = np.stack([oriented(tile, turn) for tile, turn in zip(images, turns, strict=True)])
            if labels.ndim == 3:
                labels = np.stack([oriented(tile, turn) for tile, turn in zip(labels, turns, strict=True)])
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * done / STEPS))
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad()
            inputs = torch.from_numpy(normalised(images, info.normalisation)).to(dtype)
            loss_of(network(inputs), torch.from_numpy(labels.astype(np.int64))).backward()
            if settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
            optimiser.step()
            done += 1
            for key, value in network.state_dict().items():
                if settings.ema is None or "running" in key or "num_batches" in key:
                    averaged[key] = value.clone()
                else:
                    averaged[key] += (1 - settings.ema) * (value - averaged[key])
    assert done == STEPS
    return averaged


class StopAfter(StopRequest):
    """Asks for a stop once it has been asked `steps` times."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def requested(self) -> bool:  # type: ignore[override]
        """Whether the job should stop; asked once a step."""
        self._left -= 1
        return self._left < 0


def on_workers(case: Case, run: int, store: TileStore, dtype: torch.dtype, folder: Path) -> None:
    """Be one worker of one run of the case; rank 0 saves the state after the last run."""
    shares, rank = case.runs[run], dist.get_rank()
    settings, clock = settings_of(case), Clock(torch.device("cpu"))
    network = fresh_network(case, store.info, dtype)
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    with_global_batch_norm(network, Communicator(clock, group))
    averaged = fresh_network(case, store.info, dtype) if settings.ema is not None else None
    optimiser = build_optimiser(network, settings.optimiser)
    position = Position()
    if run > 0 and (checkpoint := load_checkpoint(folder / "checkpoints", case.name)) is not None:
        network.load_state_dict(checkpoint.network)
        optimiser.load_state_dict(checkpoint.optimiser)
        position = checkpoint.position
    job = Job(
        title=case.name, settings=settings, arm=case.arm, precision=dtype, store=store, network=network,
        averaged=averaged, optimiser=optimiser, class_weights=class_weights_of(case, store.info),
        shares=list(shares), rank=rank, micro_batch=case.micro_batch, clock=clock, identity=case.name,
        checkpoints=folder / "checkpoints",
        stop=StopAfter(3) if run < len(case.runs) - 1 else StopRequest(),
    )  # fmt: skip
    with contextlib.suppress(StoppedError):
        train(job, position)
    if rank == 0 and run == len(case.runs) - 1:
        torch.save(job.result.state_dict(), folder / "state.pt")


def largest_difference(
    found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], statistics: bool = False
) -> float:
    """Return the largest relative difference over parameters, or over the running statistics of batch norms."""
    assert found.keys() == wanted.keys()
    names = [name for name, value in wanted.items() if value.is_floating_point()]
    chosen = [name for name in names if ("running_" in name) is statistics]
    differences = [float((found[name] - wanted[name]).norm() / wanted[name].norm().clamp_min(1e-12)) for name in chosen]
    return max(differences, default=0.0)


def planned_runs(cases: Sequence[Case]) -> Iterator[tuple[int, list[tuple[Case, int]]]]:
    """Yield launches: a number of workers, and the runs to do with it, in an order that resumes can follow."""
    rounds = max(len(case.runs) for case in cases)
    for run in range(rounds):
        for size in sorted({len(case.runs[run]) for case in cases if run < len(case.runs)}):
            yield size, [(case, run) for case in cases if run < len(case.runs) and len(case.runs[run]) == size]


def figures(quick: bool) -> dict[str, float]:
    """Return the difference of each case, in float64 and float32."""
    cases = [case for case in CASES if not quick or case.model is not RESNET] + [UNWEIGHTED]
    result: dict[str, float] = {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        stores = {
            case.name: write_tiles(root / case.name / "tiles", case, np.random.default_rng(number))
            for number, case in enumerate(cases)
        }
        for number, (size, runs) in enumerate(planned_runs(cases)):
            listed = root / f"runs-{number}.json"
            write_json(listed, [[case.name, run] for case, run in runs])
            command = [sys.executable, __file__, "--worker", str(root), str(listed)]
            run_workers(command, [LocalWorker(f"worker {rank}", 1) for rank in range(size)])
        for kind in ("float64", "float32"):
            dtype = getattr(torch, kind)
            statistics = 0.0
            for case in cases:
                found = torch.load(root / case.name / kind / "state.pt", weights_only=True)
                # The one process always computes the exact gradient: what an arm loses shows against it.
                wanted = one_process(case, stores[case.name], dtype)
                result[f"{kind}.{case.name}"] = largest_difference(found, wanted)
                if case.arm == "balanced":
                    statistics = max(statistics, largest_difference(found, wanted, statistics=True))
            result[f"{kind}.running_statistics"] = statistics
    return result


def work(root: Path, listed: Path) -> None:
    """Be one worker of all the runs in the file `listed`."""
    place = place_in_job()
    assert place is not None
    torch.set_num_threads(1)
    known = {case.name: case for case in (*CASES, UNWEIGHTED)}
    with joined(place, 120):
        for name, run in json.loads(listed.read_text()):
            store = open_tiles(root / name / "tiles")
            for kind in ("float64", "float32"):
                folder = root / name / kind
                folder.mkdir(exist_ok=True)
                on_workers(known[name], run, store, getattr(torch, kind), folder)
        dist.barrier()


def main() -> None:
    """Measure and print, or be a worker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out the ResNet-18")
    parser.add_argument("--worker", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return
    conditions = {"steps": STEPS, "optimiser": "SGD, momentum 0.9", "quick": options.quick, "backend": "gloo"}
    print(json.dumps(benchmark_result("exactness", conditions, figures(options.quick)), indent=2))


if __name__ == "__main__":
    main()
