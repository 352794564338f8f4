"""Scenes and networks whose right map is known."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from numpy.typing import NDArray
from rasterio.transform import from_origin
from torch import nn

from landbalance.bundle import CARD, WEIGHTS, Bundle, save_bundle
from landbalance.config import BlockSplit, ClassInfo, Dataset, Model, Scene, Source, Tiles
from landbalance.config.scenes import VectorLabels
from landbalance.files import write_json
from landbalance.models import build_model
from landbalance.tiles import Normalisation

CLASSES = [
    ClassInfo(name="Wald & <Wiese>", colour="#1b7837", values=["forest"]),
    ClassInfo(name="Water", colour="#2166AC", values=["water", 20]),
    ClassInfo(name="Farmland", colour="#fee08b", values=["farm"]),
]


class Nearest(nn.Module):
    """Gives each pixel (or tile, by its mean) the class whose number + 1 is nearest to the first band."""

    def __init__(self, classes: int, per_tile: bool) -> None:
        super().__init__()
        self.per_tile, self.seen = per_tile, []
        self.register_buffer("codes", torch.arange(1.0, classes + 1).view(1, -1, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen.append(tuple(images.shape))
        logits = -((images[:, :1] - self.codes) ** 2)
        return logits.mean((2, 3)) if self.per_tile else logits


class Scenery:
    """A dataset with one scene, a folder to map it into, and a bundle; parts are changed before `run`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.source, self.bundle, self.target = folder / "source", folder / "bundle", folder / "map" / "scene.tif"
        self.source.mkdir()

    def write(
        self, bands: NDArray[Any], *, nodata: float | None = None, resolution: float = 10.0, **scene: Any
    ) -> None:
        """Write a raster of shape (bands, height, width) and describe it as a dataset."""
        self.transform = from_origin(300_000, 5_900_000, resolution, resolution)
        with rasterio.open(
            self.source / "scene.tif", "w", driver="GTiff", width=bands.shape[2], height=bands.shape[1],
            count=len(bands), dtype=bands.dtype, crs="EPSG:32633", transform=self.transform, nodata=nodata,
        ) as raster:  # fmt: skip
            raster.write(bands)
        scene["nodata"] = scene.pop("configured_nodata", None)
        names = scene.pop("names", [f"B{number}" for number in range(len(bands))])
        self.dataset = Dataset(
            task="segmentation",
            sources=[Source(path="x", licence="CC0", attribution="© Someone, 2017")],
            scenes={"scene": Scene(bands={name: f"scene.tif:{place}" for place, name in enumerate(names, 1)}, **scene)},
            labels=VectorLabels(path="x.gpkg", field="f"),
            classes=CLASSES,
            tiles=Tiles(size=8),
            split=BlockSplit(by="block", size=8),
        )

    def card(self, **options: Any) -> Bundle:
        bands = options.get("bands", self.dataset.bands)
        return Bundle(
            **{
                "task": "segmentation",
                "model": Model(architecture="unet", depth=3, width=8),
                "bands": bands,
                "classes": CLASSES,
                "tile_size": 8,
                "resolution": 10.0,
                "normalisation": Normalisation(mean=[0.0] * len(bands), std=[1.0] * len(bands), missing=0.0),
                "provenance": {"experiment": "havel"},
                **options,
            }
        )

    def use(self, network: nn.Module, **options: Any) -> None:
        """Put `network` in the place of the bundle's."""
        card = self.card(**options)
        self.bundle.mkdir(exist_ok=True)
        write_json(self.bundle / CARD, card.model_dump(mode="json"))
        (self.bundle / WEIGHTS).write_bytes(b"weights")
        self.monkeypatch.setattr("landbalance.prediction.load_bundle", lambda folder: (network.eval(), card))

    def use_nearest(self, task: str = "segmentation", **options: Any) -> Nearest:
        model = {"model": Model(architecture="resnet18")} if task == "classification" else {}
        network = Nearest(len(CLASSES), per_tile=task == "classification")
        self.use(network, task=task, **model, **options)
        return network

    def save(self, **options: Any) -> nn.Module:
        """Save a real network with random weights."""
        torch.manual_seed(0)
        card = self.card(**options)
        network = build_model(card.model, len(card.bands), len(card.classes))
        save_bundle(self.bundle, network, card)
        return network.eval()

    def run(self, target: Path | None = None, workers: int | None = None, **settings: Any) -> NDArray[np.uint8]:
        """Map the scene and return what stands in the file."""
        from landbalance.config import Map
        from landbalance.map import run

        run("scene", self.dataset, Map(**settings), self.source, self.bundle, target or self.target, workers)
        with rasterio.open(target or self.target) as raster:
            found: NDArray[np.uint8] = raster.read(1)
        return found


@pytest.fixture
def scenery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenery:
    return Scenery(tmp_path, monkeypatch)


@pytest.fixture
def scene_of() -> Callable[[NDArray[np.uint8]], NDArray[np.uint16]]:
    """Return a scene of two bands whose right map is the given codes."""

    def make(codes: NDArray[np.uint8], missing: Sequence[slice] | None = None) -> NDArray[np.uint16]:
        scene = np.stack([codes.astype(np.uint16) + 1, np.full(codes.shape, 7, np.uint16)])
        if missing is not None:
            scene[:, missing[0], missing[1]] = 0
        return scene

    return make
