"""Scenes and polygons into a store, against arrays whose right tiles are known."""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pytest

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.tile.stage import run
from landbalance.tiles import TileStore, open_tiles

Build = Callable[..., Any]
ALL_TRAIN = {"by": "block", "size": 16, "train": 1.0, "validation": 0.0, "test": 0.0}


def random_scene(height: int, width: int, dtype: str = "uint16", bands: int = 1) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 200, (bands, height, width)).astype(dtype)


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a store, but for what a scene's job notes for itself."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in ("cut.json", "s.json")]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def tiled(tmp_path: Path, dataset: Dataset, name: str = "store") -> tuple[TileStore, gpd.GeoDataFrame]:
    run("d", dataset, tmp_path, tmp_path / name)
    return open_tiles(tmp_path / name), gpd.read_parquet(tmp_path / name / "index.parquet")


def put_together(store: TileStore, index: gpd.GeoDataFrame, height: int, width: int) -> tuple[np.ndarray, ...]:
    """Return image, labels and number of tiles of each pixel of scene `s`, from the tiles; padding is checked."""
    images, labels = store.read(np.arange(store.info.tiles))
    image = np.zeros((len(store.info.bands), height, width), images.dtype)
    label, times = np.full((height, width), 255, np.uint8), np.zeros((height, width), int)
    for row in index[index.scene == "s"].itertuples():
        part = (slice(row.row, row.row + row.height), slice(row.col, row.col + row.width))
        image[:, *part] = images[row.tile][:, : row.height, : row.width]
        known = labels[row.tile][: row.height, : row.width]
        label[part] = np.where(known != 255, known, label[part])
        times[part] += 1
        assert not images[row.tile][:, row.height :].any()
        assert not images[row.tile][:, :, row.width :].any()
        assert (labels[row.tile][row.height :] == 255).all()
        assert (labels[row.tile][:, row.width :] == 255).all()
    return image, label, times


@pytest.mark.parametrize(("height", "width", "size", "stride", "block"), [
    (600, 600, 512, 256, 1024), (67, 56, 128, None, 128), (70, 100, 16, None, 40), (70, 100, 16, 5, 16),
])  # fmt: skip
def test_every_pixel_is_in_a_tile(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build,
    height: int, width: int, size: int, stride: int | None, block: int,
) -> None:  # fmt: skip
    """C01, C02, C29: whole windows that cover everything, one padded tile for a small scene."""
    scene = random_scene(height, width)
    write_scene(tmp_path / "scene.tif", scene)
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, height, width)), ("wood", square(3, 3, 9, 9))])
    store, index = tiled(
        tmp_path, dataset(tiles={"size": size, "stride": stride}, split=ALL_TRAIN | {"size": max(block, size)})
    )
    image, label, times = put_together(store, index, height, width)
    assert times.min() >= 1
    assert np.array_equal(image, scene)
    assert np.count_nonzero(label == 1) == 81
    assert np.count_nonzero(label == 0) == height * width - 81
    assert index[["row", "col", "height", "width"]].dtypes.eq("int64").all()
    if (height, width) == (67, 56):
        assert store.info.tiles == 1
        assert store.info.class_counts["train"] == [67 * 56 - 81, 81]


