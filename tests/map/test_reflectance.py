"""Maps of products: the values are those that the model was trained on, and clouds are no class."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

import products
from landbalance.cli import main
from landbalance.config import Dataset, Map, Scene
from landbalance.errors import UserError
from landbalance.map import run_bundle
from landbalance.tiles import Normalisation

RAISED = {"B02": -1000, "B8A": -1000}
BANDS = ["B02", "B8A"]


@pytest.fixture
def right() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 3, (24, 24), np.uint8)


@pytest.fixture
def both(scenery: Any, right: np.ndarray) -> dict[str, Path]:
    """Return products of the same ground from before and after baseline 04.00; the second has clouds and their mask."""
    numbers = {"B02": right.astype(np.uint16) + 1, "B8A": np.full((12, 12), 7, np.uint16)}
    scl = np.full((12, 12), 4, np.uint8)
    scl[2:5, 3:7] = 9
    return {
        "old": products.sentinel2(scenery.source, "L2A", "03.01", numbers, start="2020-05-12T10:20:21.024Z"),
        "new": products.sentinel2(
            scenery.source, "L2A", "04.00", {band: values + 1000 for band, values in numbers.items()}, RAISED, scl
        ),
    }


def with_scene(scenery: Any, scene: Scene) -> None:
    """Make `scene` the scenery's only one."""
    scenery.write(np.ones((2, 8, 8), np.uint16), names=BANDS)
    scenery.dataset = Dataset.model_validate(scenery.dataset.model_dump() | {"scenes": {"scene": scene.model_dump()}})
    scenery.use_nearest(bands=BANDS)


def test_both_baselines_give_the_same_map_and_clouds_are_nodata(
    scenery: Any, both: dict[str, Path], right: np.ndarray
) -> None:
    """C04, C22."""
    clear = np.ones((24, 24), bool)
    clear[4:10, 6:14] = False
    with_scene(scenery, Scene(product=both["old"].name, bands=BANDS))
    assert scenery.dataset.reflectance
    assert np.array_equal(scenery.run(window=16, overlap=4), right)
    with_scene(scenery, Scene(product=both["new"].name, bands=BANDS, mask={"band": "SCL"}))
    assert np.array_equal(scenery.run(window=16, overlap=4, stac=True), np.where(clear, right, 255))
    with rasterio.open(scenery.target) as raster:
        assert raster.tags()["LANDBALANCE_ACQUIRED"] == "2022-05-12 10:20 UTC, Sentinel-2B, level 2A"
    assert '"2022-05-12T10:20:00Z"' in scenery.target.with_name("scene.stac.json").read_text()


def test_a_raster_of_one_s_own_is_a_mask(scenery: Any, both: dict[str, Path], right: np.ndarray) -> None:
    products.write(scenery.source / "clouds.tif", np.eye(24, dtype=np.uint8), 10, driver="GTiff")
    with_scene(scenery, Scene(product=both["new"].name, bands=BANDS, mask={"band": "clouds.tif", "values": [1]}))
    assert np.array_equal(scenery.run(window=16, overlap=4), np.where(np.eye(24), 255, right))


def found(path: Path) -> np.ndarray:
    with rasterio.open(path) as raster:
        values: np.ndarray = raster.read(1)
    return values


