"""A contact sheet of tiles."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.files import read_json, write_json
from landbalance.tile.preview import chosen, preview
from stores import write_store


def store_of(folder: Path, task: str) -> Dataset:
    """Write a store as the stage leaves it, and return settings that fit."""
    write_store(folder, task=task, bands=3, size=16)
    index = pd.read_parquet(folder / "index.parquet").assign(label=np.arange(20) % 3)
    index.to_parquet(folder / "index.parquet")
    info = read_json(folder / "statistics.json")
    info["percentiles"] = {"2": [900.0] * 3, "98": [1100.0] * 3}
    write_json(folder / "statistics.json", info)
    return Dataset.model_validate(
        {
            "task": task,
            "sources": [{"path": "x", "licence": "CC0"}],
            "scenes": {"s": {"bands": {band: "s.tif" for band in info["bands"]}}},
            "labels": {"path": "l.gpkg", "field": "f"},
            "classes": [{key: item[key] for key in ("name", "colour", "values")} for item in info["classes"]],
            "display": ["B02", "B01", "B00"],
            "tiles": {"size": 16},
            "split": {"by": "block", "size": 32},
        }
    )


@pytest.mark.parametrize("task", ["segmentation", "classification"])
def test_tiles_and_labels_are_drawn(tmp_path: Path, task: str) -> None:
    dataset = store_of(tmp_path / "store", task)
    preview("d", dataset, tmp_path / "store", tmp_path / "preview.png")
    picture = imread(tmp_path / "preview.png")[..., :3]
    shown = {tuple(colour) for colour in (picture.reshape(-1, 3) * 255).round().astype(int).tolist()}
    for item in dataset.classes:  # in the legend, and in segmentation as labels
        colour = tuple(int(item.colour[place : place + 2], 16) for place in (1, 3, 5))
        assert colour in shown
    assert len(shown) > 200  # and there are images


def test_each_class_has_its_turn() -> None:
    classes = np.array([0] * 100 + [1] * 3 + [2] * 50)
    ids = chosen(np.arange(1, 153), classes)
    assert np.bincount(classes[ids]).tolist() == [7, 3, 6]
    assert len(set(ids.tolist())) == 16
    assert ids.min() == 1
    assert chosen(np.empty(0, np.int64), classes).tolist() == []


def test_without_a_store_it_is_said(tmp_path: Path) -> None:
    dataset = store_of(tmp_path / "other", "segmentation")
    with pytest.raises(UserError, match=r"statistics\.json: not found"):
        preview("d", dataset, tmp_path / "store", tmp_path / "preview.png")
