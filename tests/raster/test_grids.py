"""Grids of every kind: turned, upside down, of oblong pixels, in degrees; and stacks named by description."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS

from landbalance.config import Scene
from landbalance.errors import UserError
from landbalance.raster import open_scene

GRIDS = {
    "north up": Affine(10, 0, 500_000, 0, -10, 5_800_000),
    "south up": Affine(10, 0, 500_000, 0, 10, 5_800_000),
    "mirrored": Affine(-10, 0, 500_000, 0, -10, 5_800_000),
    "rotated": Affine.translation(500_000, 5_800_000) @ Affine.rotation(30) @ Affine.scale(10, -10),
    "sheared": Affine(10, 3, 500_000, 2, -10, 5_800_000),
    "oblong": Affine(10, 0, 500_000, 0, -25, 5_800_000),
    "degrees": Affine(0.0001, 0, 15, 0, -0.0001, 52),
}


def write(path: Path, values: NDArray[Any], transform: Affine, **options: Any) -> None:
    values = values if values.ndim == 3 else values[None]
    crs = "EPSG:4326" if abs(transform.a) < 1 else "EPSG:32633"
    options = {"driver": "GTiff", "crs": crs, "transform": transform, **options}
    count, height, width = values.shape
    with rasterio.open(path, "w", count=count, height=height, width=width, dtype=values.dtype, **options) as file:
        file.write(values)


def ramp(height: int, width: int) -> NDArray[np.uint16]:
    return (np.arange(height * width, dtype=np.uint16) + 1).reshape(height, width)


@pytest.mark.parametrize("kind", GRIDS)
def test_any_grid_is_read_as_it_is(tmp_path: Path, kind: str) -> None:
    transform = GRIDS[kind]
    write(tmp_path / "a.tif", ramp(40, 60), transform)
    with open_scene(Scene(bands={"B1": "a.tif"}), tmp_path, None, "bilinear") as reader:
        images, valid = reader.read(5, 7, 40, 50)
        grid = reader.grid
    assert grid.transform == transform
    assert np.array_equal(images[0][:35], ramp(40, 60)[5:, 7:57])
    assert valid[:35].all()
    assert not valid[35:].any()
    with rasterio.open(tmp_path / "a.tif") as file:
        corners = [file.transform @ corner for corner in ((0, 0), (60, 0), (0, 40), (60, 40))]
    x, y = zip(*corners, strict=True)
    assert grid.bounds == (min(x), min(y), max(x), max(y))
    assert grid.window_transform(5, 7) @ (0, 0) == pytest.approx(transform @ (7, 5))


@pytest.mark.parametrize("kind", GRIDS)
def test_a_coarse_band_of_any_grid_lies_where_it_lies(tmp_path: Path, kind: str) -> None:
    """Pixels of two sizes over the same ground: each fine pixel gets its coarse pixel's value."""
    transform = GRIDS[kind]
    write(tmp_path / "fine.tif", ramp(40, 60), transform)
    write(tmp_path / "coarse.tif", ramp(10, 15), transform @ Affine.scale(4, 4))
    with open_scene(Scene(bands={"F": "fine.tif", "C": "coarse.tif"}), tmp_path, None, "nearest") as reader:
        images, valid = reader.read(0, 0, 40, 60)
    assert valid.all()
    assert np.array_equal(images[0], ramp(40, 60))
    assert np.array_equal(images[1], np.kron(ramp(10, 15), np.ones((4, 4), np.uint16)))


@pytest.mark.parametrize("kind", GRIDS)
def test_a_resolution_makes_square_pixels_that_cover_the_scene(tmp_path: Path, kind: str) -> None:
    transform = GRIDS[kind]
    write(tmp_path / "a.tif", np.full((40, 60), 9, np.uint16), transform)
    size = 0.00025 if kind == "degrees" else 25.0
    with open_scene(Scene(bands={"B1": "a.tif"}), tmp_path, size, "nearest") as reader:
        grid = reader.grid
        _, valid = reader.read(0, 0, grid.height, grid.width)
    assert grid.resolution == pytest.approx(size)
    assert np.hypot(grid.transform.b, grid.transform.e) == pytest.approx(size)
    covered = abs(grid.transform.determinant) * grid.height * grid.width
    own = abs(transform.determinant) * 40 * 60
    assert own <= covered * (1 + 1e-9) < own * 1.2
    assert valid.mean() > 0.9


def test_scenes_that_lie_upside_down_overlap_what_they_overlap(tmp_path: Path) -> None:
    write(tmp_path / "south.tif", ramp(40, 60), GRIDS["south up"])
    write(tmp_path / "north.tif", ramp(40, 60), Affine(10, 0, 500_000, 0, -10, 5_800_400))
    write(tmp_path / "far.tif", ramp(40, 60), Affine(10, 0, 500_000, 0, -10, 5_799_000))
    with open_scene(Scene(bands={"S": "south.tif", "N": "north.tif"}), tmp_path, None, "nearest") as reader:
        images, _ = reader.read(0, 0, 40, 60)
    assert np.array_equal(images[1], ramp(40, 60)[::-1])
    with pytest.raises(UserError, match="do not overlap"):
        open_scene(Scene(bands={"S": "south.tif", "F": "far.tif"}), tmp_path, None, "nearest")