def test_no_pixel_stands_in_two_splits(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    """C13: overlapping tiles, a buffer; shares as configured; test pixels are judged once."""
    height, width, buffer = 200, 240, 3
    write_scene(tmp_path / "scene.tif", random_scene(height, width))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, height, 120)), ("wood", square(0, 120, height, 120))])
    split = {"by": "block", "size": 24, "buffer": buffer, "train": 0.5, "validation": 0.2, "test": 0.3}
    store, index = tiled(tmp_path, dataset(tiles={"size": 16, "stride": 4}, split=split))
    _, labels = store.read(np.arange(store.info.tiles))
    seen = np.zeros((3, height, width), int)
    pixels = np.zeros((3, height, width), bool)
    for row in index.itertuples():
        number = ["train", "validation", "test"].index(row.split)
        part = (slice(row.row, row.row + row.height), slice(row.col, row.col + row.width))
        pixels[number][part] = True
        seen[number][part] += labels[row.tile][: row.height, : row.width] != 255
    assert pixels.sum(axis=0).max() == 1
    assert seen[1:].max() == 1
    assert seen[0].max() > 1
    for high, low in ((2, 1), (2, 0), (1, 0)):
        for row, col in np.argwhere(seen[low]):
            around = seen[high, max(row - buffer, 0) : row + buffer + 1, max(col - buffer, 0) : col + buffer + 1]
            assert not around.any()
    assert np.array_equal(seen[2] > 0, pixels[2])  # test keeps all its labels
    share = pixels.sum(axis=(1, 2)) / (height * width)
    np.testing.assert_allclose(share, [0.5, 0.2, 0.3], atol=0.04)
    counts = store.info.class_counts
    for number, name in enumerate(("train", "validation", "test")):  # each pixel once, also in train
        known = seen[number] > 0
        assert counts[name] == [int(known[:, :120].sum()), int(known[:, 120:].sum())]


@pytest.mark.parametrize(
    ("dtype", "missing", "tagged"), [("uint16", 0, True), ("float32", np.nan, True), ("int16", -1, False)]
)
def test_nodata_has_no_labels_and_counts_nowhere(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build,
    dtype: str, missing: float, tagged: bool,
) -> None:  # fmt: skip
    """C04, C10: a block of nodata gives no tile, statistics leave it out."""
    scene = random_scene(48, 48, dtype, bands=2)
    holed = scene.copy()
    holed[0, :16, :16] = missing  # a whole tile, in one band
    holed[1, 20:24, 30:40] = missing
    gone = np.zeros((48, 48), bool)
    gone[:16, :16] = gone[20:24, 30:40] = True
    write_scene(tmp_path / "scene.tif", holed, nodata=missing if tagged else None)
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 48, 30)), ("wood", square(0, 30, 48, 18))])
    scenes = {"s": {"bands": {"B1": "scene.tif:1", "B2": "scene.tif:2"}, "nodata": None if tagged else float(missing)}}
    store, index = tiled(tmp_path, dataset(scenes=scenes, split=ALL_TRAIN))
    image, label, times = put_together(store, index, 48, 48)
    assert store.info.tiles == 8
    assert not times[:16, :16].any()
    assert np.array_equal(image, np.where(gone, 0, scene))
    assert np.array_equal(label == 255, gone)
    valid = scene[:, ~gone].astype(float)
    np.testing.assert_allclose(store.info.normalisation.mean, valid.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(store.info.normalisation.std, valid.std(axis=1), rtol=1e-12)
    np.testing.assert_allclose(store.info.percentiles["98"], np.percentile(valid, 98, axis=1))
    assert store.info.normalisation.missing == 0
    assert store.info.nodata_share == pytest.approx(gone.mean())


def test_statistics_see_the_train_split_only(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    scene = random_scene(96, 96)
    write_scene(tmp_path / "scene.tif", scene)
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 96, 48)), ("wood", square(0, 48, 96, 48))])
    store, index = tiled(tmp_path, dataset())
    images, labels = store.read(store.ids("train"))
    np.testing.assert_allclose(store.info.normalisation.mean, [images.mean()], rtol=1e-12)
    np.testing.assert_allclose(store.info.normalisation.std, [images.std()], rtol=1e-12)
    assert store.info.class_counts["train"] == np.bincount(labels.ravel(), minlength=256)[:2].tolist()
    assert index.labelled.tolist() == [(label != 255).sum() for label in store.read(np.arange(len(index)))[1]]


