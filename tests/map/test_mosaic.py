"""Several maps as one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from landbalance.errors import UserError
from landbalance.map import mosaic
from map.conftest import CLASSES


def write(path: Path, codes: Any, col: int, row: int, crs: str = "EPSG:32633") -> Path:
    transform = from_origin(300_000 + 10 * col, 5_900_000 - 10 * row, 10, 10)
    with rasterio.open(
        path, "w", driver="GTiff", width=codes.shape[1], height=codes.shape[0], count=1, dtype="uint8", nodata=255,
        crs=crs, transform=transform,
    ) as raster:  # fmt: skip
        raster.write(codes.astype(np.uint8), 1)
    return path


def test_first_map_is_on_top_and_nodata_lets_through(tmp_path: Path) -> None:
    first, second = np.zeros((40, 50)), np.full((40, 50), 2)
    first[:, 45:] = 255
    maps = [write(tmp_path / "a.tif", first, 0, 0), write(tmp_path / "b.tif", second, 30, -10)]
    mosaic(maps, CLASSES, 255, tmp_path / "mosaic.tif")
    with rasterio.open(tmp_path / "mosaic.tif") as raster:
        found, colours = raster.read(1), raster.colormap(1)
        assert raster.transform == from_origin(300_000, 5_900_100, 10, 10)
        assert raster.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert raster.tags()["LANDBALANCE_SCENES"] == "a, b"
    wanted = np.full((50, 80), 255)
    wanted[0:40, 30:80] = 2
    wanted[10:50, 0:45] = 0
    assert (found == wanted).all()
    assert colours[2] == (0xFE, 0xE0, 0x8B, 255)
    assert (tmp_path / "mosaic.qml").is_file()


def test_another_crs_brings_only_its_own_codes(tmp_path: Path) -> None:
    codes = np.where(np.indices((60, 60)).sum(axis=0) % 2, 0, 2)
    first = write(tmp_path / "a.tif", codes, 0, 0)
    with rasterio.open(first) as raster:
        _, _, right, top = rasterio.warp.transform_bounds(raster.crs, "EPSG:32632", *raster.bounds)
    other = tmp_path / "b.tif"
    with rasterio.open(
        other, "w", driver="GTiff", width=60, height=60, count=1, dtype="uint8", nodata=255, crs="EPSG:32632",
        transform=from_origin(right, top, 10, 10),
    ) as raster:  # fmt: skip
        raster.write(codes.astype(np.uint8), 1)
    mosaic([first, other], CLASSES, 255, tmp_path / "mosaic.tif")
    with rasterio.open(tmp_path / "mosaic.tif") as raster:
        found = raster.read(1)
        assert raster.crs == rasterio.crs.CRS.from_epsg(32633)
    assert set(np.unique(found)) == {0, 2, 255}
    assert (found != 255).sum() > 1.9 * 3600


def test_missing_map_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.tif: missing or no raster"):
        mosaic([tmp_path / "a.tif"], CLASSES, 255, tmp_path / "mosaic.tif")
