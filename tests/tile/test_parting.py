"""C13: whatever the split goes by, no pixel is in two of them, and labels of different ones are apart."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
import shapely

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.tile.stage import run
from landbalance.tiles import SPLITS, TileStore, open_tiles

Build = Callable[..., Any]
SHARES = {"train": 0.5, "validation": 0.2, "test": 0.3}
SIDE = 160


@pytest.fixture
def place(tmp_path: Path, write_scene: Build, square: Build) -> Callable[..., Path]:
    """Return a function that writes scene.tif and labels.gpkg: a polygon in each field of a grid, few or many."""

    def write(step: int, seed: int = 0, **columns: Any) -> Path:
        rng = np.random.default_rng(seed)
        write_scene(tmp_path / "scene.tif", rng.integers(1, 200, (1, SIDE, SIDE)).astype(np.uint16))
        places = [(row, col) for row in range(0, SIDE, step) for col in range(0, SIDE, step)]
        shapes = [
            square(row + rng.integers(3), col + rng.integers(3), step - rng.integers(3, 8), step - rng.integers(3, 8))
            for row, col in places
        ]
        kinds = ["wood" if rng.random() < 0.3 else "lake" for _ in places]
        frame = gpd.GeoDataFrame({"kind": kinds}, geometry=shapes, crs="EPSG:32633")
        for name, values in columns.items():
            frame[name] = [values[number % len(values)] for number in range(len(frame))]
        frame.to_file(tmp_path / "labels.gpkg")
        return tmp_path

    return write


def tiled(folder: Path, dataset: Dataset, name: str = "store") -> tuple[TileStore, pd.DataFrame]:
    run("d", dataset, folder, folder / name)
    return open_tiles(folder / name), pd.read_parquet(folder / name / "index.parquet")


def pixels(store: TileStore, index: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return which pixels the tiles of each split cover, and which of them they have labels of."""
    labels = store.labels(np.arange(store.info.tiles))
    covered, known = np.zeros((2, 3, SIDE, SIDE), bool)
    for row in index.itertuples():
        number = SPLITS.index(row.split)
        part = (slice(row.row, row.row + row.height), slice(row.col, row.col + row.width))
        covered[number][part] = True
        known[number][part] |= labels[row.tile][: row.height, : row.width] != 255
    return covered, known


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("split", "tiles"),
    [
        ({"by": "block", "size": 24, "buffer": 5, **SHARES}, {"size": 16, "stride": 6}),
        ({"by": "polygon", "buffer": 3, **SHARES}, {"size": 8}),
        ({"by": "polygon", "buffer": 0, **SHARES}, {"size": 16, "stride": 12}),
        ({"by": "column", "column": "part", "buffer": 2}, {"size": 8, "stride": 5}),
    ],
    ids=lambda value: f"{value.get('by', '')}{value.get('stride', '')}",
)
def test_no_pixel_is_in_two_splits(
    place: Build, dataset: Build, split: dict[str, Any], tiles: dict[str, Any], seed: int
) -> None:
    folder = place(20, seed, part=["train", "train", "val", "test", "other"])
    store, index = tiled(folder, dataset(split={**split, "seed": seed}, tiles=tiles))
    covered, known = pixels(store, index)
    assert covered.sum(axis=0).max() == 1
    assert known.reshape(3, -1).any(axis=1).all()
    buffer = split["buffer"]
    for high in (1, 2):
        for row, col in np.argwhere(known[:high].any(axis=0)):
            around = known[high, max(row - buffer, 0) : row + buffer + 1, max(col - buffer, 0) : col + buffer + 1]
            assert not around.any()


def test_whole_polygons_stay_together_and_classes_are_in_every_split(place: Build, dataset: Build) -> None:
    folder = place(20)
    store, index = tiled(folder, dataset(split={"by": "polygon", **SHARES}, tiles={"size": 4}))
    _, known = pixels(store, index)
    shapes = gpd.read_file(folder / "labels.gpkg").geometry
    for shape in shapes:
        left, bottom, right, top = ((value - 500_000) / 10 for value in shape.bounds)
        rows = slice(round(580_000 - 50_000 - top), round(580_000 - 50_000 - bottom))
        inside = known[:, rows, round(left) : round(right)]
        assert inside.any(axis=(1, 2)).sum() <= 1
    assert all(min(counts) > 0 for counts in store.info.class_counts.values())
    total = np.sum(list(store.info.class_counts.values()))
    shares = [sum(store.info.class_counts[name]) / total for name in SPLITS]
    np.testing.assert_allclose(shares, [0.5, 0.2, 0.3], atol=0.08)


