"""The files beside a map, from one run of the stage on a real network."""

from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import geopandas
import numpy as np
import pytest
import rasterio

from landbalance.config import Map
from landbalance.files import read_json

SCHEMAS = Path(__file__).parent / "schemas"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a scenery that has been mapped with everything that the settings offer."""
    from map.conftest import Scenery

    with pytest.MonkeyPatch.context() as patch:
        scenery = Scenery(tmp_path_factory.mktemp("products"), patch)
        random = np.random.default_rng(3)
        scene = random.integers(1, 9, (2, 9, 10)).repeat(8, 1).repeat(8, 2).astype(np.float32)
        scene += random.random(scene.shape).astype(np.float32)
        scene[:, 10:30, 20:45] = np.nan
        scenery.write(scene, nodata=float("nan"), acquired="2017-02-16 10:21 UTC, Sentinel-2A")
        scenery.save()
        scenery.settings = Map(
            window=32, overlap=8, probability=True, uncertainty=["confidence", "entropy", "margin"],
            majority=3, minimum_unit=12, polygons=True, stac=True, mosaic=True,
        )  # fmt: skip
        scenery.codes = scenery.run(**scenery.settings.model_dump())
        yield scenery


def beside(made: Any, ending: str) -> Path:
    return made.target.with_name(f"scene.{ending}")


def test_files_are_those_of_the_settings_and_no_others(made: Any) -> None:
    found = sorted(path.name for path in made.target.parent.iterdir())
    assert found == sorted(f"scene.{ending}" for ending in made.settings.endings)
    assert Map().endings == ["tif", "qml"]


def test_rasters_share_the_grid_the_nodata_and_the_provenance(made: Any) -> None:
    with rasterio.open(made.target) as raster:
        grid, tags, gone = (raster.crs, raster.transform, raster.shape), raster.tags(), raster.read_masks(1) == 0
    assert gone.sum() == 20 * 25
    for ending in ("probability.tif", "confidence.tif", "entropy.tif", "margin.tif", "filtered.tif"):
        with rasterio.open(beside(made, ending)) as raster:
            assert (raster.crs, raster.transform, raster.shape) == grid
            assert ((raster.read() == 255) == gone).all()
            assert raster.tags()["LANDBALANCE_MODEL_SHA256"] == tags["LANDBALANCE_MODEL_SHA256"]
            assert raster.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"


def test_probabilities_agree_with_the_map(made: Any) -> None:
    with rasterio.open(beside(made, "probability.tif")) as raster:
        shares, names, scales = raster.read().astype(int), raster.descriptions, raster.scales
    with rasterio.open(beside(made, "confidence.tif")) as raster:
        confidence = raster.read(1)
    with rasterio.open(beside(made, "margin.tif")) as raster:
        margin = raster.read(1)
    there = made.codes != 255
    assert names == tuple(item.name for item in made.dataset.classes)
    assert scales == (0.004,) * 3
    assert np.abs(shares.sum(axis=0)[there] - 250).max() <= 2
    shown = np.take_along_axis(shares, np.where(there, made.codes, 0)[None].astype(int), axis=0)[0]
    assert (shown == shares.max(axis=0))[there].all()
    assert (shown == confidence)[there].all()
    ordered = np.sort(shares, axis=0)
    assert np.abs(ordered[-1] - ordered[-2] - margin)[there].max() <= 1
    assert len(np.unique(made.codes[there])) > 1


def test_filtered_map(made: Any) -> None:
    from landbalance.map.filtering import most_frequent, without_small_patches

    with rasterio.open(beside(made, "filtered.tif")) as raster:
        found, tags, colours = raster.read(1), raster.tags(), raster.colormap(1)
    assert (found == without_small_patches(most_frequent(made.codes, 3, 3), 3, 12)).all()
    assert (found != made.codes).any()
    assert (tags["LANDBALANCE_MAJORITY"], tags["LANDBALANCE_MINIMUM_UNIT"]) == ("3", "12")
    assert colours[1] == (0x21, 0x66, 0xAC, 255)


def test_polygons_cover_the_filtered_map(made: Any) -> None:
    with rasterio.open(beside(made, "filtered.tif")) as raster:
        counts = np.bincount(raster.read(1).ravel(), minlength=3)
        crs = raster.crs
    frame = geopandas.read_file(beside(made, "polygons.gpkg"))
    assert frame.crs == crs.to_wkt()
    assert frame.geometry.is_valid.all()
    assert np.allclose(frame.area / 10_000, frame["area_ha"])
    areas = frame.groupby("code")["area_ha"].sum()
    for code, item in enumerate(made.dataset.classes):
        assert areas.get(code, 0) == pytest.approx(counts[code] / 100)  # 100 m² a pixel
        assert set(frame.loc[frame["code"] == code, "class"]) <= {item.name}
    root = ElementTree.fromstring(beside(made, "polygons.qml").read_text("utf-8").split("\n", 1)[1])
    assert [item.get("label") for item in root.iter("category")] == [item.name for item in made.dataset.classes]


def test_polygons_of_a_geographic_map_have_their_area_on_the_ellipsoid(tmp_path: Path) -> None:
    from rasterio.transform import from_origin

    from landbalance.map.geotiff import Legend
    from landbalance.map.polygons import write_polygons
    from map.conftest import CLASSES

    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=10, height=10, count=1, dtype="uint8", nodata=255,
        crs="EPSG:4326", transform=from_origin(13, 52.1, 0.01, 0.01),
    ) as raster:  # fmt: skip
        raster.write(np.ones((1, 10, 10), np.uint8))
    assert write_polygons(tmp_path / "a.tif", Legend(CLASSES, 255), tmp_path / "a.gpkg") == 1
    area = geopandas.read_file(tmp_path / "a.gpkg")["area_ha"][0]
    # A degree of latitude is 111.3 km here, one of longitude 111.3 km · cos 52.05°.
    assert area == pytest.approx(11.13e3 * 11.13e3 * np.cos(np.radians(52.05)) / 1e4, rel=0.01)


def test_stac_item_is_valid_without_a_network(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pystac
    from pystac.validation.stac_validator import JsonSchemaSTACValidator

    item = pystac.Item.from_file(str(beside(made, "stac.json")))
    validator = JsonSchemaSTACValidator()
    for path in SCHEMAS.glob("*.json"):
        schema = read_json(path)
        validator.schema_cache[schema["$id"].removesuffix("#")] = schema
    # The classes' definition, which the model extension takes from the version before; that of 2.0 is stricter.
    address = "https://stac-extensions.github.io/classification/v{}/schema.json"
    validator.schema_cache[address.format("1.1.0")] = validator.schema_cache[address.format("2.0.0")]

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a schema was looked for in the network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    checked = pystac.validation.validate(item, validator=validator)
    assert {uri.split("/")[3] for uri in checked if "stac-extensions" in uri} == {
        "classification", "mlm", "projection",
    }  # fmt: skip
    broken = item.clone()
    broken.properties["mlm:tasks"] = "segmentation"
    with pytest.raises(pystac.errors.STACValidationError):
        pystac.validation.validate(broken, validator=validator)


def test_stac_item_says_where_when_and_what(made: Any) -> None:
    item = read_json(beside(made, "stac.json"))
    assert item["properties"]["datetime"] == "2017-02-16T10:21:00Z"
    assert item["properties"]["proj:code"] == "EPSG:32633"
    assert item["properties"]["proj:shape"] == [72, 80]
    classes = item["assets"]["map"]["classification:classes"]
    assert [(entry["value"], entry["color_hint"]) for entry in classes[:2]] == [(0, "1B7837"), (1, "2166AC")]
    west, south, east, north = item["bbox"]
    assert west == pytest.approx(12.0, abs=0.2)
    assert (east - west, north - south) == (pytest.approx(0.0117, rel=0.1), pytest.approx(0.0065, rel=0.1))
    ring = item["geometry"]["coordinates"][0]
    assert ring[0] == ring[-1]
    assert sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) > 0
    for asset in item["assets"].values():
        assert (made.target.parent / asset["href"]).is_file(), asset
    assert {link["rel"] for link in item["links"]} == {"derived_from"}
