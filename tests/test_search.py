"""Scenes from a STAC API on this machine: what is asked, what is written down, and that it can be fetched."""

import hashlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import rasterio
import requests
import yaml
from rasterio.transform import from_origin
from shapely.geometry import box

from landbalance import cli
from landbalance.config import Dataset
from landbalance.download import fetch as fetch_module
from landbalance.download import run as download
from landbalance.errors import UserError
from landbalance.search import Wanted, search
from stac_server import StacServer

pytest.importorskip("pystac_client")
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:rasterio")

BANDS = {"blue": "B02", "red": "B04"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("LANDBALANCE_CACHE", raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StacServer]:
    """Return a server with five scenes over Brandenburg, each with two bands and a classification."""
    server = StacServer(tmp_path / "served")
    server.collection = {
        "type": "Collection", "stac_version": "1.0.0", "id": "sentinel-2-l2a", "title": "Sentinel-2 level 2A",
        "description": "scenes", "license": "proprietary", "links": [
            {"rel": "license", "href": "https://example.org/terms"},
            {"rel": "items", "href": f"{server.root}/collections/sentinel-2-l2a/items"},
        ],
        "providers": [{"name": "ESA", "roles": ["producer"]}, {"name": "A cloud", "roles": ["host"]}],
        "extent": {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}},
    }  # fmt: skip
    for name, when, cloud, west in (
        ("S2A_one", "2021-07-01", 5.0, 13.0),
        ("S2B_two", "2022-07-04", 1.5, 13.0),
        ("S2A_three", "2022-07-09", 60.0, 13.0),
        ("S2A_four", "2022-07-14", 10.0, 13.0),
        ("S2A_elsewhere", "2022-07-15", 0.0, 20.0),
    ):
        server.items.append(stac_item(server, name, f"{when}T10:20:31Z", cloud, west))
    yield server
    server.close()


def stac_item(server: StacServer, name: str, when: str, cloud: float, west: float) -> dict[str, Any]:
    assets = {}
    for key, band in [*BANDS.items(), ("scl", None)]:
        path = server.folder / name / f"{band or 'SCL'}.tif"
        write_band(path, 4 if band is None else 1200)
        kind = "image/tiff; application=geotiff; profile=cloud-optimized"
        assets[key] = {"href": f"{server.root}/files/{name}/{path.name}", "type": kind, "roles": ["data"]}
        if band:
            assets[key]["eo:bands"] = [{"name": band, "common_name": key}]
            # Each band as JPEG 2000 besides, as some catalogues have it.
            assets[f"{key}-jp2"] = assets[key] | {"href": f"s3://eodata/{name}/{band}.jp2", "type": "image/jp2"}
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assets[key] |= {"file:checksum": f"1220{digest}", "raster:bands": [{"nodata": 0}]}
    assets["visual"] = {"href": "x.tif", "type": "image/tiff", "eo:bands": [{"name": band} for band in BANDS.values()]}
    # The baseline is the processing's, not the acquisition's: the scene of 2021 was processed anew.
    properties = {"datetime": when, "eo:cloud_cover": cloud, "s2:processing_baseline": "05.00"}
    if name == "S2B_two":
        properties["s2:processing_baseline"] = "03.01"
    square = box(west, 52.0, west + 1, 53.0)
    return {
        "type": "Feature", "stac_version": "1.0.0", "id": name, "collection": "sentinel-2-l2a",
        "geometry": square.__geo_interface__, "bbox": list(square.bounds), "properties": properties, "assets": assets,
        "links": [],
    }  # fmt: skip