def test_polygons_are_listed_with_their_splits(place: Build, dataset: Build) -> None:
    folder = place(20, part=["train", "val", "test", None])
    tiled(folder, dataset(split={"by": "column", "column": "part"}, tiles={"size": 4}))
    listed = gpd.read_parquet(folder / "store" / "polygons.parquet")
    frame = pyogrio.read_dataframe(folder / "labels.gpkg", fid_as_index=True)
    wanted = frame[frame["part"].notna()]
    assert len(listed) == len(wanted) > 0
    assert listed.crs == "EPSG:4326"
    listed = listed.set_index("polygon").to_crs(frame.crs).loc[wanted.index]
    names = wanted["part"].replace({"val": "validation"})
    assert (listed["split"] == names).all()
    assert (listed.symmetric_difference(wanted.geometry).area < 1).all()
    tiled(folder, dataset(split={"by": "block", "size": 24, **SHARES}, tiles={"size": 4}))
    assert not (folder / "store" / "polygons.parquet").exists()


def test_splits_of_a_field_are_kept(place: Build, dataset: Build, caplog: pytest.LogCaptureFixture) -> None:
    folder = place(40, part=["learn", "judge", None, "learn"])
    split = {"by": "column", "column": "part", "train": ["learn"], "validation": [], "test": ["judge"]}
    with caplog.at_level(logging.INFO):
        store, index = tiled(folder, dataset(split=split, tiles={"size": 4}))
    assert set(index.split) == {"train", "test"}
    _, known = pixels(store, index)
    frame = gpd.read_file(folder / "labels.gpkg")
    for part, shape in zip(frame.part, frame.geometry, strict=True):
        middle = shape.centroid
        row, col = int((5_800_000 - middle.y) / 10), int((middle.x - 500_000) / 10)
        assert known[:, row, col].tolist() == [part == "learn", False, part == "judge"]
    assert "4 rows with (empty) are in no split" in caplog.text


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"column": "none"}, r"has no field none \(split.column\); there are: kind, part"),
        ({"column": "part"}, r"no value means a split. Found: a, b; known: train, validation, val, valid, test"),
        ({"column": "part", "file": "t.csv"}, r"t.csv: not found \(split.file\)"),
    ],
)
def test_a_column_that_tells_nothing(place: Build, dataset: Build, split: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiled(place(40, part=["a", "b"]), dataset(split={"by": "column", **split}))


def test_a_field_is_read_from_the_layer_of_the_labels(place: Build, dataset: Build) -> None:
    """Though a table without geometries comes first in the file."""
    folder = place(40, part=["train", "test"])
    frame = gpd.read_file(folder / "labels.gpkg")
    path, notes = folder / "labels.gdb", pd.DataFrame({"part": ["test"] * 40})
    pyogrio.write_dataframe(notes, path, layer="notes", driver="OpenFileGDB")
    pyogrio.write_dataframe(frame, path, layer="areas", driver="OpenFileGDB", geometry_type="MultiPolygon", append=True)
    assert pyogrio.list_layers(path)[:, 0].tolist() == ["notes", "areas"]
    labels = {"path": "labels.gdb", "field": "kind"}
    _, index = tiled(folder, dataset(labels=labels, split={"by": "column", "column": "part"}, tiles={"size": 4}))
    assert set(index.split) == {"train", "test"}


def test_unlabelled_pixels_are_of_no_other_split(
    tmp_path: Path, dataset: Build, write_scene: Build, square: Build
) -> None:
    """A tile of classification may have some; one with a label of another split, or of none, is left out."""
    write_scene(tmp_path / "scene.tif", np.ones((8, 48), np.uint8))
    shapes = [square(0, 8 * number, 6, 8) for number in range(6)]
    parts = ["train", "val", "test", "train", "train", "other"]
    shapes[3] = square(0, 24, 6, 5)
    shapes.append(square(0, 29, 6, 2))  # shares the fourth tile, in no split
    frame = gpd.GeoDataFrame(
        {"kind": "lake", "part": [*parts, "other"]}, geometry=shapes, crs="EPSG:32633"
    )  # fmt: skip
    frame.to_file(tmp_path / "labels.gpkg")
    split = {"by": "column", "column": "part", "buffer": 0}
    _, index = tiled(tmp_path, dataset(task="classification", split=split, tiles={"size": 8}))
    assert dict(zip(index.col, index.split, strict=True)) == {0: "train", 8: "validation", 16: "test", 32: "train"}


@pytest.fixture
def scenes(tmp_path: Path, write_scene: Build) -> dict[str, Any]:
    """Write six scenes of one kind of ground and one of another, two of them on the same ground; return settings."""
    rng, shapes, kinds = np.random.default_rng(0), [], []
    settings: dict[str, Any] = {}
    for number in range(7):
        left, top = 500_000 + 1000 * max(number, 1), 5_800_000 + 15 * (number == 0)
        write_scene(tmp_path / f"{number}.tif", rng.integers(1, 99, (32, 32)).astype(np.uint8), left=left, top=top)
        settings[f"s{number}"] = {"bands": {"B1": f"{number}.tif"}}
        for kind, start in (("lake", 0), ("wood", 160)):
            shapes.append(shapely.box(left + start, top - 320, left + start + 160, top))
            kinds.append(kind)
    gpd.GeoDataFrame({"kind": kinds}, geometry=shapes, crs="EPSG:32633").to_file(tmp_path / "labels.gpkg")
    return settings


def test_scenes_on_the_same_ground_are_in_one_split(tmp_path: Path, dataset: Build, scenes: dict[str, Any]) -> None:
    """Though their pixels do not line up."""
    for seed in range(3):
        store, index = tiled(tmp_path, dataset(scenes=scenes, split={"by": "scene", "seed": seed, **SHARES}))
        of_scene = index.groupby("scene").split.unique()
        assert all(len(splits) == 1 for splits in of_scene)
        assert of_scene["s0"] == of_scene["s1"]
        assert set(index.split) == set(SPLITS)
        assert all(min(counts) > 0 for counts in store.info.class_counts.values())


def test_scenes_of_a_table(
    tmp_path: Path, dataset: Build, scenes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    parts = ["test", "train", "train", "valid", "none", "test", "train"]
    pd.DataFrame({"scene": list(scenes), "part": parts}).to_csv(tmp_path / "t.csv", index=False)
    split = {"by": "column", "column": "part", "file": "t.csv"}
    _, index = tiled(tmp_path, dataset(scenes=scenes, split=split))
    found = index.groupby("scene").split.first().to_dict()
    assert found == {"s0": "test", "s1": "train", "s2": "train", "s3": "validation", "s5": "test", "s6": "train"}
    assert "s0 (test) and s1 (train) share ground: the split leaks" in caplog.text
    pd.DataFrame({"scene": list(scenes)[1:], "part": parts[1:]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"t\.parquet: has no row for the scene s0"):
        tiled(tmp_path, dataset(scenes=scenes, split={**split, "file": "t.parquet"}))


@pytest.mark.parametrize(("options", "most"), [({"per_class": 9}, 9), ({"balance": True}, None)])
def test_training_tiles_are_drawn_by_class(
    place: Build, dataset: Build, options: dict[str, Any], most: int | None
) -> None:
    folder, split = place(20), {"by": "block", "size": 32, **SHARES}
    _, every = tiled(folder, dataset(split=split, tiles={"size": 8}))
    store, index = tiled(folder, dataset(split=split, tiles={"size": 8, **options}))
    before, after = (frame[frame.split == "train"].label.value_counts() for frame in (every, index))
    wanted = before.min() if most is None else most
    assert before.max() > wanted
    assert after.to_dict() == {0: wanted, 1: wanted}
    rest = ["row", "col", "label", "split"]
    assert (
        every[every.split != "train"][rest].reset_index(drop=True)
        .equals(index[index.split != "train"][rest].reset_index(drop=True))
    )  # fmt: skip
    images, labels = store.read(store.ids("train"))
    np.testing.assert_allclose(store.info.normalisation.mean, [images.mean()], rtol=1e-12)
    assert sum(store.info.class_counts["train"]) == (labels != 255).sum()
