"""Scenes as one grid: exact copies, resampling, nodata, and what is said about bad files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.transform import from_origin

from landbalance.config import Scene
from landbalance.errors import UserError
from landbalance.raster import open_scene

LEFT, TOP = 500_000.0, 5_800_000.0


def write(path: Path, values: NDArray[Any], size: float = 10, left: float = LEFT, **options: Any) -> None:
    values = values if values.ndim == 3 else values[None]
    options = {"crs": "EPSG:32633", "transform": from_origin(left, TOP, size, size), "driver": "GTiff", **options}
    count, height, width = values.shape
    with rasterio.open(path, "w", count=count, height=height, width=width, dtype=values.dtype, **options) as file:
        file.write(values)


def scene(*files: str, **settings: Any) -> Scene:
    return Scene(bands={f"B{number}": file for number, file in enumerate(files, 1)}, **settings)


def ramp(height: int, width: int, dtype: str = "uint16", start: int = 1) -> NDArray[Any]:
    return (np.arange(height * width) % 60_000 + start).astype(dtype).reshape(height, width)


def test_bands_on_the_grid_are_copied_exactly(tmp_path: Path) -> None:
    values = ramp(67, 56)
    write(tmp_path / "a.tif", values)
    with open_scene(scene("a.tif"), tmp_path, None, "cubic") as reader:
        images, valid = reader.read(0, 0, 67, 56)
        assert (reader.grid.width, reader.grid.height, reader.dtype) == (56, 67, np.uint16)
        assert reader.grid.transform == from_origin(LEFT, TOP, 10, 10)
    assert np.array_equal(images[0], values)
    assert valid.all()


def test_windows_reach_beyond_the_raster_on_all_sides(tmp_path: Path) -> None:
    values = ramp(20, 30)
    write(tmp_path / "a.tif", values)
    with open_scene(scene("a.tif"), tmp_path, None, "nearest") as reader:
        images, valid = reader.read(-3, -4, 40, 50)
        nothing, none = reader.read(100, 0, 5, 5)
    expected = np.zeros((40, 50), np.uint16)
    expected[3:23, 4:34] = values
    assert np.array_equal(images[0], expected)
    assert np.array_equal(valid, expected > 0)
    assert not nothing.any()
    assert not none.any()


def test_coarse_bands_are_brought_to_the_finest_grid(tmp_path: Path) -> None:
    """A plane keeps its values under bilinear interpolation, away from the border."""
    rows, cols = np.mgrid[:10, :20]
    write(tmp_path / "coarse.tif", (100 + 60.0 * cols + 30.0 * rows).astype("float32"), size=60)
    write(tmp_path / "fine.tif", ramp(60, 120, "uint16"), size=10)
    with open_scene(scene("coarse.tif", "fine.tif"), tmp_path, None, "bilinear") as reader:
        images, valid = reader.read(0, 0, 60, 120)
        assert (reader.grid.width, reader.grid.height) == (120, 60)
        assert reader.dtype == np.result_type("float32", "uint16")
    rows, cols = (np.mgrid[:60, :120] + 0.5) / 6 - 0.5
    inner = (slice(3, -3), slice(3, -3))
    np.testing.assert_allclose(images[0][inner], (100 + 60 * cols + 30 * rows)[inner], rtol=1e-5)
    assert valid.all()


def test_averaging_to_a_coarser_resolution(tmp_path: Path) -> None:
    values = ramp(8, 12, "float64")
    write(tmp_path / "a.tif", values)
    with open_scene(scene("a.tif"), tmp_path, 20, "average") as reader:
        images, _ = reader.read(0, 0, 4, 6)
    np.testing.assert_allclose(images[0], values.reshape(4, 2, 6, 2).mean(axis=(1, 3)))


def test_a_resolution_that_does_not_divide_the_scene_covers_every_pixel(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", ramp(10, 10))
    with open_scene(scene("a.tif"), tmp_path, 30, "nearest") as reader:
        assert (reader.grid.width, reader.grid.height) == (4, 4)


def test_bounds_that_are_multiples_of_the_pixel_give_whole_sizes(tmp_path: Path) -> None:
    """C29: 3022 pixels of 0.1 are 3022, not 3022.0000000000005."""
    write(tmp_path / "a.tif", ramp(4, 3022), size=0.1)
    with open_scene(scene("a.tif"), tmp_path, 0.1, "bilinear") as reader:
        assert (reader.grid.width, reader.grid.height) == (3022, 4)
        images, valid = reader.read(0, 3000, 4, 22)
    assert np.array_equal(images[0], ramp(4, 3022)[:, 3000:])
    assert valid.all()


def test_windows_give_what_the_whole_gives(tmp_path: Path) -> None:
    write(tmp_path / "fine.tif", ramp(50, 70), size=10)
    write(tmp_path / "coarse.tif", ramp(9, 12, start=7), size=60)
    with open_scene(scene("fine.tif", "coarse.tif"), tmp_path, 15, "cubic") as reader:
        height, width = reader.grid.height, reader.grid.width
        whole, _ = reader.read(0, 0, height, width)
        for row in range(0, height, 13):
            for col in range(0, width, 17):
                part, _ = reader.read(row, col, 13, 17)
                expected = whole[:, row : row + 13, col : col + 17]
                assert np.array_equal(part[:, : expected.shape[1], : expected.shape[2]], expected)


@pytest.mark.parametrize(("dtype", "own", "configured"), [
    ("uint16", 0, None), ("uint16", None, 0), ("int16", -9999, None), ("int16", -9999, 5), ("float32", np.nan, None),
    ("float32", None, None), ("float64", -1e30, None),
])  # fmt: skip
def test_nodata_of_one_band_empties_all(
    tmp_path: Path, dtype: str, own: float | None, configured: float | None
) -> None:
    """C04, C10: from the file, else from the configuration; NaN is missing even when nobody says so."""
    missing = own if own is not None else configured if configured is not None else np.nan
    values = ramp(6, 7, dtype, start=1)
    holed = values.copy()
    holed[2:4, 3] = missing
    write(tmp_path / "a.tif", holed, nodata=own)
    write(tmp_path / "b.tif", values)
    with open_scene(scene("a.tif", "b.tif", nodata=configured), tmp_path, None, "bilinear") as reader:
        images, valid = reader.read(0, 0, 6, 7)
    expected = np.ones((6, 7), bool)
    expected[2:4, 3] = False
    if configured == 5:
        expected[values == 5] = False  # band b has no word of its own
    assert np.array_equal(valid, expected)
    assert np.array_equal(images[0], np.where(expected, values, 0))
    assert np.array_equal(images[1], np.where(expected, values, 0))


def test_a_pixel_that_is_0_in_all_bands_is_missing(tmp_path: Path) -> None:
    values = ramp(2, 2)
    values[:, 0] = 0
    other = ramp(2, 2)
    other[0] = 0
    write(tmp_path / "a.tif", values)
    write(tmp_path / "b.tif", other)
    with open_scene(scene("a.tif", "b.tif"), tmp_path, None, "nearest") as reader:
        _, valid = reader.read(0, 0, 2, 2)
    assert valid.tolist() == [[False, True], [True, True]]


def test_fill_stays_missing_where_numbers_are_converted(tmp_path: Path) -> None:
    """Bands taken out of a Sentinel-2 product: 0 is fill and no file says so; an offset would make it a value."""
    for name, values in (("a", [[0, 0, 3000, 1000]]), ("b", [[0, 500, 3000, 1000]])):
        write(tmp_path / f"{name}.tif", np.array(values, np.uint16))
    with open_scene(scene("a.tif", "b.tif", offset=-1000.0), tmp_path, None, "nearest") as reader:
        images, valid = reader.read(0, 0, 1, 4)
    assert valid.tolist() == [[False, True, True, True]]
    assert images[:, 0].tolist() == [[0, 1, 2000, 1], [0, 1, 2000, 1]]


def test_zeros_are_values_where_missing_pixels_have_another_one(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", np.array([[0, -9999, 0.25]], np.float32), nodata=-9999)
    with open_scene(scene("a.tif", scale=10_000.0), tmp_path, None, "nearest") as reader:
        images, valid = reader.read(0, 0, 1, 3)
    assert valid.tolist() == [[True, False, True]]
    assert images[0].tolist() == [[1, 0, 2500]]


def test_interpolation_keeps_nodata_out(tmp_path: Path) -> None:
    values = np.full((6, 6), 1000, np.uint16)
    values[:, :2] = 0
    write(tmp_path / "coarse.tif", values, size=20, nodata=0)
    write(tmp_path / "fine.tif", np.full((12, 12), 3, np.uint16))
    with open_scene(scene("coarse.tif", "fine.tif"), tmp_path, None, "bilinear") as reader:
        images, valid = reader.read(0, 0, 12, 12)
    assert not valid[:, :4].any()
    assert valid[:, 4:].all()
    assert (images[0][:, 4:] == 1000).all()


def test_masks_and_alpha_bands_are_obeyed(tmp_path: Path) -> None:
    values = ramp(6, 6)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        write(tmp_path / "mask.tif", values)
        with rasterio.open(tmp_path / "mask.tif", "r+") as file:
            file.write_mask(np.repeat([0, 255], 18).astype("uint8").reshape(6, 6))
    alpha = np.repeat([255, 0], 18).reshape(6, 6).astype("uint16") * 257
    write(tmp_path / "alpha.tif", np.stack([values, values, values, alpha]), photometric="RGB", alpha="yes")
    for files, expected in ((["mask.tif"], slice(3, None)), (["alpha.tif:2"], slice(None, 3))):
        with open_scene(scene(*files), tmp_path, None, "nearest") as reader:
            _, valid = reader.read(0, 0, 6, 6)
        rows = np.zeros((6, 6), bool)
        rows[expected] = True
        assert np.array_equal(valid, rows), files


def test_bands_of_a_stack_have_their_own_nodata(tmp_path: Path) -> None:
    stack = np.stack([ramp(5, 5), ramp(5, 5, start=100), ramp(5, 5, start=200)])
    stack[0, 0] = 0
    stack[2, :, 1] = 0
    write(tmp_path / "my stack.tif", stack, nodata=0)
    with open_scene(scene("my stack.tif:3", "my stack.tif:2"), tmp_path, None, "nearest") as reader:
        images, valid = reader.read(0, 0, 5, 5)
    expected = np.ones((5, 5), bool)
    expected[:, 1] = False
    assert np.array_equal(valid, expected)
    assert np.array_equal(images, np.where(expected, stack[[2, 1]], 0))


def test_a_band_in_another_crs_is_reprojected(tmp_path: Path) -> None:
    from rasterio.warp import transform_bounds

    write(tmp_path / "utm.tif", np.full((100, 100), 5, np.uint16))
    left, bottom, right, top = transform_bounds("EPSG:32633", "EPSG:4326", LEFT, TOP - 1000, LEFT + 1000, TOP)
    width, height = (right - left) / 50, (top - bottom) / 50
    values = np.repeat([7, 9], 25).astype("uint16")[:, None].repeat(50, axis=1)
    write(tmp_path / "degrees.tif", values, crs="EPSG:4326", transform=Affine(width, 0, left, 0, -height, top))
    with open_scene(scene("degrees.tif", "utm.tif"), tmp_path, None, "nearest") as reader:
        assert reader.grid.crs.to_epsg() == 32633
        images, _ = reader.read(0, 0, 100, 100)
    assert (images[0][5:45, 5:95] == 7).all()
    assert (images[0][55:95, 5:95] == 9).all()


def says(error: pytest.ExceptionInfo[UserError], *parts: str) -> None:
    for part in parts:
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("keep", [0.01, 0.5, 0.9999])
def test_a_truncated_jp2_is_named(tmp_path: Path, keep: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(1, 4000, (1, 256, 256), np.uint16)
    path = tmp_path / "B02.jp2"
    write(path, values, driver="JP2OpenJPEG", QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(UserError) as error, open_scene(scene("B02.jp2"), tmp_path, 10, "bilinear") as reader:
        for row in range(0, 256, 64):
            reader.read(row, 0, 64, 256)
    says(error, str(path), "B1", "download")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [{}, {"compress": "deflate"}, {"tiled": True, "blockxsize": 64, "blockysize": 64}])
@pytest.mark.parametrize("keep", [0.4, 0.99])
def test_a_truncated_geotiff_is_named(tmp_path: Path, options: dict[str, Any], keep: float) -> None:
    values = np.random.default_rng(0).integers(1, 4000, (3, 256, 256), np.uint16)
    write(tmp_path / "a.tif", values, nodata=0, **options)
    data = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(data[: int(len(data) * keep)])
    with (
        pytest.raises(UserError) as error,
        open_scene(scene("a.tif:3", "a.tif:1"), tmp_path, None, "nearest") as reader,
    ):
        for row in range(0, 256, 64):
            reader.read(row, 0, 64, 256)
    says(error, "a.tif: cannot be read", "B1")


def test_bands_of_one_file_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interleaved bands, each with the same window: one call, whatever their order; a coarser band is apart."""
    from landbalance.raster.parts import Straight

    stack = np.stack([ramp(20, 30), ramp(20, 30, start=7), ramp(20, 30, start=70)])
    stack[0, 3] = stack[2, :, 4] = 0
    write(tmp_path / "stack.tif", stack, nodata=0)
    write(tmp_path / "coarse.tif", ramp(10, 15), size=20)
    asked: list[int] = []
    read = Straight.read
    monkeypatch.setattr(Straight, "read", lambda self, *args: asked.append(len(self.bands)) or read(self, *args))
    files = ["stack.tif:3", "coarse.tif", "stack.tif:1"]
    with open_scene(scene(*files), tmp_path, None, "nearest") as reader:
        images, valid = reader.read(0, 0, 20, 30)
        part, _ = reader.read(2, 1, 9, 12)
    assert asked == [2, 2]
    expected = (stack[2] > 0) & (stack[0] > 0)
    assert np.array_equal(valid, expected)
    assert np.array_equal(images[0], np.where(expected, stack[2], 0))
    assert np.array_equal(images[1], np.where(expected, np.kron(ramp(10, 15), np.ones((2, 2), np.uint16)), 0))
    assert np.array_equal(part, images[:, 2:11, 1:13])


