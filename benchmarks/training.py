"""Our training against torchgeo with Lightning, a plain PyTorch loop, and the network alone on fixed tensors.

All train the same network on the same JPEG files with the same batch size, on all cores, in processes that take turns,
so that noise of the machine meets all alike. Whole epochs are timed, the first one and validation left out; imports,
and our tile stage, which decodes the files once for all, are outside the clock. torchgeo lives in an environment of
its own (see torchgeo.txt), whose Python is named by `--torchgeo`.

    python benchmarks/training.py [--quick] [--torchgeo .venv-torchgeo/bin/python] [--images FOLDER]

prints one JSON object. `over_torchgeo` and `over_plain` compare images per second with the other side as it comes:
float32, as torch lays tensors out; `….same_precision` with bfloat16 and channels last on both sides, as ours has it.
`share_of_limit` is ours over forward, backward and update alone on tensors that are there; `share_of_peak` the
operations that ours does in a second over those of matrix products in bfloat16, `share_of_peak_float32` the same of the
network alone in float32. `where.…` tells what a step of the network alone spends its time on in bfloat16
(`where_float32.…` in float32): shares that torch's profiler counts for kinds of operations, `where.idle` being what it
counts for none. Ratios are of medians, `.low` and `.high` the quartiles turn by turn. The images are made. Without
`--torchgeo` the figures that compare with it are left out. A full run with it and `--images`, a folder of EuroSAT's
images per class, also gives `time_to_95.over_torchgeo`: the time until an epoch ends with 95 % of a held-out fifth
right, by torchgeo's recipe over that of configs/eurosat.yaml.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from landbalance.config.learning import Model
from landbalance.cores import cores
from landbalance.models import build_model
from sides import measured_by

ROOT = Path(__file__).resolve().parents[1]
CLASSES, SIDE, BATCH = 10, 64, 64
# Processes that read for torchgeo and the plain loop: two cores train meanwhile. Others were not tried.
READERS = 1
LEVEL, LONGEST = 0.95, 60
# Kinds of a step's operations, by a part of their names in torch's profiler; the first that fits counts.
KINDS = {
    "convolution": "conv",
    "normalisation": "batch_norm",
    "optimiser": "adamw",
    "pooling": "pool",
    "maximum": "amax",
    "activation": "relu threshold clamp",
    "linear": "mm linear",
    "copies": "copy_ zero_ fill_ empty clone contiguous",
}
MEAN, STD = [0.34, 0.38, 0.41], [0.2, 0.14, 0.12]


def eurosat() -> dict[str, Any]:
    """Return the configuration whose network and recipe are measured."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "eurosat.yaml").read_text(encoding="utf-8"))
    return config


def network() -> nn.Module:
    """Return the network that all train."""
    torch.manual_seed(0)
    return build_model(Model(**eurosat()["models"]["resnet9"]), 3, CLASSES)


def write_images(folder: Path, count: int) -> None:
    """Write `count` JPEG files of patterns and noise, a folder per class."""
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(count):
        kind = number % CLASSES
        coarse = random.integers(20 * kind, 20 * kind + 70, (8, 8, 3)).repeat(8, 0).repeat(8, 1)
        pixels = (coarse + random.normal(0, 8, coarse.shape)).clip(0, 255).astype(np.uint8)
        (folder / f"class{kind}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"class{kind}" / f"{number}.jpg", quality=90)


def prepared(folder: Path, images: Path, validation: float, epochs: int | None) -> None:
    """Tile the images and plan for one worker on all cores; `epochs` of a plain recipe, or the recipe."""
    from landbalance.config import load_config
    from landbalance.files import write_json
    from landbalance.plans import Plan, PlannedWorker, Prediction
    from landbalance.tile.stage import run

    config = eurosat()
    names = sorted(path.name for path in images.iterdir() if path.is_dir())
    config["datasets"]["eurosat"] = {
        "task": "classification",
        "sources": [{"path": str(images), "licence": "as it comes"}],
        "folders": {"path": images.name, "bands": ["red", "green", "blue"]},
        "classes": [{"name": n, "colour": f"#0000{k:02x}", "values": [n]} for k, n in enumerate(names)],
        "split": {"by": "sample", "train": 1 - validation, "validation": validation, "test": 0.0},
    }
    if epochs is not None:
        config["training"]["scratch"] = {"epochs": epochs, "batch_size": BATCH, "seed": 0}
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "source").mkdir()
    (folder / "source" / images.name).symlink_to(images, target_is_directory=True)
    loaded = load_config(folder / "config.yaml")
    run("eurosat", loaded.datasets["eurosat"], folder / "source", folder / "results" / "tile" / "eurosat")
    worker = PlannedWorker(
        rank=0, node="here", node_index=0, local_index=0, title="all cores", device="cpu", threads=cores(),
        slowdown=1.0, emulated=False, share=loaded.training["scratch"].batch_size, micro_batch=None, speed=1.0,
        predicted_seconds=1.0, left_out=None,
    )  # fmt: skip
    unknown = Prediction(**dict.fromkeys(Prediction.model_fields, 1.0))
    plan = Plan(
        experiment="eurosat", arm="balanced", batch_size=worker.share, workers=[worker],
        predicted=unknown,
    )  # fmt: skip
    write_json(folder / "results" / "plan" / "eurosat.json", plan.model_dump(mode="json"))


