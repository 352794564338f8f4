"""Polygons: which pixels they get, which are left out, and what is said about files that do not fit."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pytest
import shapely
from affine import Affine
from rasterio.crs import CRS

from landbalance.config import ClassInfo, PolygonLabels
from landbalance.errors import UserError
from landbalance.raster import Grid
from landbalance.tile.blocks import Window
from landbalance.tile.labels import burn, polygons_of, read_labels, source_value

GRID = Grid(CRS.from_epsg(32633), Affine(10, 0, 500_000, 0, -10, 5_800_000), 40, 30)
FIELD = PolygonLabels(path="labels.gpkg", field="kind")
CLASSES = [
    ClassInfo(name="Water", colour="#0000ff", values=["lake", "river"]),
    ClassInfo(name="Forest", colour="#00ff00", values=["wood"]),
]
Square = Callable[..., shapely.Polygon]
WriteLabels = Callable[..., None]


def burnt(path: Path, grid: Grid = GRID, window: Window | None = None) -> np.ndarray:
    frame = read_labels(path, FIELD, CLASSES, {"s": grid})
    return burn(polygons_of("s", frame, grid), grid, window or Window(0, 0, grid.height, grid.width))


def test_pixels_get_the_class_of_the_polygon_that_holds_their_centre(
    tmp_path: Path, square: Square, write_labels: WriteLabels
) -> None:
    write_labels(tmp_path / "l.gpkg", [("river", square(2, 3, 5, 6)), ("wood", square(10, 10, 4.4, 4.6))])
    expected = np.full((30, 40), 255, np.uint8)
    expected[2:7, 3:9] = 0
    expected[10:14, 10:15] = 1
    assert np.array_equal(burnt(tmp_path / "l.gpkg"), expected)
    assert np.array_equal(burnt(tmp_path / "l.gpkg", window=Window(5, 7, 9, 30)), expected[5:14, 7:37])


@pytest.mark.parametrize("small_first", [True, False])
def test_small_polygons_lie_over_large_ones(
    tmp_path: Path, square: Square, write_labels: WriteLabels, small_first: bool
) -> None:
    pairs = [("wood", square(5, 5, 4, 4)), ("lake", square(0, 0, 20, 20))]
    write_labels(tmp_path / "l.gpkg", pairs if small_first else pairs[::-1])
    labels = burnt(tmp_path / "l.gpkg")
    assert (labels[5:9, 5:9] == 1).all()
    assert np.count_nonzero(labels == 0) == 400 - 16


def test_labels_in_degrees_are_reprojected(tmp_path: Path, square: Square, write_labels: WriteLabels) -> None:
    """C08: the same polygons in EPSG:4326 give the same pixels (edges are kept off pixel centres)."""
    write_labels(tmp_path / "m.gpkg", [("lake", square(2, 3, 9, 12)), ("wood", square(20, 0, 10, 40))])
    write_labels(tmp_path / "d.gpkg", [("lake", square(2, 3, 9, 12)), ("wood", square(20, 0, 10, 40))], to="EPSG:4326")
    assert gpd.read_file(tmp_path / "d.gpkg").crs.to_epsg() == 4326
    labels = burnt(tmp_path / "d.gpkg")
    assert np.array_equal(labels, burnt(tmp_path / "m.gpkg"))
    assert np.count_nonzero(labels == 1) == 400


def test_class_ids_become_indices(tmp_path: Path, square: Square, write_labels: WriteLabels) -> None:
    """C07: ids 10, 20, …, 100, also where the field has holes and so is read as float."""
    classes = [ClassInfo(name=f"c{k}", colour=f"#0000{k:02x}", values=[10 * k]) for k in range(1, 11)]
    pairs: list[Any] = [(10.0 * k, square(0, 2 * k, 1, 1)) for k in range(1, 11)]
    write_labels(tmp_path / "l.gpkg", [*pairs, (None, square(5, 0, 1, 1))])
    frame = read_labels(tmp_path / "l.gpkg", FIELD, classes, {"s": GRID})
    labels = burn(polygons_of("s", frame, GRID), GRID, Window(0, 0, 30, 40))
    assert labels[0, 2:22:2].tolist() == list(range(10))
    assert labels[5, 0] == 255


def test_source_values_compare_as_text() -> None:
    assert [source_value(value) for value in (10, 10.0, np.float64(10), "10", 1.5, None, float("nan"), "a b")] == [
        "10", "10", "10", "10", "1.5", None, None, "a b",
    ]  # fmt: skip


def test_values_in_no_class_and_classes_without_values_are_reported(
    tmp_path: Path, square: Square, write_labels: WriteLabels, caplog: pytest.LogCaptureFixture
) -> None:
    moor = [("moor", square(row, 20, 1, 1)) for row in range(3)]
    write_labels(tmp_path / "l.gpkg", [("lake", square(0, 0, 4, 4)), ("wood", square(9, 0, 4, 4)), *moor])
    with caplog.at_level(logging.INFO):
        labels = burnt(tmp_path / "l.gpkg")
    assert (labels[:, 20:] == 255).all()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("in no class" in text and "moor (3)" in text for text in warnings), warnings
    assert any("no polygons for river, which class Water lists" in text for text in warnings), warnings
    assert "class Water: polygons from lake (1), river (0)" in caplog.text


def test_no_value_in_any_class_is_an_error(tmp_path: Path, square: Square, write_labels: WriteLabels) -> None:
    write_labels(tmp_path / "l.gpkg", [("moor", square(0, 0, 4, 4)), ("bog", square(9, 0, 4, 4))])
    with pytest.raises(UserError, match=r"Found: bog \(1\), moor \(1\); the classes list: lake, river, wood"):
        burnt(tmp_path / "l.gpkg")


def test_invalid_polygons_are_repaired_and_empty_ones_left_out(
    tmp_path: Path, square: Square, write_labels: WriteLabels, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = 500_000, 5_800_000
    bow = shapely.Polygon([(x, y), (x + 100, y - 100), (x + 100, y), (x, y - 100)])
    line = shapely.LineString([(x, y), (x + 100, y - 50)])
    write_labels(
        tmp_path / "l.geojson",
        [("lake", bow), ("wood", line), ("wood", shapely.Point(x + 5, y - 5)), ("wood", square(20, 20, 5, 5))],
    )
    labels = burnt(tmp_path / "l.geojson")
    assert np.count_nonzero(labels == 0) > 30
    assert np.count_nonzero(labels == 1) == 25
    assert "1 invalid polygons repaired" in caplog.text
    assert "2 geometries left out" in caplog.text


def test_labels_that_miss_the_scene_show_both_bounds(tmp_path: Path, square: Square, write_labels: WriteLabels) -> None:
    """C08."""
    write_labels(tmp_path / "l.gpkg", [("lake", square(0, 1000, 4, 4))])
    with pytest.raises(UserError) as error:
        burnt(tmp_path / "l.gpkg")
    for part in ("l.gpkg", "x 510000 to 510040", "x 500000 to 500400", "EPSG:32633"):
        assert part in str(error.value)
    write_labels(tmp_path / "d.gpkg", [("lake", square(0, 1000, 4, 4))], to="EPSG:4326")
    with pytest.raises(UserError, match="both in EPSG:32633"):
        burnt(tmp_path / "d.gpkg")


def test_labels_without_crs_stop(tmp_path: Path, square: Square, write_labels: WriteLabels) -> None:
    """C08."""
    write_labels(tmp_path / "l.gpkg", [("lake", square(0, 0, 4, 4))], crs=None)
    with pytest.raises(UserError, match=r"l\.gpkg: has no CRS"):
        burnt(tmp_path / "l.gpkg")


def test_what_is_wrong_with_a_label_file_is_said(tmp_path: Path, square: Square, write_labels: WriteLabels) -> None:
    path = tmp_path / "l.gpkg"
    write_labels(path, [("lake", square(0, 0, 4, 4))])

    def message(path: Path, **changes: Any) -> str:
        with pytest.raises(UserError) as error:
            read_labels(path, FIELD.model_copy(update=changes), CLASSES, {"s": GRID})
        return str(error.value)

    assert "has no field sort (labels.field); there are: kind" in message(path, field="sort")
    assert "has no layer x; name one as labels.layer: l." in message(path, layer="x")
    assert "not found (labels.path)" in message(tmp_path / "gone.gpkg")
    (tmp_path / "t.gpkg").write_text("no geopackage")
    assert "cannot be read as a vector file" in message(tmp_path / "t.gpkg")
    gpd.read_file(path).to_file(path, layer="more")
    assert "has several layers; name one as labels.layer: l, more" in message(path)
    gpd.read_file(path, layer="more").iloc[:0].to_file(tmp_path / "e.gpkg")
    assert "holds no polygons" in message(tmp_path / "e.gpkg")
