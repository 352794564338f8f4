"""Class maps whose right answer is known."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from numpy.typing import NDArray

NAMES = {0: "Forest", 1: "Water", 2: "Farmland"}


@pytest.fixture
def write_map(tmp_path: Path) -> Callable[..., Path]:
    def write(
        codes: NDArray[np.integer],
        name: str = "map.tif",
        left: float = 400_000,
        crs: str | None = "EPSG:32633",
        names: Mapping[int, str] = NAMES,
        size: float = 10,
    ) -> Path:
        path = tmp_path / name
        transform = Affine(size, 0, left, 0, -size, 5_800_000)
        height, width = codes.shape
        with rasterio.open(
            path, "w", driver="GTiff", width=width, height=height, count=1, dtype=codes.dtype, crs=crs,
            transform=transform, nodata=255,
        ) as raster:  # fmt: skip
            raster.write(codes, 1)
            raster.update_tags(1, **{f"CLASS_{code}": name for code, name in names.items()})
        return path

    return write