def ours(folder: Path) -> list[tuple[float, float]]:
    """Train by the command of the train stage; return seconds and validation accuracy at the end of each epoch."""
    import pandas as pd

    results = folder / "results"
    command = [sys.executable, "-m", "landbalance", "train", "eurosat", "--restart"]
    command += ["--config", str(folder / "config.yaml"), "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    history = pd.read_parquet(results / "train" / "eurosat" / "history.parquet")
    return list(zip(history["seconds"].tolist(), history["validation_accuracy"].tolist(), strict=True))


def torchgeo_epochs(images: Path, epochs: int, same: bool, level: float | None) -> list[tuple[float, float]]:
    """Train torchgeo's task by Lightning; return seconds and accuracy at the end of each epoch.

    Parameters
    ----------
    same : bool
        In bfloat16 and channels last, as ours; else as it comes.
    level : float or None
        The accuracy to stop at, on a held-out fifth; None to time epochs without validation.
    """
    import logging
    import warnings

    import kornia.augmentation as K
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torchgeo.datamodules import NonGeoDataModule
    from torchgeo.datasets import NonGeoClassificationDataset
    from torchgeo.trainers import ClassificationTask

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Task(ClassificationTask):  # type: ignore[misc]
        monitor = "val_loss" if level else "train_loss"

        def configure_models(self) -> None:
            bare = network()
            self.model = bare if same else bare.to(memory_format=torch.contiguous_format)

    class Images(NonGeoDataModule):  # type: ignore[misc]
        mean, std = 255 * torch.tensor(MEAN), 255 * torch.tensor(STD)

        def setup(self, stage: str) -> None:
            whole = NonGeoClassificationDataset(str(images))
            self.train_dataset, self.val_dataset = split(whole, level is not None)

    class Times(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.found: list[tuple[float, float]] = []
            self.began = self.spent = 0.0

        def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
            self.began = time.perf_counter()

        def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
            self.spent += time.perf_counter() - self.began
            accuracy = float(trainer.callback_metrics.get("val_OverallAccuracy", 0.0))
            self.found.append((self.spent, accuracy))
            trainer.should_stop = level is not None and accuracy >= level

    data = Images(NonGeoClassificationDataset, batch_size=BATCH, num_workers=READERS)
    flips = [K.RandomHorizontalFlip(), K.RandomVerticalFlip()]
    data.train_aug = K.AugmentationSequential(
        K.Normalize(mean=data.mean, std=data.std), *flips, data_keys=None, keepdim=True
    )
    times = Times()
    trainer = Trainer(
        accelerator="cpu", max_epochs=epochs, precision="bf16-mixed" if same else "32-true", callbacks=[times],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, limit_val_batches=None if level else 0,
    )  # fmt: skip
    trainer.fit(Task(model="resnet18", num_classes=CLASSES), datamodule=data)
    return times.found


def split(whole: Any, held_out: bool) -> tuple[Any, Any]:
    """Return the training and the held-out fifth, or all for training and a token for validation."""
    order = np.random.default_rng(0).permutation(len(whole))
    fifth = len(whole) // 5 if held_out else 1
    return Subset(whole, order[fifth if held_out else 0 :].tolist()), Subset(whole, order[:fifth].tolist())


def plain_epochs(images: Path, epochs: int, same: bool) -> list[tuple[float, float]]:
    """Train by the loop that PyTorch's tutorials have; return seconds at the end of each epoch."""
    steps = [transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip(), transforms.ToTensor()]
    dataset = ImageFolder(str(images), transforms.Compose([*steps, transforms.Normalize(MEAN, STD)]))
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=READERS)
    bare = network()
    model = (bare if same else bare.to(memory_format=torch.contiguous_format)).train()
    take = step_of(model, same, fused=same)
    spent, found = 0.0, []
    for _ in range(epochs):
        began = time.perf_counter()
        for inputs, labels in loader:
            take(inputs.contiguous(memory_format=torch.channels_last) if same else inputs, labels)
        spent += time.perf_counter() - began
        found.append((spent, 0.0))
    return found


def step_of(model: nn.Module, half: bool, fused: bool) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return a step of training: forward, backward, update; `fused` in one operation."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    loss_of = nn.CrossEntropyLoss()

    def take(inputs: torch.Tensor, labels: torch.Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = model(inputs)
        torch.autograd.backward(loss_of(logits.float(), labels))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return take


def alone(half: bool) -> Callable[[], None]:
    """Return a step of the network alone, on tensors that are there."""
    take = step_of(network().train(), half, fused=True)
    inputs = torch.randn(BATCH, 3, SIDE, SIDE).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (BATCH,))
    return lambda: take(inputs, labels)


def limit(half: bool, count: int) -> dict[str, float]:
    """Return images per second of the network alone, and how many of them a matrix product's operations would be."""
    from torch.utils.flop_counter import FlopCounterMode

    take = alone(half)
    with FlopCounterMode(display=False) as counter:
        take()
    dtype = torch.bfloat16 if half else torch.float32
    left, right = (torch.randn(2048, 2048, dtype=dtype) for _ in range(2))
    product = median_seconds(lambda: left @ right, count)
    operations = counter.get_total_flops() / BATCH
    return {"limit": BATCH / median_seconds(take, count), "peak": 2 * 2048**3 / product / operations}


def where(half: bool, count: int) -> dict[str, float]:
    """Return what share of a step of the network alone each kind of operation takes."""
    from torch.profiler import ProfilerActivity, profile

    take = alone(half)
    for _ in range(3):
        take()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        for _ in range(count):
            take()
        seconds = time.perf_counter() - began
    spent = dict.fromkeys([*KINDS, "other"], 0.0)
    for event in profiler.key_averages():
        name = event.key.lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words.split())), "other")
        spent[kind] += event.self_cpu_time_total / 1e6 / seconds
    return {**spent, "idle": 1 - sum(spent.values())}