def test_footprints_lie_where_the_tiles_lie(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(40, 56))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 40, 56)), ("wood", square(0, 0, 5, 5))])
    _, index = tiled(tmp_path, dataset(split=ALL_TRAIN))
    assert index.crs.to_epsg() == 4326
    back = index.geometry.to_crs("EPSG:32633")
    for row, geometry in zip(index.itertuples(), back, strict=True):
        wanted = square(row.row, row.col, row.height, row.width)
        assert geometry.symmetric_difference(wanted).area < 1e-3
    assert index.tile.tolist() == list(range(len(index)))
    assert set(index.columns) == {
        "tile", "scene", "row", "col", "height", "width", "block", "split", "label", "labelled", "frame", "frame_row",
        "frame_col", "geometry",
    }  # fmt: skip
    assert index.label[0] == 0


def test_classification_takes_the_majority(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(32, 64))
    write_labels(tmp_path / "labels.gpkg", [
        ("lake", square(0, 0, 16, 16)), ("wood", square(0, 0, 16, 7)), ("wood", square(0, 16, 16, 8)),
        ("wood", square(16, 32, 16, 16)), ("lake", square(0, 48, 7, 16)),
    ])  # fmt: skip
    tiles = {"size": 16, "labelled": 0.5}
    store, index = tiled(tmp_path, dataset(task="classification", tiles=tiles, split=ALL_TRAIN))
    assert list(zip(index.row, index.col, index.label, strict=True)) == [(0, 0, 0), (0, 16, 1), (16, 32, 1)]
    images, labels = store.read(np.arange(3))
    assert labels.tolist() == [0, 1, 1]
    assert images.shape == (3, 1, 16, 16)
    assert store.info.class_counts["train"] == [1, 2]
    assert store.info.task == "classification"


def test_classification_drops_tiles_inside_the_buffer(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(192, 192))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 192, 96)), ("wood", square(0, 96, 192, 96))])
    split = {"by": "block", "size": 48, "buffer": 2, "train": 0.5, "validation": 0.25, "test": 0.25}
    store, index = tiled(tmp_path, dataset(task="classification", split=split))
    rank = {"train": 0, "validation": 1, "test": 2}
    for one in index.itertuples():
        for other in index.itertuples():
            if rank[one.split] < rank[other.split]:
                down = max(one.row, other.row) - min(one.row, other.row) - 16
                across = max(one.col, other.col) - min(one.col, other.col) - 16
                assert max(down, across) >= 2
    assert (index.split == "test").sum() == 4 * 9
    assert sum(map(sum, store.info.class_counts.values())) == len(index) < 144


def test_a_least_share_of_labels(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(16, 64))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 4, 16)), ("wood", square(0, 16, 3, 16))])
    for share, columns in ((0.0, [0, 16]), (0.25, [0])):
        _, index = tiled(tmp_path, dataset(tiles={"size": 16, "labelled": share}, split=ALL_TRAIN), f"s{share}")
        assert index.col.tolist() == columns


def test_two_dates_of_a_scene_share_their_split(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(96, 96))
    write_scene(tmp_path / "later.tif", random_scene(96, 96) + 1)
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 96, 48)), ("wood", square(0, 48, 96, 48))])
    scenes = {"s": {"bands": {"B1": "scene.tif"}}, "later": {"bands": {"B1": "later.tif"}}}
    store, index = tiled(tmp_path, dataset(scenes=scenes))
    one, other = (index[index.scene == name].set_index(["row", "col"]) for name in ("s", "later"))
    assert len(one) == len(other) == 36
    assert one.split.equals(other.split)
    assert one.block.equals(other.block)
    first, second = store.read(one.tile.to_numpy())[0], store.read(other.tile.to_numpy())[0]
    assert np.array_equal(first + 1, second)


