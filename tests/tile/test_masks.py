"""Images with a mask each, laid out as LoveDA lays them out, against arrays whose right tiles are known."""

import pickle
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
from landbalance.tiles import TileStore, open_tiles

PLACES = ("Train/Rural", "Train/Urban", "Val/Rural")
Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def masked(dataset: Callable[..., Dataset]) -> Callable[..., Dataset]:
    """Return a function that gives a dataset of images in `d`: values 1 and 2 are water, 5 forest, 0 nothing."""

    def build(
        size: int = 16, stride: int | None = None, split: Any = None, tiles: Any = None, **folders: Any
    ) -> Dataset:
        own = {"path": "d", "bands": ["R", "G", "B"], "images": "images_png", "masks": "masks_png", "ignored": [0]}
        return dataset(
            scenes={}, labels=None, folders=own | folders, tiles={"size": size, "stride": stride} | (tiles or {}),
            split=split or {"by": "sample", "train": 0.5, "validation": 0.25, "test": 0.25},
            classes=[
                {"name": "Water", "colour": "#0000ff", "values": [1, 2]},
                {"name": "Forest", "colour": "#00ff00", "values": [5]},
            ],
        )  # fmt: skip

    return build


def write(root: Path, count: int = 4, height: int = 24, width: int = 40) -> Pairs:
    rng = np.random.default_rng(0)
    pairs = {}
    for place in PLACES:
        for kind in ("images_png", "masks_png"):
            (root / place / kind).mkdir(parents=True)
        for number in range(count):
            image = rng.integers(0, 256, (height, width, 3), np.uint8)
            mask = rng.choice([0, 1, 2, 5], (height, width)).astype(np.uint8)
            Image.fromarray(image).save(root / place / "images_png" / f"{number}.png")
            Image.fromarray(mask).save(root / place / "masks_png" / f"{number}.png")
            pairs[f"d/{place}/images_png/{number}.png"] = (image.transpose(2, 0, 1), mask)
    return pairs


def tiled(tmp_path: Path, dataset: Dataset) -> tuple[TileStore, pd.DataFrame]:
    run("d", dataset, tmp_path, tmp_path / "store")
    return open_tiles(tmp_path / "store"), pd.read_parquet(tmp_path / "store" / "index.parquet")


@pytest.mark.parametrize(("size", "stride"), [(16, None), (16, 5), (64, None)])
def test_every_pixel_of_every_image_is_there_with_its_class(
    tmp_path: Path, masked: Callable[..., Dataset], size: int, stride: int | None
) -> None:
    pairs = write(tmp_path / "d")
    store, index = tiled(tmp_path, masked(size, stride))
    images, labels = store.read(np.arange(store.info.tiles))
    classes = np.array([255, 0, 0, 255, 255, 1])
    seen = {source: np.full(mask.shape, 255) for source, (_, mask) in pairs.items()}
    for row in index.itertuples():
        image, _ = pairs[row.source]
        part = (slice(row.row, row.row + row.height), slice(row.col, row.col + row.width))
        assert np.array_equal(images[row.tile][:, : row.height, : row.width], image[:, *part])
        label = labels[row.tile][: row.height, : row.width]
        seen[row.source][part] = np.where(label != 255, label, seen[row.source][part])
        assert row.labelled == np.count_nonzero(labels[row.tile] != 255)
        assert (labels[row.tile][row.height :] == 255).all()
    for source, (_, mask) in pairs.items():
        assert np.array_equal(seen[source], classes[mask]), source
    assert (index.groupby("source").split.nunique() == 1).all()  # an image is in one split
    assert index.groupby("source").split.first().value_counts().to_dict() == {"train": 6, "validation": 3, "test": 3}
    known = np.concatenate([classes[mask].ravel() for _, mask in pairs.values()])
    counts = np.sum(list(store.info.class_counts.values()), axis=0)
    assert counts.tolist() == [int((known == 0).sum()), int((known == 1).sum())]


def test_several_processes_change_nothing(
    tmp_path: Path, masked: Callable[..., Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "d")
    alone, index = tiled(tmp_path, masked())
    before = [array.copy() for array in alone.read(np.arange(len(index)))]
    asked = []

    def elsewhere(function: Callable[[Any], Any], items: Sequence[Any], least: int) -> Iterator[Any]:
        """Do as another process does: work on copies."""
        asked.append(len(items))
        for item in items:
            yield pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(item)))

    monkeypatch.setattr("landbalance.tile.masks.on_all_cores", elsewhere)
    spread, again = tiled(tmp_path, masked())
    assert index.equals(again)
    for one, other in zip(before, spread.read(np.arange(len(index))), strict=True):
        assert np.array_equal(one, other)
    assert asked == [12, 12]