def median_seconds(work: Callable[[], object], count: int) -> float:
    """Return the median time of `work` after three tries that do not count."""
    seconds = []
    for _ in range(count + 3):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[3:])


def rate(epochs: list[tuple[float, float]], images: int) -> float:
    """Return images per second from the second epoch on."""
    return images * (len(epochs) - 1) / (epochs[-1][0] - epochs[0][0])


def turn(folder: Path, images: Path, epochs: int, steps: int, torchgeo: Path | None) -> dict[str, float]:
    """Return images per second of every side, each measured once."""
    count = sum(1 for _ in images.glob("*/*.jpg"))
    sides = {"plain": Path(sys.executable), "plain-same": Path(sys.executable)}
    if torchgeo is not None:
        sides |= {"torchgeo": torchgeo, "torchgeo-same": torchgeo}
    others = {
        side.replace("-", "_"): rate(measured_by(python, __file__, side, str(images), str(epochs)), count)
        for side, python in sides.items()
    }
    return {
        "ours": rate(ours(folder), count), **others,
        **measured_by(Path(sys.executable), __file__, "limit", str(steps)),
    }  # fmt: skip


def ratio(name: str, ours: list[float], other: list[float]) -> dict[str, float]:
    """Return the ratio of medians, and the quartiles turn by turn."""
    low, high = np.quantile(np.array(ours) / np.array(other), [0.25, 0.75])
    return {
        name: statistics.median(ours) / statistics.median(other), f"{name}.low": float(low), f"{name}.high": float(high)
    }  # fmt: skip