def test_the_same_input_gives_the_same_bytes(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(96, 96))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 96, 48)), ("wood", square(0, 48, 96, 48))])
    tiled(tmp_path, dataset(), "one")
    tiled(tmp_path, dataset(), "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert set(digests(tmp_path / "one")) == {
        "index.parquet", "labels.npy", "scenes/s/counts.npy", "scenes/s/images.npy", "scenes/s/labels.npy",
        "scenes/s/moments.npy", "scenes/s/tiles.parquet", "statistics.json", "tiles.npy",
    }  # fmt: skip
    json.loads((tmp_path / "one" / "statistics.json").read_text(), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize("workers", [1, 3])
def test_pieces_and_threads_change_nothing(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build,
    monkeypatch: pytest.MonkeyPatch, workers: int,
) -> None:  # fmt: skip
    scene = random_scene(80, 80)
    write_scene(tmp_path / "scene.tif", scene)
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 80, 40)), ("wood", square(0, 40, 80, 40))])
    _, whole = tiled(tmp_path, dataset(split=ALL_TRAIN), "whole")
    monkeypatch.setattr("landbalance.tile.cut._PIECE_SIDE", 32)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(workers))
    store, index = tiled(tmp_path, dataset(split=ALL_TRAIN), "pieces")
    assert index.equals(whole)
    assert np.array_equal(put_together(store, index, 80, 80)[0], scene)


def test_a_failed_run_leaves_the_older_store(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(96, 96))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 96, 48)), ("wood", square(0, 48, 96, 48))])
    tiled(tmp_path, dataset())
    before = digests(tmp_path / "store")
    data = (tmp_path / "scene.tif").read_bytes()
    (tmp_path / "scene.tif").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"scene\.tif: cannot be read \(band B1\)"):
        tiled(tmp_path, dataset())
    assert digests(tmp_path / "store") == before
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_a_full_disk_is_said_so(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write_scene(tmp_path / "scene.tif", random_scene(16, 16))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 16, 8)), ("wood", square(0, 8, 16, 8))])

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("landbalance.tile.write.GrowingArray.append", full)
    with pytest.raises(UserError, match="s: cannot be written: No space left on device"):
        tiled(tmp_path, dataset(split=ALL_TRAIN))
    assert list((tmp_path / "store" / "scenes").iterdir()) == []


def test_a_class_that_a_split_lacks_is_named(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    write_scene(tmp_path / "scene.tif", random_scene(96, 96))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 96, 96)), ("wood", square(4, 4, 3, 3))])
    with caplog.at_level(logging.INFO):
        tiled(tmp_path, dataset())
    lacking = [text for text in caplog.messages if text.startswith("class Forest has no labelled pixels in the ")]
    assert len(lacking) == 2
    assert "labelled pixels of all classes: train" in caplog.text


def test_too_few_blocks_for_the_splits(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(16, 32))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 16, 16)), ("wood", square(0, 16, 16, 16))])
    with pytest.raises(UserError, match=r"the labels lie in 2 .* but 3 splits"):
        tiled(tmp_path, dataset())


def test_labels_that_reach_no_pixel(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    write_scene(tmp_path / "scene.tif", random_scene(16, 32))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 0.1, 0.1)), ("wood", square(5, 5, 0.1, 0.1))])
    with pytest.raises(UserError, match="no tile has enough labelled pixels"):
        tiled(tmp_path, dataset())


def test_scenes_of_different_pixels_want_a_resolution(
    tmp_path: Path, dataset: Build, write_scene: Build, write_labels: Build, square: Build
) -> None:
    from rasterio.transform import from_origin

    write_scene(tmp_path / "scene.tif", random_scene(32, 32))
    write_scene(tmp_path / "coarse.tif", random_scene(16, 16), transform=from_origin(600_000, 5_800_000, 20, 20))
    write_labels(tmp_path / "labels.gpkg", [("lake", square(0, 0, 16, 16)), ("wood", square(0, 16, 16, 16))])
    scenes = {"s": {"bands": {"B1": "scene.tif"}}, "t": {"bands": {"B1": "coarse.tif"}}}
    with pytest.raises(UserError, match=r"s 10, t 20.*Set the dataset's `resolution`"):
        tiled(tmp_path, dataset(scenes=scenes, split=ALL_TRAIN))
    store, _ = tiled(tmp_path, dataset(scenes=scenes, split=ALL_TRAIN, resolution=20.0, tiles={"size": 8}))
    assert store.info.resolution == 20