def test_a_value_in_no_class_stops_before_anything_is_written(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    """C06."""
    write(tmp_path / "d")
    path = tmp_path / "d" / "Val/Rural" / "masks_png" / "3.png"
    mask = np.asarray(Image.open(path)).copy()
    mask[:2, :3] = 77
    Image.fromarray(mask).save(path)
    with pytest.raises(UserError) as error:
        tiled(tmp_path, masked())
    for part in (str(path), "77 (6)", "Allowed: 1, 2, 5 (of the classes), 0 (folders.ignored)"):
        assert part in str(error.value)
    assert not (tmp_path / "store").exists()


def test_an_image_without_any_class_is_left_out(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    write(tmp_path / "d")
    Image.fromarray(np.zeros((24, 40), np.uint8)).save(tmp_path / "d" / "Train/Urban" / "masks_png" / "1.png")
    _, index = tiled(tmp_path, masked())
    assert index.source.nunique() == 11


def test_a_table_says_the_splits(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    """As LoveDA publishes them: by the image's path; images that the table leaves out are in no split."""
    write(tmp_path / "d")
    names = {"Train/Rural": "train", "Train/Urban": "val", "Val/Rural": "test"}
    lines = [f"{place}/images_png/{number}.png,{names[place]}" for place in PLACES for number in range(3)]
    (tmp_path / "splits.csv").write_text("\n".join(["image,split", *lines]))
    _, index = tiled(tmp_path, masked(split={"by": "column", "column": "split", "file": "splits.csv"}))
    assert index.source.nunique() == 9
    for source, split in zip(index.source, index.split, strict=True):
        assert {"train": "train", "validation": "val", "test": "test"}[split] == names[source.split("/images")[0][2:]]


def test_no_tile_with_labels_enough(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    write(tmp_path / "d")
    with pytest.raises(UserError, match=r"none of the 72 tiles is in a split and has labels enough"):
        tiled(tmp_path, masked(tiles={"labelled": 1.0}))


def test_an_image_with_infinity_is_named(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    write(tmp_path / "d")
    values = np.ones((3, 24, 40), np.float32)
    values[1, 5, 5] = np.inf
    folder = tmp_path / "d" / "Train/Rural" / "images_png"
    (folder / "0.png").unlink()
    with rasterio.open(folder / "0.tif", "w", driver="GTiff", count=3, height=24, width=40, dtype="float32") as file:
        file.write(values)
    with pytest.raises(UserError, match=r"0\.tif: 1 of its 2880 values are NaN or infinite"):
        tiled(tmp_path, masked())


def test_at_most_so_many_training_tiles_of_a_class(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    write(tmp_path / "d")
    store, index = tiled(tmp_path, masked(size=8, tiles={"per_class": 7}))
    training = index[index.split == "train"]
    assert training.label.value_counts().max() == 7
    assert (index.split == "test").sum() == 3 * 15
    assert len(store.labels(np.arange(len(index)))) == store.info.tiles == len(index)


def test_what_is_wrong_with_masks_is_said(tmp_path: Path, masked: Callable[..., Dataset]) -> None:
    write(tmp_path / "d", count=2)
    folder = tmp_path / "d" / "Train/Rural"

    def message(**folders: Any) -> str:
        with pytest.raises(UserError) as error:
            tiled(tmp_path, masked(**folders))
        return str(error.value)

    assert "no such folder (folders.path)" in message(path="elsewhere")
    assert "no folder pictures with a folder masks_png beside it" in message(images="pictures")
    mask = folder / "masks_png" / "0.png"
    whole = mask.read_bytes()
    Image.fromarray(np.ones((24, 30), np.uint8)).save(mask)
    assert "30 × 24 pixels; its image" in message()
    Image.fromarray(np.ones((24, 40, 3), np.uint8)).save(mask)
    assert "has 3 bands; a mask has one" in message()
    mask.write_bytes(whole[:200])
    assert f"{mask}: cannot be read" in message()
    mask.unlink()
    assert "0.png: no mask of that name" in message()
    with pytest.raises(ValueError, match="give both or none"):
        masked(masks=None)
    with pytest.raises(ValueError, match="with masks, one per pixel, for segmentation"):
        masked(masks=None, images=None, ignored=[])