def time_to_level(folder: Path, images: Path, torchgeo: Path) -> dict[str, float]:
    """Return how long each side trains, its validations included, until 95 % of a held-out fifth is right."""
    prepared(folder, images, 0.2, None)
    trained = {
        "ours": ours(folder),
        "torchgeo": measured_by(torchgeo, __file__, "torchgeo-to", str(images), str(LONGEST)),
    }
    reached = {}
    for name, epochs in trained.items():
        if times := [seconds for seconds, accuracy in epochs if accuracy >= LEVEL]:
            reached[f"time_to_95.{name}_seconds"] = times[0]
        else:
            sys.stderr.write(f"{name} did not reach {LEVEL} in {len(epochs)} epochs\n")
    if len(reached) == len(trained):
        ours_seconds, theirs = reached.values()
        reached["time_to_95.over_torchgeo"] = theirs / ours_seconds
    return reached


def one_side(side: str, *words: str) -> Any:
    """Be one of the sides; return what it measured."""
    torch.set_num_threads(cores())
    if side == "limit":
        single = {f"{name}_float32": value for name, value in limit(False, int(words[0])).items()}
        return {**limit(True, int(words[0])), **single}
    if side == "where":
        return {
            f"{name}.{kind}": share
            for name, half in (("where", True), ("where_float32", False))
            for kind, share in where(half, int(words[0])).items()
        }
    images, epochs = Path(words[0]), int(words[1])
    if side.startswith("plain"):
        return plain_epochs(images, epochs, same=side.endswith("same"))
    level = LEVEL if side == "torchgeo-to" else None
    return torchgeo_epochs(images, epochs, side.endswith("same"), level)


def main() -> None:
    """Measure and print, or be one of the sides."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer images, a single turn, no time to 95 %%")
    parser.add_argument("--torchgeo", type=Path, help="the Python of torchgeo's environment, see torchgeo.txt")
    parser.add_argument("--images", type=Path, help="EuroSAT's folder of images per class, for time to 95 %%")
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(one_side(*options.side)))
        return
    if options.torchgeo and not options.torchgeo.is_file():
        sys.exit(f"{options.torchgeo}: not found. benchmarks/torchgeo.txt says how to make torchgeo's environment.")
    from measuring import benchmark_result

    count, epochs, repeats, steps = (256, 3, 1, 4) if options.quick else (4096, 4, 7, 40)
    with tempfile.TemporaryDirectory() as temporary:
        folder, images = Path(temporary), Path(temporary) / "images"
        write_images(images, count)
        prepared(folder / "project", images, 0.0, epochs)
        turns = [turn(folder / "project", images, epochs, steps, options.torchgeo) for _ in range(repeats)]
        shares = measured_by(Path(sys.executable), __file__, "where", str(steps))
        timed = {}
        if options.images and options.torchgeo and not options.quick:
            timed = time_to_level(folder / "long", options.images.resolve(), options.torchgeo)
    found = {name: [one[name] for one in turns] for name in turns[0]}
    ratios = {
        "over_torchgeo": ("ours", "torchgeo"),
        "over_torchgeo_same_precision": ("ours", "torchgeo_same"),
        "over_plain": ("ours", "plain"),
        "over_plain_same_precision": ("ours", "plain_same"),
        "share_of_limit": ("ours", "limit"),
        "share_of_peak": ("ours", "peak"),
        "share_of_peak_float32": ("limit_float32", "peak_float32"),
    }
    figures = {
        key: value
        for name, (side, other) in ratios.items()
        if other in found
        for key, value in ratio(name, found[side], found[other]).items()
    }
    per_second = {name: values for name, values in found.items() if not name.startswith("peak")}
    figures |= {f"images_per_second.{name}": statistics.median(values) for name, values in per_second.items()}
    figures |= shares | timed
    conditions = {
        "images": count, "size": [3, SIDE, SIDE], "batch": BATCH, "epochs": epochs, "repeats": repeats, "steps": steps,
        "model": eurosat()["models"]["resnet9"], "readers": READERS, "quick": options.quick,
    }  # fmt: skip
    print(json.dumps(benchmark_result("training", conditions, figures), indent=2))


if __name__ == "__main__":
    main()
