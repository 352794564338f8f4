import csv
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from landbalance import prediction
from landbalance.bundle import Bundle, save_bundle
from landbalance.comparison import compared, read_judged, require_same_samples
from landbalance.config import ClassInfo, Evaluate, Model
from landbalance.errors import UserError
from landbalance.evaluate import run
from landbalance.models import build_model
from landbalance.prediction import open_predictor
from landbalance.tiles import open_tiles

WriteStore = Callable[..., Path]
KnownNetwork = Callable[..., None]


NO_FOREST = Evaluate(baseline=False)


def segmentation_store(
    write_store: WriteStore, splits: Sequence[str] = ("train",) * 9 + ("validation",) * 1 + ("test",) * 11
) -> Any:
    """Return a store of 21 tiles; the first band shows the class, except in known places of the test tiles."""
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 2, (21, 8, 8), dtype=np.uint8)  # class 2 occurs in no label
    shown = labels.copy()
    wrong = generator.random(labels.shape) < 0.25
    shown[wrong] = 2
    labels[generator.random(labels.shape) < 0.3] = 255
    labels[12] = 255
    images = np.stack([shown, generator.integers(1, 9, labels.shape)], axis=1).astype(np.int16)
    images[:, 1] += 1
    return write_store(images, labels, splits), labels, shown


def read(folder: Path) -> Any:
    return json.loads((folder / "metrics.json").read_text())


