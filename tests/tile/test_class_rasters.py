"""Labels as a raster of source classes: which values are allowed, and that nothing lies between them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affine import Affine
from rasterio.crs import CRS
from rasterio.warp import calculate_default_transform, reproject

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.raster import Grid
from landbalance.tile.blocks import Window
from landbalance.tile.labels import SceneLabels, require_labels, scene_labels

GRID = Grid(CRS.from_epsg(32633), Affine(10, 0, 500_000, 0, -10, 5_800_000), 40, 30)
WHOLE = Window(0, 0, GRID.height, GRID.width)
Read = Callable[..., SceneLabels]


def class_infos(*values: int | str) -> list[dict[str, Any]]:
    return [{"name": f"c{value}", "colour": f"#0000{k:02x}", "values": [value]} for k, value in enumerate(values)]


@pytest.fixture
def read(tmp_path: Path, dataset: Callable[..., Dataset]) -> Read:
    """Return a function that reads the class raster `classes.tif` of `tmp_path` on a scene."""

    def labels(*values: int | str, grid: Grid = GRID, file: str = "classes.tif", **settings: Any) -> SceneLabels:
        built = dataset(labels={"path": file, **settings}, classes=class_infos(*values))
        return scene_labels(built, tmp_path, "s", grid)

    return labels


def checkerboard(height: int = 30, width: int = 40) -> np.ndarray:
    rows, cols = np.mgrid[:height, :width]
    return np.where((rows + cols) % 2, 9, 5).astype(np.uint8)


def test_ids_become_indices(tmp_path: Path, write_scene: Callable[..., None], read: Read) -> None:
    """C07: ids 10, 20, …, 100; 0 is listed as no class, and the file's own nodata is none."""
    values = np.random.default_rng(0).choice([0, *range(10, 101, 10), 250], (30, 40)).astype(np.uint8)
    write_scene(tmp_path / "classes.tif", values, nodata=250)
    labels = read(*range(10, 101, 10), ignored=[0])
    expected = np.where(np.isin(values, (0, 250)), 255, values // 10 - 1)
    assert np.array_equal(labels.burn(WHOLE), expected)
    assert np.array_equal(labels.burn(Window(7, 9, 20, 31)), expected[7:27, 9:40])
    assert (labels.objects(Window(7, 9, 20, 31)) == -1).all()
    assert labels.found.counts == {str(value): int((values == value).sum()) for value in (0, *range(10, 101, 10))}


@pytest.mark.parametrize(("dtype", "wrong"), [("uint8", 97), ("int16", -3), ("float32", 2.5), ("uint16", 40_000)])
def test_a_value_in_no_class_stops(
    tmp_path: Path, write_scene: Callable[..., None], read: Read, dtype: str, wrong: float
) -> None:
    """C06: it names the file, the value, how often, and what is allowed."""
    values = np.ones((30, 40), dtype)
    values[3, 4:9] = 2
    values[20:22, 10:13] = wrong
    write_scene(tmp_path / "classes.tif", values)
    with pytest.raises(UserError) as error:
        read(1, 2, ignored=[7])
    for part in ("classes.tif", f"{wrong:g} (6)", "Allowed: 1, 2 (of the classes), 7 (labels.ignored)"):
        assert part in str(error.value)
    if wrong == int(wrong):
        labels = read(1, 2, ignored=[7, int(wrong)]).burn(WHOLE)
        assert np.array_equal(labels, np.where(values == 2, 1, np.where(values == 1, 0, 255)))


def test_a_value_beside_the_scene_does_not_matter(tmp_path: Path, write_scene: Callable[..., None], read: Read) -> None:
    values = np.full((60, 80), 77, np.uint8)
    values[:30, :40] = checkerboard()
    write_scene(tmp_path / "classes.tif", values)
    assert np.array_equal(read(5, 9).burn(WHOLE), checkerboard() // 9)


@pytest.mark.parametrize("size", [3.0, 7.0, 25.0])
def test_resampling_gives_the_classes_only(
    tmp_path: Path, write_scene: Callable[..., None], read: Read, size: float
) -> None:
    """C09: 5 and 9 on a finer or coarser grid stay 5 and 9; nothing averages to 7."""
    write_scene(tmp_path / "classes.tif", checkerboard())
    grid = Grid(GRID.crs, Affine(size, 0, 500_000, 0, -size, 5_800_000), int(400 / size), int(300 / size))
    labels = read(5, 9, grid=grid).burn(Window(0, 0, grid.height, grid.width))
    assert set(np.unique(labels)) == {0, 1}
    rows, cols = (np.mgrid[: grid.height, : grid.width] + 0.5) * size // 10
    assert np.array_equal(labels, checkerboard()[rows.astype(int), cols.astype(int)] // 9)


def test_another_crs_is_reprojected_by_nearest_neighbour(
    tmp_path: Path, write_scene: Callable[..., None], read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """C08, C09: what GDAL's own warper gives; the same file with a CRS from the configuration gives the same."""
    coarse = np.kron(checkerboard(6, 8), np.ones((5, 5), np.uint8))
    bounds = GRID.bounds
    transform, width, height = calculate_default_transform(GRID.crs, "EPSG:4326", 40, 30, *bounds)
    there, _ = reproject(
        coarse, np.zeros((height, width), np.uint8), src_crs=GRID.crs, src_transform=GRID.transform,
        dst_crs="EPSG:4326", dst_transform=transform, init_dest_nodata=True,
    )  # fmt: skip
    write_scene(tmp_path / "classes.tif", there, crs="EPSG:4326", transform=transform, nodata=0)
    write_scene(tmp_path / "bare.tif", there, crs=None, transform=transform, nodata=0)
    with caplog.at_level(logging.INFO):
        labels = read(5, 9).burn(WHOLE)
    assert "reprojected from EPSG:4326 to EPSG:32633" in caplog.text
    inner = (slice(1, -1), slice(1, -1))
    assert (labels[inner] == coarse[inner] // 9).mean() > 0.85
    assert (labels[2::5, 2::5] == coarse[2::5, 2::5] // 9).all()
    with pytest.raises(UserError, match=r"bare\.tif: has no CRS"):
        read(5, 9, file="bare.tif")
    assert np.array_equal(read(5, 9, file="bare.tif", crs="EPSG:4326").burn(WHOLE), labels)


def test_the_file_s_nodata_counts_unless_a_class_lists_it(
    tmp_path: Path, write_scene: Callable[..., None], read: Read
) -> None:
    write_scene(tmp_path / "classes.tif", checkerboard(), nodata=5)
    assert np.array_equal(read(9, 8).burn(WHOLE), np.where(checkerboard() == 9, 0, 255))
    assert np.array_equal(read(5, 9).burn(WHOLE), checkerboard() // 9)


def test_a_scene_may_have_its_own_raster_or_none(
    tmp_path: Path, write_scene: Callable[..., None], dataset: Callable[..., Dataset],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    write_scene(tmp_path / "scene.tif", np.ones((30, 40), np.uint8))
    write_scene(tmp_path / "own.tif", checkerboard())
    write_scene(tmp_path / "far.tif", checkerboard(), left=900_000.0)
    bands = {"B1": "scene.tif"}
    built = dataset(
        scenes={"one": {"bands": bands, "labels": "own.tif"}, "two": {"bands": bands, "labels": "far.tif"}},
        labels={"band": 1}, classes=class_infos(5, 9),
    )  # fmt: skip
    one, two = (scene_labels(built, tmp_path, scene, GRID) for scene in ("one", "two"))
    assert np.array_equal(one.burn(WHOLE), checkerboard() // 9)
    assert (two.burn(WHOLE) == 255).all()
    assert "two: no labels on this scene" in caplog.text
    require_labels("d", built, {"one": one.found, "two": two.found})
    with pytest.raises(UserError, match=r"far\.tif: the labels miss the scene two\. .* cover x 900000"):
        require_labels("d", built, {"two": two.found})


def test_what_is_wrong_with_a_class_raster_is_said(
    tmp_path: Path, write_scene: Callable[..., None], read: Read, dataset: Callable[..., Dataset]
) -> None:
    write_scene(tmp_path / "classes.tif", checkerboard())
    (tmp_path / "text.tif").write_text("no raster")
    with pytest.raises(UserError, match=r"gone\.tif: not found \(labels\.path\)"):
        read(5, 9, file="gone.tif")
    with pytest.raises(UserError, match=r"text\.tif: cannot be read"):
        read(5, 9, file="text.tif")
    with pytest.raises(UserError, match="has 1 bands, but labels asks for number 2"):
        read(5, 9, band=2)
    with pytest.raises(UserError, match="a raster holds numbers, but the class clake lists lake"):
        read(5, "lake")
    with pytest.raises(UserError, match="crs: found EPSG:1, which is no CRS"):
        write_scene(tmp_path / "bare.tif", checkerboard(), crs=None)
        read(5, 9, file="bare.tif", crs="EPSG:1")
    with pytest.raises(UserError, match=r"none of the values is in the classes. Found: 5 \(600\), 9 \(600\)"):
        built = dataset(classes=class_infos(1, 2))
        require_labels("d", built, {"s": read(1, 2, ignored=[5, 9]).found})
    with pytest.raises(ValueError, match="name the field that holds the source class"):
        dataset(labels={"path": "labels.gpkg"})
    with pytest.raises(ValueError, match="s have no labels of their own"):
        dataset(labels={"band": 1})
