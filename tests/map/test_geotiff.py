"""What a GIS finds in the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray

from landbalance.config import ClassInfo
from landbalance.errors import UserError
from landbalance.map.filtering import Codes
from landbalance.map.geotiff import Layer, Legend, code_layer, write_layers
from landbalance.raster import Grid


def ten_classes() -> Any:
    return [ClassInfo(name=f"class {code}", colour=f"#0a{code:02x}ff", values=[code * 10 + 10]) for code in range(10)]


def grid_of(codes: NDArray[np.uint8]) -> Any:
    crs = rasterio.crs.CRS.from_epsg(32633)
    return Grid(crs, rasterio.transform.from_origin(3e5, 5.9e6, 10, 10), codes.shape[1], codes.shape[0])


def layer_of(path: Path, nodata: int = 255) -> Any:
    return code_layer(path, lambda piece: piece.codes, Legend(ten_classes(), nodata))


def pieces_of(codes: NDArray[np.uint8]) -> Any:
    return [Codes(row, 0, codes[row : row + 100]) for row in range(0, len(codes), 100)]


def written(path: Path, codes: NDArray[np.uint8], nodata: int = 255, tags: Any = None) -> Any:
    return write_layers([layer_of(path, nodata)], pieces_of(codes), grid_of(codes), tags or {})


def test_overviews_hold_legal_codes_only(tmp_path: Path) -> None:  # C12
    codes = np.where(np.indices((1300, 1500)).sum(axis=0) % 2, 5, 9).astype(np.uint8)
    codes[:300, :700] = 255
    written(tmp_path / "map.tif", codes)
    with rasterio.open(tmp_path / "map.tif") as raster:
        levels = len(raster.overviews(1))
    assert levels >= 2
    for level in range(levels):
        with rasterio.open(tmp_path / "map.tif", overview_level=level) as overview:
            found = overview.read(1)
        assert set(np.unique(found)) <= {5, 9, 255}, level
        assert (found[0, 0], found[-1, -1] in (5, 9)) == (255, True)


def test_overview_shows_the_most_frequent_class(tmp_path: Path) -> None:
    codes = np.full((1024, 1024), 2, np.uint8)
    codes[::2, ::2] = 8
    written(tmp_path / "map.tif", codes)
    with rasterio.open(tmp_path / "map.tif", overview_level=0) as overview:
        assert (overview.read(1) == 2).all()


@pytest.mark.parametrize("nodata", [255, 10, 77])
def test_colours_names_and_nodata_read_back(tmp_path: Path, nodata: int) -> None:  # C11, C07
    written(tmp_path / "map.tif", np.zeros((20, 30), np.uint8), nodata)
    with rasterio.open(tmp_path / "map.tif") as raster:
        colours, names = raster.colormap(1), raster.tags(1)
        assert (raster.nodata, raster.dtypes, raster.count) == (nodata, ("uint8",), 1)
    for code, item in enumerate(ten_classes()):
        assert colours[code] == (0x0A, code, 0xFF, 255)
        assert names[f"CLASS_{code}"] == item.name
        assert names[f"VALUES_{code}"] == str(code * 10 + 10)
    assert colours[nodata][3] == 0


def test_is_a_cloud_optimised_geotiff(tmp_path: Path) -> None:
    written(tmp_path / "map.tif", np.zeros((1300, 700), np.uint8))
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert (raster.profile["compress"], raster.profile["tiled"]) == ("deflate", True)
    assert [path.name for path in tmp_path.iterdir()] == ["map.tif"]


def test_counts_and_tags(tmp_path: Path) -> None:
    codes = np.repeat([3, 255], [150, 50]).astype(np.uint8)[:, None].repeat(10, axis=1)
    counts = written(tmp_path / "map.tif", codes, tags={"TIFFTAG_COPYRIGHT": "© Jemand"})
    assert (counts[3], counts[255], counts.sum()) == (1500, 500, 2000)
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.tags()["TIFFTAG_COPYRIGHT"] == "© Jemand"


def test_same_map_same_bytes(tmp_path: Path) -> None:
    codes = np.random.default_rng(0).integers(0, 9, (700, 900), dtype=np.uint8)
    for name in ("a.tif", "b.tif"):
        written(tmp_path / name, codes)
    assert (tmp_path / "a.tif").read_bytes() == (tmp_path / "b.tif").read_bytes()


def test_failure_leaves_the_old_map_and_nothing_else(tmp_path: Path) -> Any:
    target = tmp_path / "map.tif"
    target.write_bytes(b"old")

    def broken() -> Any:
        yield Codes(0, 0, np.zeros((10, 10), np.uint8))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_layers([layer_of(target)], broken(), grid_of(np.zeros((20, 10))), {})
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_no_room_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = type("Usage", (), {"free": 100})
    monkeypatch.setattr("landbalance.map.geotiff.shutil.disk_usage", lambda _: free)
    with pytest.raises(UserError, match=r"map\.tif: needs .* MiB while it is written"):
        write_layers([layer_of(tmp_path / "map.tif")], iter(()), grid_of(np.zeros((20, 10))), {})


def test_disk_that_fills_up_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    codes = np.random.default_rng(0).integers(0, 9, (1000, 1000), dtype=np.uint8)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        with pytest.raises(UserError, match=r"map\.tif: cannot be written"):
            written(tmp_path / "map.tif", codes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert list(tmp_path.iterdir()) == []


def test_file_that_does_not_hold_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("landbalance.map.geotiff._code_counts", lambda _: np.zeros(256, np.int64))
    with pytest.raises(UserError, match="does not hold what was written"):
        written(tmp_path / "map.tif", np.zeros((20, 30), np.uint8))
    assert list(tmp_path.iterdir()) == []


def test_several_layers_of_the_same_pieces(tmp_path: Path) -> None:
    codes = (np.arange(600).reshape(20, 30) % 10).astype(np.uint8)
    shares = Layer(
        tmp_path / "shares.tif", lambda piece: np.stack([piece.codes, piece.codes + 1]), ["a", "b"], 255, scale=0.004
    )
    counts = write_layers([layer_of(tmp_path / "map.tif"), shares], pieces_of(codes), grid_of(codes), {"A": "b"})
    assert counts[:10].tolist() == [60] * 10
    with rasterio.open(tmp_path / "shares.tif") as raster:
        assert (raster.read() == np.stack([codes, codes + 1])).all()
        assert (raster.descriptions, raster.scales, raster.nodata) == (("a", "b"), (0.004, 0.004), 255)
        assert (raster.tags()["A"], raster.tags(ns="IMAGE_STRUCTURE")["LAYOUT"]) == ("b", "COG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.tif", "shares.tif"]


def test_a_map_above_four_gibibytes_is_a_big_tiff(tmp_path: Path) -> None:
    """GDAL decides by the size without compression; a sparse raster tells without the disk space."""
    from landbalance.map.geotiff import _RAW

    for side, magic in ((1_000, 42), (70_000, 43)):
        options = {**_RAW, "SPARSE_OK": True, "width": side, "height": side, "count": 1, "dtype": "uint8"}
        with rasterio.open(tmp_path / "raw.tif", "w", **options):
            pass
        assert int.from_bytes((tmp_path / "raw.tif").read_bytes()[2:4], "little") == magic
