"""Folders of images into a store."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rasterio
from PIL import Image

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.tile.stage import run
from landbalance.tiles import open_tiles

WriteImages = Callable[..., dict[str, Any]]


def folders_dataset(**changes: Any) -> Dataset:
    return Dataset.model_validate(
        {
            "task": "classification",
            "sources": [{"path": "x", "licence": "MIT"}],
            "folders": {"path": "2750", "bands": ["red", "green", "blue"]},
            "classes": [
                {"name": "Water", "colour": "#0000ff", "values": ["River", "SeaLake"]},
                {"name": "Forest", "colour": "#00ff00", "values": ["Forest"]},
            ],
            "split": {"by": "sample", "train": 0.6, "validation": 0.2, "test": 0.2},
        }
        | changes
    )


def message_of(tmp_path: Path, dataset: Dataset) -> str:
    with pytest.raises(UserError) as error:
        run("e", dataset, tmp_path, tmp_path / "none")
    return str(error.value)


def message(tmp_path: Path, dataset: Dataset) -> str:
    with pytest.raises(UserError) as error:
        run("e", dataset, tmp_path, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    return str(error.value)


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg"])
def test_images_and_classes_arrive(
    tmp_path: Path, write_images: WriteImages, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    written = write_images(tmp_path / "2750", {"Forest": 10, "River": 5, "SeaLake": 5, "Urban": 3}, suffix=suffix)
    (tmp_path / "2750" / "Forest" / "notes.txt").write_text("x")
    with caplog.at_level(logging.INFO):
        run("e", folders_dataset(), tmp_path, tmp_path / "store")
    store, index = open_tiles(tmp_path / "store"), pd.read_parquet(tmp_path / "store" / "index.parquet")
    images, labels = store.read(np.arange(store.info.tiles))
    assert store.info.tiles == len(index) == 20
    assert labels.tolist() == [1] * 10 + [0] * 10
    assert index.label.tolist() == labels.tolist()
    assert "geometry" not in index
    for image, source in zip(images, index.source, strict=True):
        difference = np.abs(image.astype(int) - written[source])
        # JPEG loses something; random noise in another image's place would differ by 85 on average.
        assert difference.mean() < (60 if suffix == "jpg" else 1e-9), source
    for split, size in (("train", 6), ("validation", 2), ("test", 2)):
        assert store.info.class_counts[split] == [size, size]
    train = store.read(store.ids("train"))[0].astype(float)
    np.testing.assert_allclose(store.info.normalisation.mean, train.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(store.info.normalisation.std, train.std(axis=(0, 2, 3)), rtol=1e-12)
    assert store.info.normalisation.missing is None
    assert store.info.resolution is None
    assert "values in no class are left out: Urban (3)" in caplog.text
    assert "files left out, by suffix: {'.txt': 1}" in caplog.text


def test_the_split_follows_the_seed(tmp_path: Path, write_images: WriteImages) -> None:
    write_images(tmp_path / "2750", {"Forest": 12, "River": 12})
    splits = []
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        split = {"by": "sample", "train": 0.6, "validation": 0.2, "test": 0.2, "seed": seed}
        run("e", folders_dataset(split=split), tmp_path, tmp_path / name)
        splits.append(pd.read_parquet(tmp_path / name / "index.parquet").split.tolist())
    assert splits[0] == splits[1] != splits[2]
    for file in ("images.npy", "labels.npy", "tiles.npy", "index.parquet", "statistics.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_bands_of_a_tiff_keep_their_type(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("Forest", "River"):
        (tmp_path / "2750" / kind).mkdir(parents=True)
        for number in range(4):
            values = rng.integers(0, 10_000, (13, 8, 8)).astype(np.uint16)
            path = tmp_path / "2750" / kind / f"{number}.tif"
            with rasterio.open(path, "w", driver="GTiff", count=13, height=8, width=8, dtype="uint16") as file:
                file.write(values)
    bands = [f"B{number:02d}" for number in range(1, 14)]
    dataset = folders_dataset(
        folders={"path": "2750", "bands": bands},
        split={"by": "sample", "train": 0.5, "validation": 0.25, "test": 0.25},
    )
    run("e", dataset, tmp_path, tmp_path / "store")
    images, _ = open_tiles(tmp_path / "store").read(np.arange(8))
    assert images.dtype == np.uint16
    assert np.array_equal(images[7], values)


def test_an_image_of_another_size_is_named(tmp_path: Path, write_images: WriteImages) -> None:
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5})
    Image.fromarray(np.zeros((8, 9, 3), np.uint8)).save(tmp_path / "2750" / "River" / "wide.png")
    text = message(tmp_path, folders_dataset())
    assert "wide.png: 9 × 8 pixels" in text
    assert "8 × 8" in text


def test_an_image_of_other_bands_is_named(tmp_path: Path, write_images: WriteImages) -> None:
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5})
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "2750" / "River" / "grey.png")
    assert "grey.png: has 1 bands; folders.bands names 3" in message(tmp_path, folders_dataset())


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg"])
@pytest.mark.parametrize("keep", [0.9, 0.5, 0.0])
def test_a_truncated_image_is_named(tmp_path: Path, write_images: WriteImages, suffix: str, keep: float) -> None:
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5}, size=64, suffix=suffix)
    path = tmp_path / "2750" / "River" / f"River_3.{suffix}"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert f"River_3.{suffix}: cannot be read" in message(tmp_path, folders_dataset())


def test_damage_inside_a_jpeg_is_noticed(tmp_path: Path, write_images: WriteImages) -> None:
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5}, size=64, suffix="jpg")
    path = tmp_path / "2750" / "River" / "River_3.jpg"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2] = b"\xff\xd0"  # a marker where none may be
    path.write_bytes(data)
    assert "River_3.jpg: cannot be read" in message(tmp_path, folders_dataset())


def test_a_name_that_is_no_utf_8_is_shown(tmp_path: Path, write_images: WriteImages) -> None:
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5})
    path = tmp_path / "2750" / "River" / "River_3.png"
    path.rename(path.with_name(os.fsdecode(b"River_\xfc.png")))
    assert r"River_\xfc.png: its name is no UTF-8" in message(tmp_path, folders_dataset())


def test_published_splits_and_classes_in_balance(tmp_path: Path, write_images: WriteImages) -> None:
    """A table names images by path, by name or without suffix; what it does not name is left out."""
    write_images(tmp_path / "2750", {"Forest": 8, "River": 5})
    rows = [("Forest/Forest_0.png", "train"), ("Forest_1.png", "train"), ("Forest_2", "train"), ("Forest_3", "val")]
    rows += [("River_0.png", "train"), ("River_1.png", "train"), ("River_2.png", "test"), ("River_3", "unused")]
    (tmp_path / "split.csv").write_text("\n".join(["image,part", *(",".join(row) for row in rows)]))
    split = {"by": "column", "file": "split.csv", "column": "part"}
    run("e", folders_dataset(split=split), tmp_path, tmp_path / "store")
    index = pd.read_parquet(tmp_path / "store" / "index.parquet")
    found = dict(zip((Path(source).stem for source in index.source), index.split, strict=True))
    assert found == {
        "Forest_0": "train", "Forest_1": "train", "Forest_2": "train", "Forest_3": "validation",
        "River_0": "train", "River_1": "train", "River_2": "test",
    }  # fmt: skip
    run("e", folders_dataset(split=split, tiles={"balance": True}), tmp_path, tmp_path / "balanced")
    balanced = pd.read_parquet(tmp_path / "balanced" / "index.parquet")
    assert balanced[balanced.split == "train"].label.tolist() == [1, 1, 0, 0]
    (tmp_path / "split.csv").write_text("image,part\nnone.png,train\n")
    assert "names none of the 13 images (split.key)" in message_of(tmp_path, folders_dataset(split=split))


def test_many_images_are_decoded_by_several_processes(
    tmp_path: Path, write_images: WriteImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "2750", {"Forest": 20, "River": 20})
    run("e", folders_dataset(), tmp_path, tmp_path / "one")
    monkeypatch.setattr("landbalance.tile.folders._AT_ONCE", 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(2))
    run("e", folders_dataset(), tmp_path, tmp_path / "two")
    for name in ("images.npy", "labels.npy", "statistics.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    damaged = tmp_path / "2750" / "River" / "River_7.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    assert "River_7.png: cannot be read" in message_of(tmp_path, folders_dataset())


def test_a_table_that_leaves_all_images_out(tmp_path: Path, write_images: WriteImages) -> None:
    write_images(tmp_path / "2750", {"Forest": 2, "River": 2})
    (tmp_path / "split.csv").write_text("image,part\nForest_0.png,unused\nelsewhere.png,train\n")
    split = {"by": "column", "file": "split.csv", "column": "part"}
    assert "none of the 4 images of the classes in" in message(tmp_path, folders_dataset(split=split))


def test_an_image_with_nan_is_named(tmp_path: Path) -> None:
    for kind in ("Forest", "River"):
        (tmp_path / "2750" / kind).mkdir(parents=True)
        for number in range(4):
            values = np.ones((3, 8, 8), np.float32)
            values[0, 0, :number] = np.nan if kind == "River" and number == 3 else 1
            path = tmp_path / "2750" / kind / f"{number}.tif"
            with rasterio.open(path, "w", driver="GTiff", count=3, height=8, width=8, dtype="float32") as file:
                file.write(values)
    assert "River/3.tif: 3 of its 192 values are NaN or infinite" in message(tmp_path, folders_dataset())


def test_large_images_are_handed_on_by_bytes(
    tmp_path: Path, write_images: WriteImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5})
    chunks = []

    def seen(function: Callable[[Any], Any], items: Sequence[Any], least: int) -> Iterator[Any]:
        chunks.extend(map(len, items))
        return map(function, items)

    monkeypatch.setattr("landbalance.tile.folders.on_all_cores", seen)
    for most, expected in ((3 * 192, [3, 3, 3, 1]), (1, [1] * 10)):
        monkeypatch.setattr("landbalance.tile.folders._BYTES_AT_ONCE", most)
        run("e", folders_dataset(), tmp_path, tmp_path / "store")
        assert chunks == expected
        chunks.clear()


def test_what_is_wrong_with_the_folders_is_said(tmp_path: Path, write_images: WriteImages) -> None:
    assert "no such folder (folders.path)" in message(tmp_path, folders_dataset())
    (tmp_path / "2750").mkdir()
    assert "holds no folders" in message(tmp_path, folders_dataset())
    (tmp_path / "2750" / "Forest").mkdir()
    assert "hold no images" in message(tmp_path, folders_dataset())
    (tmp_path / "2750" / "Forest").rmdir()
    write_images(tmp_path / "2750", {"Urban": 2})
    assert "none of the values is in the classes. Found: Urban (2)" in message(tmp_path, folders_dataset())


STRETCHED = {"path": "2750", "bands": ["red", "green", "blue"], "stretch": [0, 2750, 1, 255]}


def test_a_scene_beside_the_images_is_not_cut(tmp_path: Path, write_images: WriteImages) -> None:
    """It need not even be there: the map stage reads it."""
    write_images(tmp_path / "2750", {"Forest": 5, "River": 5})
    scene = {"stack": "s.tif", "bands": ["red", "green", "blue"]}
    dataset = folders_dataset(scenes={"s": scene}, folders=STRETCHED, resolution=10)
    run("e", dataset, tmp_path, tmp_path / "store")
    info = open_tiles(tmp_path / "store").info
    assert (info.tiles, info.resolution) == (10, 10)
    with pytest.raises(UserError, match="its tiles are images in folders, so there is no scene s to cut"):
        run("e", dataset, tmp_path, tmp_path / "store", "s")


def test_what_is_said_to_be_stretched_to_bytes_holds_bytes(tmp_path: Path) -> None:
    for kind in ("Forest", "River"):
        (tmp_path / "2750" / kind).mkdir(parents=True)
        for number in range(5):
            path = tmp_path / "2750" / kind / f"{number}.tif"
            with rasterio.open(path, "w", driver="GTiff", count=3, height=8, width=8, dtype="uint16") as file:
                file.write(np.ones((3, 8, 8), np.uint16))
    assert "holds uint16, but folders.stretch says that the images are bytes" in message(
        tmp_path, folders_dataset(folders=STRETCHED)
    )