def test_a_file_is_opened_once_however_many_bands_it_has(tmp_path: Path) -> None:
    """Several threads open a hyperspectral scene: a file for each band would be more than a process may have."""
    write(tmp_path / "stack.tif", np.stack([ramp(4, 5, start=number) for number in range(1, 201)]))
    before = len(list(Path("/proc/self/fd").iterdir()))
    files = [f"stack.tif:{number}" for number in range(1, 201)]
    with open_scene(scene(*files), tmp_path, None, "nearest") as reader:
        assert len(list(Path("/proc/self/fd").iterdir())) - before < 5
        assert reader.read(0, 0, 4, 5)[0][:, 0, 0].tolist() == list(range(1, 201))


def refused(tmp_path: Path, files: Sequence[str], resolution: float | None = None, **settings: Any) -> str:
    with pytest.raises(UserError) as error:
        open_scene(scene(*files, **settings), tmp_path, resolution, "bilinear")
    return str(error.value)


def test_what_is_wrong_with_a_scene_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", ramp(10, 10))
    write(tmp_path / "far.tif", ramp(10, 10), left=LEFT + 1e5)
    write(tmp_path / "nowhere.tif", ramp(10, 10), crs=None)
    write(tmp_path / "complex.tif", ramp(10, 10).astype("complex64"))
    (tmp_path / "text.tif").write_text("not a raster")
    assert "not found (band B1)" in refused(tmp_path, ["gone.tif"])
    assert "has 1 bands, but B1 asks for number 4" in refused(tmp_path, ["a.tif:4"])
    assert "no CRS (band B2)" in refused(tmp_path, ["a.tif", "nowhere.tif"])
    assert "complex64" in refused(tmp_path, ["complex.tif"])
    assert "text.tif: cannot be read (band B1)" in refused(tmp_path, ["text.tif"])
    message = refused(tmp_path, ["a.tif", "far.tif"])
    assert "far.tif" in message
    assert "x 600000 to 600100" in message
    assert "x 500000 to 500100" in message
    assert "100 × 100 metre" in refused(tmp_path, ["a.tif"], resolution=1000)
    assert "nodata -1 is no value of uint16" in refused(tmp_path, ["a.tif"], nodata=-1.0)