def test_bands_of_a_stack_by_description_and_by_number(tmp_path: Path) -> None:
    values = np.stack([ramp(5, 6), ramp(5, 6) + 100, ramp(5, 6) + 200])
    write(tmp_path / "stack.tif", values, GRIDS["north up"])
    with rasterio.open(tmp_path / "stack.tif", "r+") as file:
        file.descriptions = ("blue", None, "red")
    named = Scene(stack="stack.tif", bands=["red", "blue"])
    mixed = Scene(stack="stack.tif", bands={"B4": "red", "B3": "2"})
    for scene, names, expected in ((named, ("red", "blue"), [2, 0]), (mixed, ("B4", "B3"), [2, 1])):
        with open_scene(scene, tmp_path, None, "nearest") as reader:
            images, _ = reader.read(0, 0, 5, 6)
            assert reader.bands == names
        assert np.array_equal(images, values[expected])

    def message(**settings: Any) -> str:
        with pytest.raises(UserError) as error:
            open_scene(Scene(**settings), tmp_path, None, "nearest")
        return str(error.value)

    green = message(stack="stack.tif", bands=["green"])
    assert "none of its bands is described as green (band green); they are: blue, (no name), red" in green
    assert "has 3 bands, but B9 asks for number 9" in message(stack="stack.tif", bands={"B9": "9"})
    assert "gone.tif: not found (the scene's stack)" in message(stack="gone.tif", bands=["red"])
    with pytest.raises(ValueError, match="B2 stands there twice"):
        Scene(stack="stack.tif", bands=["B2", "B2"])


def test_the_internal_mask_of_a_stack_is_obeyed(tmp_path: Path) -> None:
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        write(tmp_path / "stack.tif", np.stack([ramp(6, 6), ramp(6, 6)]), GRIDS["north up"])
        with rasterio.open(tmp_path / "stack.tif", "r+") as file:
            file.write_mask(np.repeat([0, 255], 18).astype("uint8").reshape(6, 6))
    with open_scene(Scene(bands={"B2": "stack.tif:2"}), tmp_path, None, "nearest") as reader:
        _, valid = reader.read(0, 0, 6, 6)
    assert np.array_equal(valid, np.repeat([False, True], 18).reshape(6, 6))


def test_the_configuration_gives_a_missing_crs(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", ramp(5, 6), GRIDS["north up"], crs=None)
    with pytest.raises(UserError, match=r"a\.tif: has no CRS \(band B1\).*crs: EPSG:32633"):
        open_scene(Scene(bands={"B1": "a.tif"}), tmp_path, None, "nearest")
    with open_scene(Scene(bands={"B1": "a.tif"}, crs="EPSG:32634"), tmp_path, None, "nearest") as reader:
        assert reader.grid.crs == CRS.from_epsg(32634)
        images, _ = reader.read(0, 0, 5, 6)
    assert np.array_equal(images[0], ramp(5, 6))
    write(tmp_path / "b.tif", ramp(5, 6), GRIDS["north up"])
    with open_scene(Scene(bands={"B1": "b.tif"}, crs="EPSG:32634"), tmp_path, None, "nearest") as reader:
        assert reader.grid.crs == CRS.from_epsg(32633)  # the file's own word counts


def test_a_mask_makes_pixels_missing(tmp_path: Path) -> None:
    """C04: by values or bits, also of a coarser raster; what the mask does not cover stays."""
    transform = GRIDS["north up"]
    write(tmp_path / "a.tif", ramp(12, 16), transform)
    codes = np.zeros((3, 3), np.uint8)
    codes[0, 0], codes[1, 2], codes[2, 1] = 4, 8, 12
    write(tmp_path / "mask.tif", np.stack([codes + 1, codes]), transform @ Affine.scale(4, 4), nodata=4)
    bands = {"B1": "a.tif"}
    for settings, gone in (({"values": [4, 8]}, (4, 8)), ({"bits": [3]}, (8, 12)), ({"bits": [2, 3]}, (4, 8, 12))):
        scene = Scene(bands=bands, mask={"band": "mask.tif:2", **settings})
        with open_scene(scene, tmp_path, None, "nearest") as reader:
            images, valid = reader.read(0, 0, 12, 16)
            part, _ = reader.read(3, 5, 7, 9)
            key, codes_of = next(iter(settings.items()))
            assert f"missing by mask.tif:2, {key} {', '.join(map(str, codes_of))}" in reader.description
        expected = np.ones((12, 16), bool)
        expected[:, :12] = np.kron(~np.isin(codes, gone), np.ones((4, 4), bool))
        assert np.array_equal(valid, expected)
        assert np.array_equal(images[0], np.where(expected, ramp(12, 16), 0))
        assert np.array_equal(part, images[:, 3:10, 5:14])


def test_what_is_wrong_with_a_mask_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", ramp(12, 16), GRIDS["north up"])
    write(tmp_path / "float.tif", ramp(12, 16).astype("float32"), GRIDS["north up"])
    write(tmp_path / "far.tif", ramp(12, 16), Affine(10, 0, 700_000, 0, -10, 5_800_000))

    def message(band: str) -> str:
        with pytest.raises(UserError) as error:
            open_scene(Scene(bands={"B1": "a.tif"}, mask={"band": band, "values": [1]}), tmp_path, None, "nearest")
        return str(error.value)

    assert "gone.tif: not found (mask.band of the scene)" in message("gone.tif")
    assert "holds float32 values, but the codes of a mask are whole numbers" in message("float.tif")
    assert "do not overlap" in message("far.tif")
    with pytest.raises(ValueError, match="say which values or bits of mask"):
        Scene(bands={"B1": "a.tif"}, mask={"band": "mask.tif"})