def test_a_bundle_reads_products_as_it_was_trained(
    scenery: Any, both: dict[str, Path], right: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    scenery.write(np.ones((2, 8, 8), np.uint16), names=BANDS)
    scenery.use_nearest(reflectance=True)
    packed = products.zipped(both["new"])
    maps = run_bundle(scenery.bundle, [str(both["old"]), str(packed)], Map(window=16, overlap=4), scenery.folder / "m")
    assert [path.name for path in maps] == [f"{both[name].name.removesuffix('.SAFE')}.tif" for name in both]
    assert np.array_equal(found(maps[0]), right)
    assert np.array_equal(found(maps[1]), right)
    with rasterio.open(maps[1]) as raster:
        assert raster.tags()["LANDBALANCE_ACQUIRED"].startswith("2022-05-12 10:20")
    images = next(both["new"].rglob("*_B02_10m.jp2")).parents[1]
    for part in (images, images / "R10m"):
        with pytest.raises(UserError, match=r"is a part of the product .*\.SAFE, whose metadata"):
            run_bundle(scenery.bundle, [str(part)], Map(), scenery.folder / "m")
    with pytest.raises(UserError, match="Sentinel-2 L2A has no band B11 there"):
        scenery.use_nearest(bands=["B02", "B11"], reflectance=True)
        run_bundle(scenery.bundle, [str(both["new"])], Map(), scenery.folder / "m")


def test_a_bundle_trained_on_numbers_reads_numbers(scenery: Any, tmp_path: Path, right: np.ndarray) -> None:
    numbers = {"B02": right.astype(np.uint16) + 1, "B8A": np.full((12, 12), 7, np.uint16)}
    path = products.sentinel2(tmp_path, "L1C", "04.00", numbers, RAISED)
    scenery.write(np.ones((2, 8, 8), np.uint16), names=BANDS)
    scenery.use_nearest()
    (map_,) = run_bundle(scenery.bundle, [str(path)], Map(window=16, overlap=4), scenery.folder / "m")
    assert np.array_equal(found(map_), right)


def test_a_bundle_leaves_out_what_a_products_own_mask_tells(
    scenery: Any, both: dict[str, Path], right: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    scenery.write(np.ones((2, 8, 8), np.uint16), names=BANDS)
    scenery.use_nearest(reflectance=True)
    command = ["map", "--model", str(scenery.bundle), "--set", "window=16", "--set", "overlap=4"]
    command += ["--out", str(scenery.folder / "m")]
    cloudy = np.zeros((24, 24), bool)
    cloudy[4:10, 6:14] = True
    for mask, gone in (
        ("SCL", cloudy),
        ("{band: SCL, classes: [cloud, snow]}", cloudy),
        ("{band: SCL, classes: [vegetation]}", ~cloudy),
    ):
        assert main([*command, str(both["new"]), "--mask", mask]) == 0
        assert np.array_equal(found(Path(capsys.readouterr().out.strip())), np.where(gone, 255, right))
    products.write(scenery.folder / "clouds.tif", np.eye(24, dtype=np.uint8), 10, driver="GTiff")
    clouds = f"{{band: {scenery.folder / 'clouds.tif'}, values: [1]}}"
    assert main([*command, str(both["old"]), "--mask", clouds]) == 0
    assert np.array_equal(found(Path(capsys.readouterr().out.strip())), np.where(np.eye(24), 255, right))
    for scene, mask, message in (
        ("old", "SCL", "SCL: not found (mask.band of the scene; the product's own masks: none)"),
        (
            "new",
            "{band: SCL, classes: [clouds]}",
            "no class of SCL is called clouds; allowed: no_data, saturated, dark",
        ),
        ("new", "clouds.tif", "say which values or bits of clouds.tif mean missing pixels"),
        ("new", "{band: SCL, value: [1]}", "value: no such setting"),
    ):
        assert main([*command, str(both[scene]), "--mask", mask]) == 1
        assert message in capsys.readouterr().err


@pytest.fixture
def bytes_model(scenery: Any) -> np.ndarray:
    """Make the scenery's model one of images in folders that were stretched; return what the right map is.

    A class's number + 1 in the model's bytes is ten times the number in the scene; a corner is missing.
    """
    right = np.repeat(np.arange(3), 24).reshape(3, 24).repeat(8, axis=0).astype(np.uint8)
    scene = np.stack([10 * right.astype(np.uint16), np.full(right.shape, 65535, np.uint16)])
    scene[:, :4, :4] = 0
    scenery.write(scene, names=BANDS)
    images = {"labels": None, "folders": {"path": "images", "bands": BANDS, "stretch": [0, 2540, 1, 255]}}
    more = {"task": "classification", "split": {"by": "sample"}, "resolution": 10}
    scenery.dataset = Dataset.model_validate(scenery.dataset.model_dump() | images | more)
    scenery.network = scenery.use_nearest(
        "classification", stretch=[0, 2540, 1, 255], reflectance=scenery.dataset.reflectance,
        normalisation=Normalisation(mean=[0.0, 0.0], std=[1.0, 1.0], missing=None),
    )  # fmt: skip
    right[:4, :4] = 255
    return right


def test_a_model_of_stretched_images_maps_a_scene_in_their_bytes(scenery: Any, bytes_model: np.ndarray) -> None:
    assert np.array_equal(scenery.run(stride=8), bytes_model)


def test_so_does_its_bundle_alone_also_of_a_product(
    scenery: Any, bytes_model: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = f"B02={scenery.source / 'scene.tif'}:1,B8A={scenery.source / 'scene.tif'}:2"
    (map_,) = run_bundle(scenery.bundle, [pairs], Map(stride=8), scenery.folder / "m")
    assert np.array_equal(found(map_), bytes_model)
    assert "reflectance × 10,000" in caplog.text
    numbers = {"B02": np.repeat(np.arange(3, dtype=np.uint16), 8)[:, None].repeat(24, 1) * 10 + 1000}
    numbers["B8A"] = np.full((12, 12), 9000, np.uint16)
    product = products.sentinel2(scenery.source, "L1C", "04.00", numbers, RAISED)
    (map_,) = run_bundle(scenery.bundle, [str(product)], Map(stride=8), scenery.folder / "m")
    assert found(map_)[:, 10].tolist() == [0] * 8 + [1] * 8 + [2] * 8


def test_such_a_model_wants_pixels_of_its_images_size(scenery: Any, bytes_model: np.ndarray) -> None:
    scenery.dataset = scenery.dataset.model_copy(update={"resolution": 20.0})
    with pytest.raises(UserError, match="trained on pixels of 10, scene scene has pixels of 20"):
        scenery.run()