def test_a_stretch_makes_bytes_and_leaves_missing_pixels_missing(tmp_path: Path) -> None:
    """As `gdal_translate -ot Byte -scale 0 2750 1 255`, which made EuroSAT's pictures."""
    values = np.array([[0, 1, 5, 6, 1375], [2745, 2750, 9000, 65535, 0]], np.uint16)
    write(tmp_path / "a.tif", values)
    write(tmp_path / "b.tif", np.where(values == 65535, 0, values))
    with open_scene(scene("a.tif", "b.tif"), tmp_path, None, "nearest", [0, 2750, 1, 255]) as reader:
        images, valid = reader.read(0, -1, 2, 7)
        nothing, _ = reader.read(100, 0, 5, 5)
        assert reader.dtype == images.dtype == nothing.dtype == np.uint8
    assert images[0].tolist() == [[0, 0, 1, 1, 2, 128, 0], [0, 255, 255, 255, 255, 0, 0]]
    assert images[1, 1, 4] == 1
    assert np.array_equal(valid, images[0] > 0)


def test_a_stretch_leaves_0_to_missing_pixels_and_comes_after_a_scale(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", np.array([[1000, 1001, 3550]], np.uint16))
    with open_scene(scene("a.tif", offset=-1000.0), tmp_path, None, "nearest", [0, 2550, 0, 255]) as reader:
        images, valid = reader.read(0, 0, 1, 3)
    assert images[0].tolist() == [[1, 1, 255]]
    assert valid.all()
