import shutil
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.crs import CRS as RasterCRS
from shapely import affinity
from shapely.geometry import Point, box

from landbalance.config import Scene
from landbalance.errors import UserError
from landbalance.layout import Layout
from landbalance.raster import Grid
from landbalance.report import run
from landbalance.report.scenes import NO_CLASS, SceneView, pixel_areas, read_scene, stretched
from landbalance.tiles import POLYGONS
from report.report_samples import (
    CLASSES,
    CRS,
    HEIGHT,
    NODATA_ROWS,
    PIXEL,
    TRANSFORM,
    WIDTH,
    Page,
    Results,
    class_picture,
    write_confidence,
    write_map,
    write_scene,
)


def view_of(results: Results, longest_side: int, **layers: Path) -> SceneView:
    layout = results.layout
    return read_scene(
        "valley-2020",
        results.config.datasets["valley"],
        layout.download("valley"),
        layout.map("valley", "valley-2020"),
        layout.tile("valley") / "index.parquet",
        longest_side,
        layers,
    )


def test_pictures_at_full_size_are_the_scene_and_the_map(made: Results) -> None:
    view = view_of(made, 1600)
    assert view.picture.shape == (HEIGHT, WIDTH, 4)
    np.testing.assert_array_equal(view.classes, class_picture())
    np.testing.assert_array_equal(view.picture[..., 3] == 0, class_picture() == NO_CLASS)
    # The lake is dark and blue, the right half bright.
    red, green, blue = (int(value) for value in view.picture[50, 55, :3])
    assert blue > green > red
    assert view.picture[80, 100, :3].min() > 200


@pytest.mark.parametrize("longest_side", [60, 40, 7])
def test_smaller_pictures_share_one_grid(made: Results, longest_side: int) -> None:
    view = view_of(made, longest_side)
    height, width = view.classes.shape
    assert max(width, height) <= longest_side + 1
    assert view.picture.shape == (height, width, 4)
    assert set(np.unique(view.classes)) <= {0, 1, 2, NO_CLASS}
    assert view.grid.bounds.left == 300_000
    assert view.grid.bounds.right >= 300_000 + WIDTH * PIXEL


def test_areas_do_not_depend_on_the_picture(made: Results) -> None:
    expected = [np.count_nonzero(class_picture() == number) * PIXEL**2 for number in range(len(CLASSES))]
    for longest_side in (1600, 7):
        view = view_of(made, longest_side)
        np.testing.assert_allclose(view.areas, expected)
        assert view.nodata_share == pytest.approx(NODATA_ROWS / HEIGHT)
        assert view.map_size == (WIDTH, HEIGHT)
        assert view.pixel_text == "10\u00a0m"


def test_the_unused_black_class_is_not_the_colour_of_missing_pixels(made: Results) -> None:
    assert view_of(made, 1600).areas[3] == 0


def test_classes_are_told_by_colour_whatever_their_codes(results: Results) -> None:
    codes = class_picture()
    shuffled = np.choose(np.minimum(codes, 3), [3, 2, 0, 255]).astype(np.uint8)
    order = [CLASSES[2], CLASSES[3], CLASSES[1], CLASSES[0]]
    write_map(results.layout.map("valley", "valley-2020"), order, shuffled)
    np.testing.assert_array_equal(view_of(results, 1600).classes, codes)


def test_a_map_of_other_classes_is_refused(results: Results) -> None:
    other = [dict(item, colour=f"#00000{number + 1}") for number, item in enumerate(CLASSES)]
    write_map(results.layout.map("valley", "valley-2020"), other)
    with pytest.raises(UserError, match=r"lacks #1b7837 of class Forest.*map stage again"):
        view_of(results, 1600)


def test_a_map_without_colours_is_refused(results: Results) -> None:
    path = results.layout.map("valley", "valley-2020")
    with rasterio.open(path) as source:
        profile = source.profile | {"driver": "GTiff", "photometric": "minisblack"}
    path.unlink()
    with rasterio.open(path, "w", **profile) as target:
        target.write(class_picture(), 1)
    with pytest.raises(UserError, match="no colour table"):
        view_of(results, 1600)


@pytest.mark.parametrize("content", [None, b"no raster"])
def test_a_missing_or_damaged_map_is_named(results: Results, content: bytes | None) -> None:
    path = results.layout.map("valley", "valley-2020")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"valley-2020\.tif: cannot be read"):
        view_of(results, 1600)


def test_outlines_follow_the_splits(made: Results) -> None:
    outlines = view_of(made, 1600).outlines
    assert list(outlines) == ["train", "validation", "test"]
    # The only validation tile: rows 30 to 60, columns 0 to 30.
    corners = [tuple(map(float, point.split(","))) for point in outlines["validation"].strip("MZ").split()]
    xs, ys = zip(*corners, strict=True)
    np.testing.assert_allclose([min(xs), max(xs), min(ys), max(ys)], [0, 30, 30, 60], atol=0.2)
    # Two test tiles that touch are one outline; the third lies apart.
    assert outlines["test"].count("M") == 2


