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

from landbalance.config import ClassInfo, Dataset
from landbalance.errors import UserError
from landbalance.raster import Grid
from landbalance.tile.blocks import Window
from landbalance.tile.labels import SceneLabels, require_labels, scene_labels
from landbalance.tile.labels.values import source_value

GRID = Grid(CRS.from_epsg(32633), Affine(10, 0, 500_000, 0, -10, 5_800_000), 40, 30)
Square = Callable[..., shapely.Polygon]
WriteLabels = Callable[..., None]
Read = Callable[..., SceneLabels]


WHOLE = Window(0, 0, GRID.height, GRID.width)


@pytest.fixture
def read(tmp_path: Path, dataset: Callable[..., Dataset]) -> Callable[..., SceneLabels]:
    """Return a function that reads the labels of a file of `tmp_path`, field `kind`, on a scene."""

    def labels(file: str, grid: Grid = GRID, classes: list[ClassInfo] | None = None, **settings: Any) -> SceneLabels:
        changes: dict[str, Any] = {"labels": {"path": file, "field": "kind", **settings}}
        if classes is not None:
            changes["classes"] = [item.model_dump() for item in classes]
        return scene_labels(dataset(**changes), tmp_path, "s", grid)

    return labels


def test_pixels_get_the_class_of_the_polygon_that_holds_their_centre(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read
) -> None:
    write_labels(tmp_path / "l.gpkg", [("river", square(2, 3, 5, 6)), ("wood", square(10, 10, 4.4, 4.6))])
    expected = np.full((30, 40), 255, np.uint8)
    expected[2:7, 3:9] = 0
    expected[10:14, 10:15] = 1
    assert np.array_equal(read("l.gpkg").burn(WHOLE), expected)
    assert np.array_equal(read("l.gpkg").burn(Window(5, 7, 9, 30)), expected[5:14, 7:37])


@pytest.mark.parametrize("small_first", [True, False])
def test_small_polygons_lie_over_large_ones(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, small_first: bool
) -> None:
    pairs = [("wood", square(5, 5, 4, 4)), ("lake", square(0, 0, 20, 20))]
    write_labels(tmp_path / "l.gpkg", pairs if small_first else pairs[::-1])
    labels = read("l.gpkg").burn(WHOLE)
    assert (labels[5:9, 5:9] == 1).all()
    assert np.count_nonzero(labels == 0) == 400 - 16


def test_labels_in_degrees_are_reprojected(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read
) -> None:
    """C08: the same polygons in EPSG:4326 give the same pixels (edges are kept off pixel centres)."""
    write_labels(tmp_path / "m.gpkg", [("lake", square(2, 3, 9, 12)), ("wood", square(20, 0, 10, 40))])
    write_labels(tmp_path / "d.gpkg", [("lake", square(2, 3, 9, 12)), ("wood", square(20, 0, 10, 40))], to="EPSG:4326")
    assert gpd.read_file(tmp_path / "d.gpkg").crs.to_epsg() == 4326
    labels = read("d.gpkg").burn(WHOLE)
    assert np.array_equal(labels, read("m.gpkg").burn(WHOLE))
    assert np.count_nonzero(labels == 1) == 400


def test_class_ids_become_indices(tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read) -> None:
    """C07: ids 10, 20, …, 100, also where the field has holes and so is read as float."""
    classes = [ClassInfo(name=f"c{k}", colour=f"#0000{k:02x}", values=[10 * k]) for k in range(1, 11)]
    pairs: list[Any] = [(10.0 * k, square(0, 2 * k, 1, 1)) for k in range(1, 11)]
    write_labels(tmp_path / "l.gpkg", [*pairs, (None, square(5, 0, 1, 1))])
    labels = read("l.gpkg", classes=classes).burn(WHOLE)
    assert labels[0, 2:22:2].tolist() == list(range(10))
    assert labels[5, 0] == 255


def test_source_values_compare_as_text() -> None:
    assert [source_value(value) for value in (10, 10.0, np.float64(10), "10", 1.5, None, float("nan"), "a b")] == [
        "10", "10", "10", "10", "1.5", None, None, "a b",
    ]  # fmt: skip


