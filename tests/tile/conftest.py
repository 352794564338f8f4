"""Small scenes, polygons and folders of images whose right tiles are known."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
from numpy.typing import NDArray
from PIL import Image
from rasterio.transform import from_origin

from landbalance.config import Dataset

LEFT, TOP, PIXEL = 500_000.0, 5_800_000.0, 10.0


@pytest.fixture
def write_scene() -> Callable[..., None]:
    """Return a function that writes an array (height, width) or (bands, height, width) as GeoTIFF."""

    def write(path: Path, values: NDArray[Any], left: float = LEFT, top: float = TOP, **options: Any) -> None:
        values = values if values.ndim == 3 else values[None]
        count, height, width = values.shape
        options = {"crs": "EPSG:32633", "transform": from_origin(left, top, PIXEL, PIXEL)} | options
        with rasterio.open(
            path, "w", driver="GTiff", count=count, height=height, width=width, dtype=values.dtype, **options
        ) as file:
            file.write(values)

    return write


@pytest.fixture
def square() -> Callable[..., shapely.Polygon]:
    """Return a function that gives the outline of rows and columns of a scene."""

    def outline(row: int, col: int, height: int, width: int) -> shapely.Polygon:
        return shapely.box(
            LEFT + PIXEL * col, TOP - PIXEL * (row + height), LEFT + PIXEL * (col + width), TOP - PIXEL * row
        )

    return outline


@pytest.fixture
def write_labels() -> Callable[..., None]:
    """Return a function that writes (class, geometry) pairs as GeoPackage, field `kind`."""

    def write(path: Path, pairs: list[tuple[Any, Any]], crs: str | None = "EPSG:32633", to: str | None = None) -> None:
        frame = gpd.GeoDataFrame({"kind": [kind for kind, _ in pairs]}, geometry=[item for _, item in pairs], crs=crs)
        (frame.to_crs(to) if to else frame).to_file(path)

    return write


@pytest.fixture
def dataset() -> Callable[..., Dataset]:
    """Return a function that gives a dataset of one scene `s` in scene.tif with labels.gpkg."""

    def build(**changes: Any) -> Dataset:
        return Dataset.model_validate(
            {
                "task": "segmentation",
                "sources": [{"path": "x", "licence": "CC0"}],
                "scenes": {"s": {"bands": {"B1": "scene.tif"}}},
                "labels": {"path": "labels.gpkg", "field": "kind"},
                "classes": [
                    {"name": "Water", "colour": "#0000ff", "values": ["lake", "river"]},
                    {"name": "Forest", "colour": "#00ff00", "values": ["wood"]},
                ],
                "tiles": {"size": 16},
                "split": {"by": "block", "size": 16, "train": 0.6, "validation": 0.2, "test": 0.2},
            }
            | changes
        )

    return build


@pytest.fixture
def write_images() -> Callable[..., dict[str, NDArray[np.uint8]]]:
    """Return a function that writes random images into a folder per class, and returns them by path."""

    def write(root: Path, counts: Mapping[str, int], size: int = 8, suffix: str = "png") -> dict[str, Any]:
        rng = np.random.default_rng(0)
        images = {}
        for kind, count in counts.items():
            (root / kind).mkdir(parents=True)
            for number in range(count):
                image = rng.integers(0, 256, (size, size, 3), np.uint8)
                path = root / kind / f"{kind}_{number}.{suffix}"
                Image.fromarray(image).save(path)
                images[path.relative_to(root.parent).as_posix()] = image.transpose(2, 0, 1)
        return images

    return write
