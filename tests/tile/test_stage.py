"""Scenes are cut one by one: what has changed is cut again, what fails stops no other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pytest
import rasterio.shutil
import shapely
import yaml

from landbalance import cli
from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.files import digest
from landbalance.tile.files import file_states
from landbalance.tile.stage import run
from landbalance.tiles import open_tiles

Build = Callable[..., Any]


@pytest.fixture
def sources(tmp_path: Path, write_scene: Build) -> Path:
    """Write three scenes beside each other, a.tif, b.tif and c.tif, and labels."""
    rng, shapes = np.random.default_rng(0), []
    for number, name in enumerate("abc"):
        left, top = 500_000 + 1920 * number, 5_800_000
        write_scene(tmp_path / f"{name}.tif", rng.integers(1, 99, (64, 64)).astype(np.uint8), left=left)
        shapes += [shapely.box(left, top - 640, left + 320, top), shapely.box(left + 320, top - 640, left + 640, top)]
    frame = gpd.GeoDataFrame({"kind": ["lake", "wood"] * 3}, geometry=shapes, crs="EPSG:32633")
    frame.to_file(tmp_path / "labels.gpkg")
    return tmp_path


@pytest.fixture
def of(dataset: Build) -> Callable[..., Dataset]:
    """Return a function that gives a dataset of the scenes named."""

    def build(names: str, **changes: Any) -> Dataset:
        return dataset(scenes={name: {"bands": {"B1": f"{name}.tif"}} for name in names}, **changes)

    return build


def when(folder: Path) -> dict[str, int]:
    """Return when each scene was cut."""
    return {path.parent.name: path.stat().st_mtime_ns for path in sorted(folder.glob("store/scenes/*/images.npy"))}


def write_manifest(folder: Path) -> None:
    files = [
        {"path": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}
        for path in sorted(folder.iterdir())
        if path.suffix in (".tif", ".gpkg", ".xml")
    ]
    (folder / "manifest.json").write_text(json.dumps({"sources": [{"files": files}]}))


def test_a_scene_added_later_is_the_only_one_cut(sources: Path, of: Build) -> None:
    write_manifest(sources)
    run("d", of("ab"), sources, sources / "store")
    before = when(sources)
    write_manifest(sources)  # written anew by the download of the scene that is added
    run("d", of("ab"), sources, sources / "store", "a")
    run("d", of("abc"), sources, sources / "store", "c")
    assert not (sources / "store" / "statistics.json").exists()  # lest anyone reads c by the old index
    run("d", of("abc"), sources, sources / "store")
    after = when(sources)
    assert list(before) == ["a", "b"]
    assert {name: after[name] for name in before} == before
    assert open_tiles(sources / "store").info.tiles == 3 * 16


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({}, False),
        ({"split": {"by": "block", "size": 16, "seed": 7}}, False),
        ({"tiles": {"size": 16, "per_class": 2}}, False),
        ({"split": {"by": "block", "size": 32}}, True),
        ({"tiles": {"size": 16, "labelled": 0.5}}, True),
        ({"resampling": "nearest"}, True),
    ],
)
def test_scenes_are_cut_again_for_what_changes_their_tiles(
    sources: Path, of: Build, changes: dict[str, Any], cut: bool
) -> None:
    run("d", of("a"), sources, sources / "store")
    before = when(sources)
    run("d", of("a", **changes), sources, sources / "store")
    assert (when(sources) != before) is cut


@pytest.mark.parametrize("name", ["a.tif", "labels.gpkg", "a.tif.aux.xml"])
@pytest.mark.parametrize("noted", [True, False])
def test_scenes_are_cut_again_for_a_changed_file(sources: Path, of: Build, name: str, noted: bool) -> None:
    if noted:
        write_manifest(sources)
    run("d", of("ab"), sources, sources / "store")
    before = when(sources)
    path = sources / name
    if path.exists():
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        path.write_text("<PAMDataset/>")
    if noted:
        write_manifest(sources)
    run("d", of("ab"), sources, sources / "store")
    after = when(sources)
    assert after["a"] != before["a"]
    assert (after["b"] != before["b"]) is (name == "labels.gpkg")


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("spelled", ["./a.tif", "linked/a.tif", "mosaic.vrt", "nested.vrt"])
def test_a_changed_file_is_noticed_however_it_is_named(
    sources: Path, dataset: Build, spelled: str, noted: bool
) -> None:
    (sources / "linked").symlink_to(sources)
    if spelled.endswith(".vrt"):
        rasterio.shutil.copy(sources / "a.tif", sources / "mosaic.vrt", driver="VRT")
        text = (sources / "mosaic.vrt").read_text()
        assert ">a.tif<" in text
        (sources / "nested.vrt").write_text(text.replace(">a.tif<", ">mosaic.vrt<"))
    if noted:
        write_manifest(sources)
    one = dataset(scenes={"a": {"bands": {"B1": spelled}}})
    run("d", one, sources, sources / "store")
    before = when(sources)
    run("d", one, sources, sources / "store")
    assert when(sources) == before
    (sources / "a.tif").write_bytes((sources / "a.tif").read_bytes() + b"\0")
    if noted:
        write_manifest(sources)
    run("d", one, sources, sources / "store")
    assert when(sources) != before


def test_a_changed_product_is_noticed(sources: Path, dataset: Build) -> None:
    product = sources / "X.SAFE"
    (product / "IMG").mkdir(parents=True)
    band = product / "IMG" / "B02.jp2"
    band.write_bytes(b"one")
    settings = dataset(scenes={"a": {"product": "X.SAFE/", "bands": ["B02"]}})
    one = file_states(settings, sources, "a")
    band.write_bytes(b"other")
    assert file_states(settings, sources, "a") != one
    record = {"path": "X.SAFE/IMG/B02.jp2", "bytes": 5, "sha256": digest(band)}
    (sources / "manifest.json").write_text(json.dumps({"sources": [{"files": [record]}]}))
    assert list(record.values()) in file_states(settings, sources, "a")


def test_a_scene_that_fails_stops_no_other(sources: Path, of: Build) -> None:
    data = (sources / "b.tif").read_bytes()
    (sources / "b.tif").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"(?s)1 of 3 scenes could not be cut, the others are:\n  b: .*b\.tif: cannot"):
        run("d", of("abc"), sources, sources / "store")
    assert list(when(sources)) == ["a", "c"]
    with pytest.raises(UserError, match=r"b\.tif: cannot be read"):
        run("d", of("abc"), sources, sources / "store", "b")
    before = when(sources)
    (sources / "b.tif").write_bytes(data)
    run("d", of("abc"), sources, sources / "store")
    after = when(sources)
    assert {name: after[name] for name in before} == before
    assert list(after) == ["a", "b", "c"]


def test_what_a_killed_job_left_is_removed(sources: Path, of: Build) -> None:
    scenes = sources / "store" / "scenes"
    for name in (".a.17.part", ".a.b.17.part"):
        (scenes / name).mkdir(parents=True)
        (scenes / name / "images.npy").write_bytes(b"half")
    (sources / "store" / ".labels.npy.17.part").write_bytes(b"half")
    run("d", of("a"), sources, sources / "store")
    left = [path.relative_to(sources / "store").as_posix() for path in sources.rglob("*.part")]
    assert left == ["scenes/.a.b.17.part"]  # of a scene called a.b, which another job may be cutting


def test_a_scene_that_is_none(sources: Path, of: Build) -> None:
    with pytest.raises(UserError, match="d: has no scene x; allowed: a, b"):
        run("d", of("ab"), sources, sources / "store", "x")


def test_a_scene_without_labels_has_no_tiles(sources: Path, of: Build) -> None:
    frame = gpd.read_file(sources / "labels.gpkg")
    frame[:4].to_file(sources / "labels.gpkg")
    run("d", of("abc"), sources, sources / "store")
    store = open_tiles(sources / "store")
    assert [shard.count for shard in store.info.shards] == [16, 16, 0]
    assert len(store.read(np.arange(32))[0]) == 32


def test_the_commands_of_the_page(sources: Path, of: Build, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/data.md: cut one scene, then all and the splits, then look at them."""
    dataset = of("ab").model_dump(mode="json", exclude_unset=True)
    config = {
        "datasets": {"d": dataset},
        "models": {"m": {"architecture": "unet"}},
        "training": {"t": {"epochs": 1, "batch_size": 8}},
        "experiments": {"e": {"dataset": "d", "model": "m", "training": "t"}},
    }
    (sources / "config.yaml").write_text(yaml.safe_dump(config))
    results = sources / "results"
    (results / "download").mkdir(parents=True)
    (results / "download" / "d").symlink_to(sources)
    files = ["--config", str(sources / "config.yaml"), "--results", str(results)]
    store = results / "tile" / "d"
    assert cli.main(["tile", "d", "--scene", "b", *files]) == 0
    assert [path.name for path in store.iterdir()] == ["scenes"]
    assert sorted(path.name for path in (store / "scenes").iterdir()) == ["b", "b.json"]
    assert cli.main(["tile", "d", *files]) == 0
    assert open_tiles(store).info.tiles == 32
    assert cli.main(["tile", "d", "--preview", *files]) == 0
    assert capsys.readouterr().out == f"{store / 'preview.png'}\n"
    assert (store / "preview.png").read_bytes()[:4] == b"\x89PNG"