def write_band(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(
        path, "w", driver="GTiff", width=16, height=16, count=1, dtype="uint16", crs="EPSG:32633",
        transform=from_origin(400000, 5800000, 10, 10),
    ) as file:  # fmt: skip
        file.write(np.full((1, 16, 16), value, np.uint16))


def wanted(server: StacServer, **changes: Any) -> Wanted:
    base: dict[str, Any] = {
        "api": server.root, "collection": "sentinel-2-l2a", "area": "13.2,52.2,13.3,52.3",
        "dates": "2021-01-01/2022-12-31", "bands": ["B02", "NIR=red"], "cloud": 20.0,
    }  # fmt: skip
    return Wanted(**base | changes)


def test_what_is_found_is_written_down_as_sources_and_scenes(server: StacServer) -> None:
    found = yaml.safe_load(search(wanted(server)))
    assert list(found["scenes"]) == ["S2A_one", "S2B_two", "S2A_four"]
    assert found["scenes"]["S2A_one"] == {
        "bands": {"B02": "S2A_one/B02.tif", "NIR": "S2A_one/B04.tif"},
        "nodata": 0,
        "offset": -1000.0,
        "acquired": "2021-07-01 10:20 UTC, sentinel-2-l2a, 5 % cloud",
    }
    first = found["sources"][0]
    digest = hashlib.sha256((server.folder / "S2A_one" / "B02.tif").read_bytes()).hexdigest()
    assert first == {
        "url": f"{server.root}/files/S2A_one/B02.tif",
        "name": "S2A_one/B02.tif",
        "sha256": digest,
        "licence": "https://example.org/terms",
        "attribution": "Sentinel-2 level 2A: ESA",
    }
    assert len(found["sources"]) == 6


def test_the_offset_follows_the_scenes_own_metadata(server: StacServer) -> None:
    """C22: not the date."""
    scenes = yaml.safe_load(search(wanted(server)))["scenes"]
    assert {name: scene.get("offset") for name, scene in scenes.items()} == {
        "S2A_one": -1000.0, "S2B_two": None, "S2A_four": -1000.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "properties", "expected"),
    [
        ({"scale": 0.0001, "offset": -0.1}, {}, {"offset": -1000.0}),
        ({"scale": 0.0001, "offset": -0.1}, {"earthsearch:boa_offset_applied": True}, {}),
        ({"scale": 0.0001, "offset": -0.1}, {"s2:processing_baseline": "02.14"}, {}),
        (
            {"scale": 2.75e-05, "offset": -0.2},
            {"s2:processing_baseline": None},
            {"scale": 0.275, "offset": -2000.0},
        ),
        ({}, {"s2:processing_baseline": None}, {}),
        ({}, {"earthsearch:boa_offset_applied": True}, {}),
    ],
)
def test_scale_and_offset_that_a_catalogue_states(
    server: StacServer, said: dict[str, float], properties: dict[str, Any], expected: dict[str, float]
) -> None:
    item = server.items[0]
    item["properties"] |= properties
    for key in BANDS:
        item["assets"][key]["raster:bands"] = [{"nodata": 0, **said}]
    scene = yaml.safe_load(search(wanted(server, dates="2021-01-01/2021-12-31")))["scenes"]["S2A_one"]
    assert {key: scene[key] for key in ("scale", "offset") if key in scene} == expected


def test_the_server_is_asked_for_no_more_than_is_wanted(server: StacServer) -> None:
    search(wanted(server))
    asked = server.searches[0]
    assert asked["collections"] == ["sentinel-2-l2a"]
    assert asked["bbox"] == [13.2, 52.2, 13.3, 52.3]
    assert asked["query"] == {"eo:cloud_cover": {"lte": 20.0}}
    assert len(server.searches) == 2  # three scenes, two a page


def test_a_server_that_knows_no_clouds_gets_the_same_answer(server: StacServer) -> None:
    expected = yaml.safe_load(search(wanted(server)))
    server.knows_query = False
    assert yaml.safe_load(search(wanted(server))) == expected
    assert "query" not in server.searches[-1]


def test_the_least_cloudy_are_taken_and_the_oldest_comes_first(server: StacServer) -> None:
    found = yaml.safe_load(search(wanted(server, limit=2, cloud=None)))
    assert list(found["scenes"]) == ["S2A_one", "S2B_two"]


