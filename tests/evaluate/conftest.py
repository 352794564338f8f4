"""Stores and networks whose right answer is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from landbalance.bundle import Bundle
from landbalance.config import ClassInfo, Model
from landbalance.files import write_json
from landbalance.tiles import Normalisation, Shard, StoreInfo, write_lookup

CLASSES = [
    ClassInfo(name="Forest", colour="#1b7837", values=["forest"]),
    ClassInfo(name="Water", colour="#2166ac", values=["water"]),
    ClassInfo(name="Farmland", colour="#fee08b", values=["farm"]),
]


class Nearest(nn.Module):
    """Gives each pixel (or tile, by its mean) the class whose number is nearest to the first band."""

    def __init__(self, classes: int, per_tile: bool) -> None:
        super().__init__()
        self.per_tile = per_tile
        self.register_buffer("codes", torch.arange(float(classes)).view(1, -1, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = -((images[:, :1] - self.codes) ** 2)
        return logits.mean((2, 3)) if self.per_tile else logits


@pytest.fixture
def write_store(tmp_path: Path) -> Callable[..., Path]:
    def write(
        images: NDArray[np.generic],
        labels: NDArray[np.uint8],
        splits: Sequence[str],
        per_shard: int = 3,
        **columns: Sequence[int],
    ) -> Path:
        folder = tmp_path / "store"
        folder.mkdir(exist_ok=True)
        shards = []
        for shard, first in enumerate(range(0, len(images), per_shard)):
            part = images[first : first + per_shard]
            np.save(folder / f"images-{shard:03d}.npy", part)
            shards.append(Shard(images=f"images-{shard:03d}.npy", count=len(part)))
        np.save(folder / "labels.npy", labels)
        write_lookup(folder, splits, np.arange(len(images)))
        labelled = (labels != 255).reshape(len(labels), -1).sum(axis=1)
        index = pd.DataFrame({"tile": np.arange(len(images)), "split": list(splits), "labelled": labelled, **columns})
        index.to_parquet(folder / "index.parquet")
        info = StoreInfo(
            task="segmentation" if labels.ndim > 1 else "classification",
            bands=[f"B{number}" for number in range(images.shape[1])],
            classes=CLASSES,
            tile_size=images.shape[-1],
            resolution=10.0,
            tiles=len(images),
            shards=shards,
            normalisation=Normalisation(mean=[0.0] * images.shape[1], std=[1.0] * images.shape[1], missing=0.0),
            percentiles={},
            class_counts={"train": [0] * 3, "validation": [0] * 3, "test": [0] * 3},
            nodata_share=0.0,
        )
        write_json(folder / "statistics.json", info.model_dump(mode="json"))
        return folder

    return write


@pytest.fixture
def known_network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a network that reads the class off the first band in the place of every bundle."""

    def put(task: str, bands: Sequence[str] = ("B0", "B1"), classes: Sequence[ClassInfo] = CLASSES) -> None:
        card = Bundle(
            task=task,
            model=Model(architecture="unet" if task == "segmentation" else "resnet18", depth=3),
            bands=list(bands),
            classes=list(classes),
            tile_size=8,
            resolution=10.0,
            normalisation=Normalisation(mean=[0.0] * len(bands), std=[1.0] * len(bands), missing=0.0),
            provenance={},
        )
        network = Nearest(len(classes), per_tile=task == "classification")
        monkeypatch.setattr("landbalance.prediction.load_bundle", lambda folder: (network, card))

    return put