def test_values_in_no_class_and_classes_without_values_are_reported(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, dataset: Callable[..., Dataset],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    moor = [("moor", square(row, 20, 1, 1)) for row in range(3)]
    write_labels(tmp_path / "l.gpkg", [("lake", square(0, 0, 4, 4)), ("wood", square(9, 0, 4, 4)), *moor])
    with caplog.at_level(logging.INFO):
        labels = read("l.gpkg")
        require_labels("d", dataset(), {"s": labels.found})
    assert (labels.burn(WHOLE)[:, 20:] == 255).all()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("in no class" in text and "moor (3)" in text for text in warnings), warnings
    assert any("no polygons for river, which class Water lists" in text for text in warnings), warnings
    assert "class Water: polygons from lake (1), river (0)" in caplog.text


def test_no_value_in_any_class_is_an_error(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, dataset: Callable[..., Dataset]
) -> None:
    write_labels(tmp_path / "l.gpkg", [("moor", square(0, 0, 4, 4)), (None, square(9, 0, 4, 4))])
    found = read("l.gpkg").found
    with pytest.raises(UserError, match=r"Found: \(empty\) \(1\), moor \(1\); the classes list: lake, river, wood"):
        require_labels("d", dataset(), {"s": found})


def test_a_scene_without_labels_is_a_warning_and_all_without_an_error(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, dataset: Callable[..., Dataset],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """C08: both places are told, in one CRS."""
    write_labels(tmp_path / "l.gpkg", [("lake", square(0, 1000, 4, 4))])
    write_labels(tmp_path / "d.gpkg", [("lake", square(0, 1000, 4, 4))], to="EPSG:4326")
    for file in ("l.gpkg", "d.gpkg"):
        bare = read(file)
        assert (bare.burn(WHOLE) == 255).all()
        assert (bare.objects(WHOLE) == -1).all()
        assert "s: no labels on this scene" in caplog.text
        with pytest.raises(UserError) as error:
            require_labels("d", dataset(), {"s": bare.found})
        for part in (file, "labels cover x 5", " to 5100", "x 500000 to 500400", "both in EPSG:32633"):
            assert part in str(error.value)
    write_labels(tmp_path / "r.gpkg", [("lake", square(0, 0, 4, 4))])
    require_labels("d", dataset(), {"s": bare.found, "t": read("r.gpkg").found})
    with pytest.raises(UserError, match="the labels miss all 2 scenes"):
        require_labels("d", dataset(), {"s": bare.found, "t": bare.found})


def test_objects_are_the_features_of_the_file(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read
) -> None:
    """The same polygon has the same number on every scene that shows it."""
    pairs = [("wood", square(0, 1000, 4, 4)), ("moor", square(0, 0, 2, 2)), ("lake", square(5, 30, 9, 20)),
             ("wood", square(6, 36, 2, 2))]  # fmt: skip
    write_labels(tmp_path / "l.gpkg", pairs)
    east = Grid(GRID.crs, GRID.transform @ Affine.translation(35, 0), 40, 30)
    here, there = read("l.gpkg"), read("l.gpkg", grid=east)
    ids = dict(zip(gpd.read_file(tmp_path / "l.gpkg", fid_as_index=True).index, range(4), strict=True))
    known = np.vectorize(lambda number: ids.get(number, -1))(here.objects(WHOLE))
    assert np.unique(known).tolist() == [-1, 2, 3]
    assert (known[6:8, 36:38] == 3).all()
    assert np.count_nonzero(known == 2) == 9 * 10 - 4
    assert np.array_equal(known >= 0, here.burn(WHOLE) != 255)
    assert np.array_equal(here.objects(Window(0, 35, 30, 5)), there.objects(Window(0, 0, 30, 5)))


def test_invalid_polygons_are_repaired_and_empty_ones_left_out(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = 500_000, 5_800_000
    bow = shapely.Polygon([(x, y), (x + 100, y - 100), (x + 100, y), (x, y - 100)])
    line = shapely.LineString([(x, y), (x + 100, y - 50)])
    write_labels(
        tmp_path / "l.geojson",
        [("lake", bow), ("wood", line), ("wood", shapely.Point(x + 5, y - 5)), ("wood", square(20, 20, 5, 5))],
    )
    labels = read("l.geojson").burn(WHOLE)
    assert np.count_nonzero(labels == 0) > 30
    assert np.count_nonzero(labels == 1) == 25
    assert "1 invalid polygons repaired" in caplog.text
    assert "2 geometries left out" in caplog.text


def test_labels_without_crs_stop(tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read) -> None:
    """C08."""
    write_labels(tmp_path / "l.gpkg", [("lake", square(0, 0, 4, 4))], crs=None)
    with pytest.raises(UserError, match=r"l\.gpkg: has no CRS"):
        read("l.gpkg").burn(WHOLE)


def test_what_is_wrong_with_a_label_file_is_said(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, dataset: Callable[..., Dataset]
) -> None:
    path = tmp_path / "l.gpkg"
    write_labels(path, [("lake", square(0, 0, 4, 4))])

    def message(file: str, **changes: Any) -> str:
        with pytest.raises(UserError) as error:
            read(file, **changes)
        return str(error.value)

    assert "has no field sort (labels.field); there are: kind" in message("l.gpkg", field="sort")
    assert "has no layer x; name one as labels.layer: l." in message("l.gpkg", layer="x")
    assert "not found (labels.path)" in message("gone.gpkg")
    (tmp_path / "t.gpkg").write_text("no geopackage")
    assert "cannot be read as a vector file" in message("t.gpkg")
    gpd.read_file(path).to_file(path, layer="more")
    assert "has several layers; name one as labels.layer: l, more" in message("l.gpkg")
    gpd.read_file(path, layer="more").iloc[:0].to_file(tmp_path / "e.gpkg")
    with pytest.raises(UserError, match=r"e\.gpkg.*The file holds no labels at all"):
        require_labels("d", dataset(), {"s": read("e.gpkg").found})


@pytest.mark.parametrize("file", ["l.gpkg", "l.geojson", "l.shp", "l.fgb"])
def test_damaged_files_are_named(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, file: str
) -> None:
    """Whatever a file holds, it is read or it is named: cut off anywhere, or with noise in the midst."""
    path, rng = tmp_path / file, np.random.default_rng(0)
    write_labels(path, [("lake", square(row, col, 1, 1)) for row in range(20) for col in range(20)])
    whole = path.read_bytes()
    named = 0
    for share in (0, 0.02, 0.3, 0.6, 0.9, 0.99):
        at = int(len(whole) * share)
        noise = rng.integers(0, 256, 100, np.uint8).tobytes()
        for damaged in (whole[:at], whole[:at] + noise + whole[at + 100 :]):
            path.write_bytes(damaged)
            try:
                read(file).burn(WHOLE)
            except UserError as error:
                assert str(error).startswith(f"{path}: "), error
                named += 1
    assert named >= 6


def test_points_label_the_pixels_around_them(
    tmp_path: Path, write_labels: WriteLabels, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = 500_000, 5_800_000
    points = [("wood", shapely.Point(x + 103, y - 55)), ("lake", shapely.MultiPoint([(x + 255, y - 255), (x + 5, y)]))]
    write_labels(tmp_path / "l.gpkg", points)
    labels = read("l.gpkg", radius=25.0)
    rows, cols = (np.mgrid[:30, :40] + 0.5) * 10
    expected = np.full((30, 40), 255, np.uint8)
    for kind, east, south in ((1, 103, 55), (0, 255, 255), (0, 5, 0)):
        expected[np.hypot(cols - east, rows - south) < 25] = kind
    assert np.array_equal(labels.burn(WHOLE), expected)
    assert labels.found.what == "points"
    assert len(np.unique(labels.objects(WHOLE))) == 3
    # However small the circle, the pixel that holds the point has its class.
    small = read("l.gpkg", radius=0.5).burn(WHOLE)
    assert np.argwhere(small == 1).tolist() == [[5, 10]]
    assert np.argwhere(small == 0).tolist() == [[0, 0], [25, 25]]
    assert "geometries left out" not in caplog.text
    assert (read("l.gpkg").burn(WHOLE) == 255).all()
    assert "2 geometries left out, being empty or without area (labels.radius widens points and lines)" in caplog.text


def test_a_point_outside_reaches_into_the_scene(tmp_path: Path, write_labels: WriteLabels, read: Read) -> None:
    write_labels(tmp_path / "l.gpkg", [("wood", shapely.Point(499_990, 5_799_995))], to="EPSG:4326")
    assert np.argwhere(read("l.gpkg", radius=16.0).burn(WHOLE) == 1).tolist() == [[0, 0]]


def test_lines_are_widened(tmp_path: Path, write_labels: WriteLabels, read: Read) -> None:
    line = shapely.LineString([(500_000, 5_799_900), (500_400, 5_799_900)])
    write_labels(tmp_path / "l.gpkg", [("lake", line)])
    labels = read("l.gpkg", radius=12.0).burn(WHOLE)
    assert np.flatnonzero((labels == 0).any(axis=1)).tolist() == [9, 10]


@pytest.mark.parametrize("file", ["l.gpkg", "l.geojson", "l.shp", "l.fgb"])
@pytest.mark.parametrize("values", [[10, 20], [10.0, 20.0], ["10", "20"], [True, False]])
def test_a_field_of_any_type(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, file: str, values: list[Any]
) -> None:
    write_labels(tmp_path / file, [(values[0], square(0, 0, 4, 4)), (values[1], square(9, 0, 4, 4))])
    listed: list[Any] = ["10", "20"]
    if isinstance(values[0], bool):
        listed = ["True", "False"]
    classes = [ClassInfo(name=f"c{v}", colour=f"#00000{k}", values=[v]) for k, v in enumerate(listed)]
    labels = read(file, classes=classes).burn(WHOLE)
    assert [np.count_nonzero(labels == index) for index in range(2)] == [16, 16]


@pytest.mark.parametrize("spelling", [
    "EPSG:32633", "urn:ogc:def:crs:EPSG::32633", "+proj=utm +zone=33 +datum=WGS84 +units=m +no_defs", "esri",
])  # fmt: skip
def test_spellings_of_one_crs(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read, spelling: str
) -> None:
    crs = CRS.from_epsg(32633).to_wkt(version="WKT1_ESRI") if spelling == "esri" else spelling
    write_labels(tmp_path / "l.gpkg", [("lake", square(2, 3, 9, 12))])
    write_labels(tmp_path / "s.gpkg", [("lake", square(2, 3, 9, 12))], crs=crs)
    assert np.array_equal(read("s.gpkg").burn(WHOLE), read("l.gpkg").burn(WHOLE))


def test_the_configuration_gives_a_missing_crs(
    tmp_path: Path, square: Square, write_labels: WriteLabels, read: Read
) -> None:
    write_labels(tmp_path / "l.gpkg", [("lake", square(2, 3, 9, 12))], crs=None)
    assert np.count_nonzero(read("l.gpkg", crs="EPSG:32633").burn(WHOLE) == 0) == 108
    write_labels(tmp_path / "d.gpkg", [("lake", square(2, 3, 9, 12))], to="EPSG:4326")
    assert np.count_nonzero(read("d.gpkg", crs="EPSG:32633").burn(WHOLE) == 0) == 108  # the file's own word counts


@pytest.mark.parametrize("transform", [
    Affine(10, 0, 500_000, 0, 10, 5_800_000), Affine(10, 3, 500_000, 2, -10, 5_800_000),
    Affine(10, 0, 500_000, 0, -25, 5_800_000), Affine.translation(500_000, 5_800_000) @ Affine.rotation(30) @
    Affine.scale(10, -10),
], ids=["south up", "sheared", "oblong", "rotated"])  # fmt: skip
def test_grids_of_every_kind(tmp_path: Path, write_labels: WriteLabels, read: Read, transform: Affine) -> None:
    """A pixel is in the polygon that holds its centre, wherever the grid has its first row."""
    grid = Grid(GRID.crs, transform, 40, 30)
    x, y = transform @ (20.13, 15.21)  # edges are kept off pixel centres
    polygon = shapely.Point(x, y).buffer(95)
    write_labels(tmp_path / "l.gpkg", [("lake", polygon), ("wood", shapely.box(x, y, x + 40, y + 40))])
    labels = read("l.gpkg", grid=grid)
    centres = [[transform @ (col + 0.5, row + 0.5) for col in range(40)] for row in range(30)]
    points = shapely.points(np.array(centres))
    expected = np.where(shapely.contains(polygon, points), 0, 255)
    expected[shapely.contains(shapely.box(x, y, x + 40, y + 40), points)] = 1
    assert np.count_nonzero(expected == 0) > 50
    assert np.array_equal(labels.burn(WHOLE), expected)
    assert np.array_equal(labels.burn(Window(11, 13, 9, 17)), expected[11:20, 13:30])