def test_a_scene_that_tells_no_clouds_comes_last_and_not_among_those_with_few(
    server: StacServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.knows_query = False
    for item in server.items:
        if item["id"] == "S2A_one":
            del item["properties"]["eo:cloud_cover"]
    assert list(yaml.safe_load(search(wanted(server)))["scenes"]) == ["S2B_two", "S2A_four"]
    assert "1 of 4 scenes do not say how cloudy they are" in caplog.text
    assert "S2A_one" not in yaml.safe_load(search(wanted(server, limit=2, cloud=None)))["scenes"]


def test_an_area_from_a_file_in_another_crs(server: StacServer, tmp_path: Path) -> None:
    shape = geopandas.GeoSeries([box(20.4, 52.4, 20.6, 52.6)], crs="EPSG:4326").to_crs("EPSG:3035")
    shape.to_file(tmp_path / "area.gpkg")
    found = yaml.safe_load(search(wanted(server, area=str(tmp_path / "area.gpkg"))))
    assert list(found["scenes"]) == ["S2A_elsewhere"]
    assert server.searches[0]["intersects"]["type"] == "Polygon"


def test_clouds_are_masked_by_an_asset(server: StacServer) -> None:
    found = yaml.safe_load(search(wanted(server, mask="scl", limit=1)))
    (scene,) = found["scenes"].values()
    assert scene["mask"] == {"band": "S2B_two/SCL.tif", "values": [0, 1, 3, 8, 9, 10]}
    assert [source["name"] for source in found["sources"]][-1] == "S2B_two/SCL.tif"
    assert found["sources"][-1]["unverified"] is True


def test_other_addresses_of_a_file_are_its_mirrors(server: StacServer) -> None:
    server.items[0]["assets"]["blue"]["alternate"] = {"s3": {"href": "s3://bucket/B02.tif"}}
    found = yaml.safe_load(search(wanted(server, dates="2021-01-01/2021-12-31")))
    assert found["sources"][0]["mirrors"] == ["s3://bucket/B02.tif"]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"api": "earthsearch"}, ["--api earthsearch", "planetary-computer"]),
        ({"api": "http://127.0.0.1:9/"}, ["http://127.0.0.1:9/: the catalogue answered"]),
        ({"collection": "gone"}, ["it has no collection gone", "/collections"]),
        ({"area": "13,52,14"}, ["--area 13,52,14", "west,south,east,north"]),
        ({"area": "14,52,13,53"}, ["west and south first"]),
        ({"area": "gone.gpkg"}, ["--area gone.gpkg: cannot be read"]),
        ({"area": "100,10,101,11"}, ["there is no scene of sentinel-2-l2a in 100,10,101,11", "20 % of cloud", "Widen"]),
        ({"bands": ["swir"]}, ["band swir of the scene", "there are blue, blue-jp2, red"]),
        ({"bands": ["B02", "B02"]}, ["a name stands there twice"]),
        ({"mask": "visual"}, ["--mask visual", "scl"]),
    ],
)
def test_a_mistake_is_named(
    server: StacServer, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], parts: list[str]
) -> None:
    monkeypatch.setattr("urllib3.util.Retry.sleep", lambda *_: None)
    with pytest.raises(UserError) as caught:
        search(wanted(server, **changes))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_without_the_library_its_extra_is_named(server: StacServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pystac_client.exceptions", None)
    with pytest.raises(UserError, match=r"pip install 'landbalance\[stac\]'"):
        search(wanted(server))


def test_the_command_of_the_documentation(server: StacServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    (block,) = re.findall(r"```bash\n(landbalance search .*?)```", text, re.DOTALL)
    monkeypatch.setitem(sys.modules["landbalance.search"].CATALOGUES, "earth-search", server.root)
    monkeypatch.chdir(tmp_path)
    for item in server.items:
        item["properties"]["datetime"] = item["properties"]["datetime"].replace("2022", "2023")
        item["assets"] |= {"green": item["assets"]["red"], "nir": item["assets"]["red"]}
    assert cli.main(shlex.split(block.replace("\\\n", " "))[1:]) == 0
    assert list(yaml.safe_load(Path("found.yaml").read_text())["scenes"]) == ["S2B_two", "S2A_four"]


def test_what_is_printed_can_be_fetched(server: StacServer, tmp_path: Path) -> None:
    out = tmp_path / "found.yaml"
    command = ["search", "--api", server.root, "--collection", "sentinel-2-l2a", "--area", "13.2,52.2,13.3,52.3"]
    command += ["--dates", "2021-01-01/2022-12-31", "--bands", "blue", "red", "--cloud", "20", "--out", str(out)]
    assert cli.main(command) == 0
    assert re.match(r"# Found in http://127\.0\.0\.1:\d+ on \d{4}-\d\d-\d\d; ", out.read_text())
    found = yaml.safe_load(out.read_text())
    dataset = Dataset.model_validate(
        {
            **found, "task": "segmentation", "labels": {"path": "labels.gpkg", "field": "f"},
            "classes": [{"name": n, "colour": f"#00000{k}", "values": [k]} for k, n in enumerate(("Water", "Forest"))],
            "split": {"by": "block", "size": 128},
        }
    )  # fmt: skip
    download("d", dataset.sources, tmp_path / "d")
    for scene in dataset.scenes.values():
        for path in scene.bands.values():
            with rasterio.open(tmp_path / "d" / path) as file:
                assert file.read(1)[0, 0] == 1200


def test_addresses_are_signed_when_they_are_fetched(
    server: StacServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planetary_computer = pytest.importorskip("planetary_computer")
    signed: list[str] = []

    def sign(url: str) -> str:
        signed.append(url)
        return f"{url}?sig=secret"

    monkeypatch.setattr(planetary_computer, "sign_url", sign)
    url = f"{server.root}/files/S2A_one/B02.tif"
    source = {"url": url, "signing": "planetary-computer", "unverified": True, "licence": "none"}
    sources = [fetch_module.Source.model_validate(source)]
    download("d", sources, tmp_path / "d")
    assert set(signed) == {url}
    assert "secret" not in (tmp_path / "d" / "manifest.json").read_text()


def test_a_signer_that_fails_while_sizes_are_asked_stops_nothing(
    server: StacServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planetary_computer = pytest.importorskip("planetary_computer")
    answers: list[Exception] = [requests.ConnectionError("no way to the signer")]

    def sign(url: str) -> str:
        if answers:
            raise answers.pop()
        return url

    monkeypatch.setattr(planetary_computer, "sign_url", sign)
    url = f"{server.root}/files/S2A_one/B02.tif"
    source = {"url": url, "signing": "planetary-computer", "unverified": True, "licence": "none"}
    download("d", [fetch_module.Source.model_validate(source)], tmp_path / "d")
    assert answers == []
    assert (tmp_path / "d" / "B02.tif").is_file()


@pytest.mark.parametrize("named", [True, False])
def test_the_planetary_computers_files_are_marked_for_signing(
    server: StacServer, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setitem(sys.modules["landbalance.search"].CATALOGUES, "planetary-computer", server.root)
    api = "planetary-computer" if named else server.root
    address = "https://sentinel2l2a01.blob.core.windows.net/x/B02.tif"
    blue = server.items[0]["assets"]["blue"]
    blue |= {"href": f"{address}?st=2021&sig=old", "alternate": {"eu": {"href": f"{address}.eu?sig=old"}}}
    found = yaml.safe_load(search(wanted(server, api=api, dates="2021-01-01/2021-12-31")))
    source = found["sources"][0]
    assert (source["url"], source["mirrors"], source["signing"]) == (address, [f"{address}.eu"], "planetary-computer")
    assert "signing" not in found["sources"][1]


def test_another_catalogues_signature_is_left_out_but_only_that(server: StacServer) -> None:
    address = "https://account.blob.core.windows.net/x/B02.tif"
    blue = server.items[0]["assets"]["blue"]
    blue |= {"href": f"{address}?sig=old", "alternate": {"other": {"href": "https://example.org/B02.tif?download=1"}}}
    source = yaml.safe_load(search(wanted(server, dates="2021-01-01/2021-12-31")))["sources"][0]
    assert (source["url"], source["mirrors"]) == (address, ["https://example.org/B02.tif?download=1"])
    assert "signing" not in source
