"""Scenes of every source into one store: products of both baselines, clouds, other CRS, sizes and dates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
from affine import Affine
from rasterio.transform import from_origin
from rasterio.warp import transform_geom

import products
from landbalance.config import Dataset
from landbalance.tile.stage import run
from landbalance.tiles import open_tiles

BANDS = ["B02", "B8A"]
ALL_TRAIN = {"by": "block", "size": 8, "train": 1.0, "validation": 0.0, "test": 0.0}
Build = Callable[..., Any]


def tiles_of(tmp_path: Path, dataset: Dataset) -> tuple[np.ndarray, np.ndarray, gpd.GeoDataFrame]:
    """Return images and labels of all tiles, and the index."""
    run("d", dataset, tmp_path, tmp_path / "store")
    store = open_tiles(tmp_path / "store")
    images, labels = store.read(np.arange(store.info.tiles))
    return images, labels, gpd.read_parquet(tmp_path / "store" / "index.parquet")


def test_products_of_both_baselines_give_the_same_tiles_and_clouds_none(
    tmp_path: Path, dataset: Build, write_labels: Build
) -> None:
    """C04, C22."""
    rng = np.random.default_rng(0)
    numbers = {"B02": rng.integers(1, 3000, (24, 24), np.uint16), "B8A": rng.integers(1, 3000, (12, 12), np.uint16)}
    scl = np.full((12, 12), 4, np.uint8)
    scl[:4, :4], scl[9, 9] = 8, 3
    old = products.sentinel2(tmp_path, "L2A", "03.01", numbers)
    raised = {band: values + 1000 for band, values in numbers.items()}
    offsets = dict.fromkeys(BANDS, -1000)
    new = products.sentinel2(tmp_path, "L2A", "04.00", raised, offsets, scl, start="2018-07-01T10:20:21.024Z")
    left, top = products.LEFT, products.TOP
    halves = [shapely.box(left + x, top - 240, left + x + 120, top) for x in (0, 120)]
    write_labels(tmp_path / "labels.gpkg", list(zip(("lake", "wood"), halves, strict=True)))
    scenes = {
        "old": {"product": old.name, "bands": BANDS},
        "new": {"product": products.zipped(new).name, "bands": BANDS, "mask": {"band": "SCL"}},
    }
    images, labels, index = tiles_of(tmp_path, dataset(scenes=scenes, tiles={"size": 8}, split=ALL_TRAIN))
    clear = np.kron(~np.isin(scl, (3, 8)), np.ones((2, 2), bool))
    assert (index.scene == "old").sum() == 9
    assert (index.scene == "new").sum() == 8  # one tile is all cloud
    assert images.dtype == np.uint16
    for row in index.itertuples():
        part = (slice(row.row, row.row + 8), slice(row.col, row.col + 8))
        there = clear[part] if row.scene == "new" else np.ones((8, 8), bool)
        assert np.array_equal(images[row.tile][0], np.where(there, numbers["B02"][part], 0))
        assert np.array_equal(labels[row.tile] != 255, there)


@pytest.mark.parametrize("kind", ["polygons", "points", "raster"])
def test_scenes_of_other_crs_sizes_and_extents_make_one_store(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, kind: str
) -> None:
    rng = np.random.default_rng(1)
    west, east = rng.integers(1, 200, (40, 56)).astype(np.uint16), rng.integers(1, 200, (24, 16)).astype(np.uint16)
    write_scene(tmp_path / "west.tif", np.kron(west, np.ones((2, 2), np.uint16)))
    write_scene(
        tmp_path / "east.tif", east, crs="EPSG:32634", transform=from_origin(700_000, 5_700_000, 20, 20),
    )  # fmt: skip
    corners = {"west": (500_000, 5_800_000, "EPSG:32633"), "east": (700_000, 5_700_000, "EPSG:32634")}
    shapes = []
    for x, y, crs in corners.values():
        for name, row in (("lake", 3), ("wood", 9)):
            place = shapely.box(x + 60, y - 20 * (row + 4), x + 160, y - 20 * row)
            if kind == "points":
                place = shapely.Point(x + 110, y - 20 * (row + 2))
            shapes.append(
                (name, shapely.geometry.shape(transform_geom(crs, "EPSG:4326", shapely.geometry.mapping(place))))
            )
    write_labels(tmp_path / "labels.gpkg", shapes, crs="EPSG:4326")
    bands = {"west": {"B1": "west.tif"}, "east": {"B1": "east.tif"}}
    labels: dict[str, Any] = {"path": "labels.gpkg", "field": "kind"}
    changes: dict[str, Any] = {"scenes": {name: {"bands": item} for name, item in bands.items()}}
    if kind == "points":
        labels["radius"] = 45.0
    if kind == "raster":
        labels = {"ignored": [0]}
        for name, (x, y, crs) in corners.items():
            codes = np.zeros((24, 16), np.uint8)
            codes[3:7, 3:8], codes[9:13, 3:8] = 10, 20
            write_scene(tmp_path / f"{name}-classes.tif", codes, crs=crs, transform=from_origin(x, y, 20, 20))
            changes["scenes"][name]["labels"] = f"{name}-classes.tif"
        changes["classes"] = [
            {"name": "Water", "colour": "#0000ff", "values": [10]},
            {"name": "Forest", "colour": "#00ff00", "values": [20]},
        ]  # fmt: skip
    images, burnt, index = tiles_of(
        tmp_path,
        dataset(labels=labels, resolution=20, resampling="nearest", tiles={"size": 8}, split=ALL_TRAIN, **changes),
    )
    for name, values in (("west", west), ("east", east)):
        label = np.full(values.shape, 255, np.uint8)
        for row in index[index.scene == name].itertuples():
            part = (slice(row.row, row.row + 8), slice(row.col, row.col + 8))
            assert np.array_equal(images[row.tile][0], values[part])
            label[part] = burnt[row.tile]
        if kind == "points":
            assert label[5, 5] == 0
            assert label[11, 5] == 1
            assert [np.count_nonzero(label == number) for number in (0, 1)] == [16, 16]
        else:
            expected = np.full(values.shape, 255, np.uint8)
            expected[3:7, 3:8], expected[9:13, 3:8] = 0, 1
            assert np.array_equal(label, expected)


def test_sentinel_2_and_landsat_make_one_dataset(tmp_path: Path, dataset: Build, write_labels: Build) -> None:
    """The same reflectance is the same value, whichever satellite saw it; their pixels need not line up."""
    reflectance = 0.2345
    numbers = {
        "B02": np.full((24, 24), round(reflectance * 10_000) + 1000, np.uint16),
        "B8A": np.full((12, 12), 4000, np.uint16),
    }
    one = products.sentinel2(tmp_path, "L2A", "05.10", numbers, dict.fromkeys(BANDS, -1000))
    counts = {"SR_B2": round((reflectance + 0.2) / 2.75e-5), "SR_B5": round((0.3 + 0.2) / 2.75e-5)}
    given = {name: np.full((8, 8), count, np.uint16) for name, count in counts.items()}
    other = products.landsat(tmp_path, "L2SP", given)
    for path in other.glob("*.TIF"):
        with rasterio.open(path, "r+") as raster:
            raster.transform = raster.transform @ Affine.translation(0.5, 0.5)
    left, top = products.LEFT, products.TOP
    halves = [shapely.box(left + x, top - 240, left + x + 120, top) for x in (0, 120)]
    write_labels(tmp_path / "labels.gpkg", list(zip(("lake", "wood"), halves, strict=True)))
    scenes = {
        "sentinel": {"product": one.name, "bands": {"blue": "B02", "nir": "B8A"}},
        "landsat": {"product": other.name, "bands": {"blue": "SR_B2", "nir": "SR_B5"}},
    }
    split = {"by": "scene", "train": 1.0, "validation": 0.0, "test": 0.0}
    images, _, index = tiles_of(tmp_path, dataset(scenes=scenes, resolution=30, tiles={"size": 8}, split=split))
    assert set(index.scene) == set(scenes)
    for image in images:
        there = image.any(axis=0)
        assert np.abs(image[0][there].astype(int) - 2345).max() <= 1
        assert np.abs(image[1][there].astype(int) - 3000).max() <= 1