def test_segmentation_counts_every_labelled_test_pixel_once(
    tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork
) -> None:  # C18, C23
    store, labels, shown = segmentation_store(write_store)
    known_network("segmentation")
    run("havel", Evaluate(baseline_pixels=100), store, tmp_path / "bundle", tmp_path / "out")
    metrics = read(tmp_path / "out")
    test = np.arange(10, 21)
    counted = labels[test] != 255
    expected = np.zeros((3, 3), int)
    np.add.at(expected, (labels[test][counted], shown[test][counted]), 1)
    assert metrics["confusion"] == expected.tolist()
    assert (metrics["experiment"], metrics["split"], metrics["classes"]) == (
        "havel",
        "test",
        ["Forest", "Water", "Farmland"],
    )
    assert metrics["overall_accuracy"] == pytest.approx(np.trace(expected) / counted.sum())
    assert metrics["majority_share"] == pytest.approx(expected.sum(1).max() / counted.sum())
    assert metrics["per_class"][2]["producers_accuracy"] is None
    assert metrics["per_class"][2]["users_accuracy"] == 0
    assert metrics["weighted"]["producers_accuracy"] == pytest.approx(metrics["overall_accuracy"])
    assert metrics["intervals"]["unit"] == "tile"  # this store does not say where its tiles lie
    assert (metrics["distance"], metrics["random_split"]) == (None, None)
    assert list(metrics["per_class"][0]) == [
        "name", "producers_accuracy", "users_accuracy", "f1", "iou", "support", "predicted",
    ]  # fmt: skip
    baseline = metrics["baseline"]
    assert (baseline["name"], baseline["train_pixels"]) == ("random forest", 100)
    assert np.sum(baseline["confusion"], axis=1).tolist() == expected.sum(axis=1).tolist()
    assert baseline["overall_accuracy"] == pytest.approx(np.trace(baseline["confusion"]) / counted.sum())

    with (tmp_path / "out" / "confusion.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0][1:] == metrics["classes"] == [row[0] for row in rows[1:]]
    assert [[int(value) for value in row[1:]] for row in rows[1:]] == metrics["confusion"]

    predictions = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert predictions["tile"].tolist() == test.tolist()
    assert predictions["valid"].tolist() == counted.sum(axis=(1, 2)).tolist()
    assert predictions["correct"].sum() == np.trace(expected)
    assert (np.stack(predictions["confusion"]).sum(axis=0).reshape(3, 3) == expected).all()
    assert predictions["valid"][2] == 0  # the tile whose labels are all ignored


def test_classification(tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork) -> None:
    labels = np.array([0, 1, 2] * 8 + [255], np.uint8)
    noise = np.random.default_rng(1).integers(0, 2, (25, 2, 8, 8))
    images = (noise + labels[:, None, None, None] % 3).astype(np.uint8)
    images[20] = 2  # looks like Farmland and is Farmland; the next looks so too and is Forest
    images[21] = 2
    store = write_store(images, labels, ["train"] * 12 + ["test"] * 13)
    known_network("classification")
    run("e", Evaluate(), store, tmp_path / "bundle", tmp_path / "out")
    metrics = read(tmp_path / "out")
    assert np.sum(metrics["confusion"]) == 12  # the tile without a class does not count
    assert metrics["confusion"][0][2] >= 1
    assert metrics["baseline"]["train_pixels"] == 12
    assert np.sum(metrics["baseline"]["confusion"]) == 12
    assert metrics["baseline"]["overall_accuracy"] > 0.6


def test_twenty_one_test_tiles_in_uneven_batches(
    tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:  # C18
    store, labels, _ = segmentation_store(write_store, ("test",) * 21)
    known_network("segmentation")
    monkeypatch.setattr("landbalance.evaluate.forest._PIXELS_PER_CHUNK", 2 * 64)
    run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")
    predictions = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert predictions["tile"].tolist() == list(range(21))
    assert np.sum(read(tmp_path / "out")["confusion"]) == predictions["valid"].sum() == (labels != 255).sum()


def test_intervals_are_drawn_by_block(tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork) -> None:
    """Eleven test tiles in three blocks: three units, and a class that one block alone has gets no interval."""
    generator = np.random.default_rng(9)
    labels = generator.integers(0, 2, (21, 8, 8), dtype=np.uint8)
    labels[20] = 2
    shown = np.where(generator.random(labels.shape) < 0.2, 1, labels)
    images = np.stack([shown, np.ones_like(shown)], axis=1).astype(np.int16)
    blocks = [7] * 10 + [3] * 5 + [4] * 5 + [9]
    places = {"frame": [0] * 21, "frame_row": [0] * 21, "frame_col": [8 * k for k in range(21)]}
    store = write_store(images, labels, ("train",) * 10 + ("test",) * 11, block=blocks, **places)
    known_network("segmentation")
    run("e", Evaluate(resamples=300, level=0.9), store, tmp_path / "bundle", tmp_path / "out")
    metrics = read(tmp_path / "out")
    found = metrics["intervals"]
    assert (found["unit"], found["units"], found["resamples"], found["level"]) == ("block", 3, 300, 0.9)
    low, high = found["overall_accuracy"]
    assert low <= metrics["overall_accuracy"] <= high
    assert found["per_class"][2]["units"] == 1
    assert found["per_class"][2]["producers_accuracy"] is None
    assert metrics["per_class"][2]["producers_accuracy"] is not None
    assert metrics["distance"]["quantiles"]["0"] == 1
    assert metrics["distance"]["quantiles"]["1"] == 88
    assert metrics["calibration"]["expected_error"] == pytest.approx(
        sum(bin_["samples"] * abs(bin_["accuracy"] - bin_["confidence"]) for bin_ in metrics["calibration"]["bins"]
            if bin_["samples"]) / np.sum(metrics["confusion"])
    )  # fmt: skip
    assert metrics["baseline"]["intervals"]["overall_accuracy"] is not None
    difference = metrics["overall_accuracy"] - metrics["baseline"]["overall_accuracy"]
    compared_with = metrics["baseline"]["comparison"]
    assert compared_with["difference"] == pytest.approx(difference)
    assert compared_with["units"] == 3
    assert compared_with["both"] + compared_with["first_only"] == np.trace(metrics["confusion"])
    assert compared_with["both"] + compared_with["second_only"] == np.trace(metrics["baseline"]["confusion"])


def test_experiments_are_compared_from_their_files(
    tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork
) -> None:
    store, labels, shown = segmentation_store(write_store)
    known_network("segmentation")
    run("a", NO_FOREST, store, tmp_path / "bundle", tmp_path / "a")
    shown[12:] = labels[12:] % 3  # the other network sees better there
    images = np.stack([shown, np.ones_like(shown)], axis=1).astype(np.int16)
    for shard, first in enumerate(range(0, 21, 3)):
        np.save(store / f"images-{shard:03d}.npy", images[first : first + 3])
    run("b", NO_FOREST, store, tmp_path / "bundle", tmp_path / "b")
    first, second = (read_judged(tmp_path / name / "predictions.parquet") for name in "ab")
    require_same_samples(first, second, ("a", "b"))
    accuracies = [read(tmp_path / name)["overall_accuracy"] for name in "ab"]
    result = compared(first, second)
    assert result.difference == pytest.approx(accuracies[0] - accuracies[1])
    assert (result.unit, result.second_only > 0, result.first_only) == ("tile", True, 0)
    assert second.hits.mean() == pytest.approx(accuracies[1])


def test_random_split_is_shown_on_request(
    tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    generator = np.random.default_rng(3)
    labels = np.broadcast_to(generator.integers(0, 3, (21, 1, 1)), (21, 8, 8)).astype(np.uint8)
    images = np.stack([np.broadcast_to(np.arange(21)[:, None, None] * 9 + 1, (21, 8, 8)), labels], axis=1)
    images[:, 1] = 1
    places = {"frame": [0] * 21, "frame_row": [0] * 21, "frame_col": [8 * k for k in range(21)], "block": range(21)}
    store = write_store(images.astype(np.int16), labels, ("train",) * 14 + ("test",) * 7, **places)
    known_network("segmentation")
    with caplog.at_level(logging.INFO):
        run("e", Evaluate(random_split=True), store, tmp_path / "bundle", tmp_path / "out")
    metrics = read(tmp_path / "out")
    found = metrics["random_split"]
    assert (found["train_samples"], found["test_samples"]) == (14 * 64, 7 * 64)
    assert found["overall_accuracy"] == 1
    assert found["optimism"] == pytest.approx(1 - metrics["baseline"]["overall_accuracy"])
    assert found["optimism"] > 0.2
    assert "if pixels are split at random" in caplog.text


def test_random_split_needs_the_baseline() -> None:
    with pytest.raises(ValueError, match="set baseline to true"):
        Evaluate(baseline=False, random_split=True)


@pytest.mark.parametrize("size", [1, 3, 7, 11])
def test_batch_size_changes_nothing(
    tmp_path: Path,
    write_store: WriteStore,
    known_network: KnownNetwork,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:  # C24
    store, _, _ = segmentation_store(write_store)
    known_network("segmentation")
    run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "whole")
    monkeypatch.setattr("landbalance.evaluate.forest._PIXELS_PER_CHUNK", size * 64)
    monkeypatch.setitem(prediction._PIXELS_PER_BATCH, "cpu", 128)
    run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "parts")
    assert read(tmp_path / "parts") == read(tmp_path / "whole")
    first, second = (pd.read_parquet(tmp_path / name / "predictions.parquet") for name in ("whole", "parts"))
    pd.testing.assert_frame_equal(first, second)


def test_a_saved_network_is_judged_as_it_predicts(tmp_path: Path, write_store: WriteStore) -> None:
    store, _labels, _ = segmentation_store(write_store)
    torch.manual_seed(0)
    model = Model(architecture="unet", depth=3, width=8)
    info = open_tiles(store).info
    card = Bundle(
        task="segmentation", model=model, bands=info.bands, classes=info.classes, tile_size=8, resolution=10.0,
        normalisation=info.normalisation, provenance={},
    )  # fmt: skip
    save_bundle(tmp_path / "bundle", build_model(model, 2, 3), card)
    run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")
    tiles = open_tiles(store)
    images, judged = tiles.read(tiles.ids("test"))
    predicted = open_predictor(tmp_path / "bundle").classes(images)
    hits = (predicted == judged)[judged != 255].mean()
    assert read(tmp_path / "out")["overall_accuracy"] == pytest.approx(hits)


def test_log_compares_and_warns(
    tmp_path: Path,
    write_store: WriteStore,
    known_network: KnownNetwork,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, _, _ = segmentation_store(write_store)
    known_network("segmentation")
    with caplog.at_level(logging.INFO):
        run("e", Evaluate(baseline_pixels=50), store, tmp_path / "bundle", tmp_path / "out")
    for wanted in ("unet", "random forest", "always ", "n/a", "fitted on 50 pixels"):
        assert wanted in caplog.text
    assert "Farmland does not occur in the test split: its producer's accuracy is n/a" in caplog.text


@pytest.mark.parametrize(("splits", "what"), [(("train",) * 21, "holds no tile"), (("train",) * 20 + ("test",), "")])
def test_nothing_to_judge(
    tmp_path: Path,
    write_store: WriteStore,
    known_network: KnownNetwork,
    splits: Sequence[str],
    what: str,
) -> None:
    store, labels, _ = segmentation_store(write_store, splits)
    labels[20] = 255
    np.save(store / "labels.npy", labels)
    known_network("segmentation")
    with pytest.raises(UserError, match=what or "has no labelled pixel"):
        run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_old_result_stays_when_judging_fails(
    tmp_path: Path,
    write_store: WriteStore,
    known_network: KnownNetwork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _, _ = segmentation_store(write_store)
    known_network("segmentation")
    run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    monkeypatch.setattr("landbalance.evaluate.metrics.Metrics.as_csv", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert set(before) == {"metrics.json", "confusion.csv", "predictions.parquet"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "classification"}, r"the model's task \(classification\) are not those of the tiles.*segmentation"),
        ({"task": "segmentation", "bands": ["B1", "B0"]}, r"the model's bands \(B1, B0\)"),
        (
            {"task": "segmentation", "classes": [ClassInfo(name=n, colour="#000000", values=[n]) for n in "abc"]},
            r"the model's classes \(a, b, c\)",
        ),
    ],
)
def test_model_of_other_tiles(
    tmp_path: Path,
    write_store: WriteStore,
    known_network: KnownNetwork,
    options: dict[str, Any],
    message: str,
) -> None:
    store, _, _ = segmentation_store(write_store)
    known_network(**options)
    with pytest.raises(UserError, match=message):
        run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")


def test_label_outside_the_classes(tmp_path: Path, write_store: WriteStore, known_network: KnownNetwork) -> None:
    store, labels, _ = segmentation_store(write_store)
    labels[20, 0, 0] = 7
    np.save(store / "labels.npy", labels)
    known_network("segmentation")
    with pytest.raises(UserError, match=r"a label is 7; allowed: 0 … 2 and 255"):
        run("e", NO_FOREST, store, tmp_path / "bundle", tmp_path / "out")