def test_outlines_are_those_of_the_polygons_that_the_split_goes_by(results: Results) -> None:
    """Only the polygons that tiles of their split reach, inside the scene, to half a pixel."""
    folder = results.layout.tile("valley")
    round_, edge, lost = Point(75, 15).buffer(10, 64), box(-20, 70, 10, 80), box(35, 5, 45, 15)
    shapes = [affinity.affine_transform(shape, [*TRANSFORM[:2], *TRANSFORM[3:5], TRANSFORM.c, TRANSFORM.f])
              for shape in (round_, edge, lost)]  # fmt: skip
    frame = gpd.GeoDataFrame({"scene": "valley-2020", "polygon": range(3), "split": "test"}, geometry=shapes, crs=CRS)
    frame.to_crs("EPSG:4326").to_parquet(folder / POLYGONS)
    view = view_of(results, 1600)
    assert view.outlined == "polygons"
    rings = [
        np.array([tuple(map(float, point.split(","))) for point in ring.split()])
        for ring in view.outlines["test"].replace("M", "").rstrip("Z").split("Z ")
    ]
    assert len(rings) == 2
    assert 8 <= len(rings[0]) <= 40  # of 256 points
    assert np.abs(np.hypot(*(rings[0] - [75, 15]).T) - 10).max() < 0.6
    np.testing.assert_allclose([*rings[1].min(axis=0), *rings[1].max(axis=0)], [0, 70, 10, 80], atol=0.2)
    assert list(view.outlines) == ["test"]


def test_the_ground_of_a_split_has_no_holes_where_a_block_lacks_tiles(results: Results) -> None:
    path = results.layout.tile("valley") / "index.parquet"
    tiles = gpd.read_parquet(path)
    tiles["block"] = tiles["tile"] // 4  # the last row of tiles is a block
    kept = tiles[tiles["tile"].isin([0, 8, 11])].assign(split="test")
    kept.to_parquet(path)
    outlines = view_of(results, 1600).outlines
    assert list(outlines) == ["test"]
    rings = outlines["test"].rstrip("Z").split("Z ")
    xs = [float(point.split(",")[0]) for point in rings[-1].strip("M").split()]
    assert sorted(ring.count(",") for ring in rings) == [4, 4]
    assert {round(min(xs)), round(max(xs))} <= {0, 30, 120}


def test_stretch_runs_from_black_to_white_over_valid_pixels() -> None:
    values = np.arange(101, dtype=np.float32).reshape(1, 1, 101)
    valid = np.ones((1, 101), bool)
    valid[0, 0] = False
    picture = stretched(np.repeat(values, 3, axis=0), valid)
    assert picture[0, 0].tolist() == [0, 0, 0, 0]
    assert picture[0, 1].tolist() == [0, 0, 0, 255]
    assert picture[0, 100].tolist() == [255, 255, 255, 255]
    assert (np.diff(picture[0, 1:, 0].astype(int)) >= 0).all()


def test_stretch_of_one_value_or_of_nothing() -> None:
    images = np.full((1, 2, 2), 7, np.uint16)
    assert (stretched(images, np.ones((2, 2), bool))[..., 3] == 255).all()
    assert not stretched(images, np.zeros((2, 2), bool)).any()


def test_pixel_areas_on_the_plane_and_in_degrees() -> None:
    projected = Grid(RasterCRS.from_epsg(32633), Affine(30, 0, 5e5, 0, -20, 6e6), 4, 3)
    np.testing.assert_allclose(pixel_areas(projected), [600] * 3)
    feet = Grid(RasterCRS.from_epsg(2264), Affine(100, 0, 2e6, 0, -100, 6e5), 4, 3)
    np.testing.assert_allclose(pixel_areas(feet), (100 * 1200 / 3937) ** 2)
    degrees = Grid(RasterCRS.from_epsg(4326), Affine(0.01, 0, 13, 0, -0.01, 60.005), 4, 1)
    # At 60 degrees north on WGS 84 a degree of latitude is 111 412 m, of longitude 55 800 m.
    np.testing.assert_allclose(pixel_areas(degrees), 1114.12 * 558.00, rtol=1e-3)


def test_scale_bar_is_round_and_fits(made: Results) -> None:
    metres, share = view_of(made, 1600).scale_bar
    assert metres == 200
    assert share == pytest.approx(200 / (WIDTH * PIXEL))


def test_missing_tiles_are_named(results: Results) -> None:
    (results.layout.tile("valley") / "index.parquet").unlink()
    with pytest.raises(UserError, match=r"index\.parquet: not found"):
        view_of(results, 60)


def test_uncertainty_lies_on_the_pictures_grid(made: Results) -> None:
    path = made.layout.map_product("valley", "valley-2020", "confidence.tif")
    for longest_side, shape in ((1600, (HEIGHT, WIDTH)), (60, (45, 60))):
        (layer,) = view_of(made, longest_side, confidence=path).layers
        assert (layer.title, layer.values.shape) == ("Confidence", shape)
        assert (layer.values[-1, 0], layer.values[-1, -1]) == (225, 100)
        assert (layer.values[0] == NO_CLASS).all()


def test_missing_uncertainty_is_named(made: Results, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.tif: cannot be read .*map stage again"):
        view_of(made, 60, margin=tmp_path / "gone.tif")


def test_a_scene_beside_images_in_folders_has_no_tiles_to_outline(inputs: Results, tmp_path: Path) -> None:
    """And its report says that its accuracies are those of the images."""
    shutil.copytree(inputs.layout.root, tmp_path / "results")
    layout = Layout(tmp_path / "results")
    config = inputs.config.model_copy(deep=True)
    patches = config.datasets["patches"]
    bands = {"R": "stack.tif:2", "G": "stack.tif:1", "B": "blue.tif"}
    patches.scenes["hill"] = Scene(bands=bands)
    write_scene(layout.download("patches"))
    write_map(layout.map("patches", "hill"), CLASSES[:2], np.where(class_picture() == 2, 1, class_picture()))
    write_confidence(layout.map_product("patches", "hill", "confidence.tif"))
    run("patches", config, layout)
    page = Page(Results(config, layout).html("patches"))
    assert "The scene is only mapped: the model was trained and judged on images" in page.said("map")
    assert "Tiles of the splits" not in page.said("map")
