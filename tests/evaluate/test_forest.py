from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from landbalance.errors import UserError
from landbalance.evaluate.forest import features, fitted_forest, random_split
from landbalance.tiles import open_tiles

WriteStore = Callable[..., Path]


def store_of_bands(write_store: WriteStore, tiles: int = 12) -> Any:
    """Return a store whose class is the first band's value; a third of the pixels is labelled."""
    generator = np.random.default_rng(0)
    classes = generator.integers(0, 3, (tiles, 8, 8))
    images = np.stack(
        [classes * 100 + generator.integers(1, 50, classes.shape), generator.integers(1, 9, classes.shape)]
    )
    labels = np.where(generator.random(classes.shape) < 1 / 3, classes, 255).astype(np.uint8)
    labels[1] = 255
    return write_store(images.swapaxes(0, 1).astype(np.uint16), labels, ["train"] * (tiles - 2) + ["test"] * 2), labels


def test_learns_the_class_of_a_pixel(write_store: WriteStore) -> None:
    folder, labels = store_of_bands(write_store)
    tiles = open_tiles(folder)
    forest = fitted_forest(tiles, 10_000)
    assert forest.samples == (labels[:-2] != 255).sum()
    images, judged = tiles.read(tiles.ids("test"))
    predicted = forest.classes(images, judged, 0.0)
    assert (predicted[judged != 255] == judged[judged != 255]).all()


def test_sees_no_more_pixels_than_allowed_and_the_same_each_time(write_store: WriteStore) -> None:
    folder, _ = store_of_bands(write_store)
    tiles = open_tiles(folder)
    first, second = fitted_forest(tiles, 17), fitted_forest(tiles, 17)
    assert first.samples == second.samples == 17
    images, judged = tiles.read(np.arange(12))
    assert (first.classes(images, judged, 0.0) == second.classes(images, judged, 0.0)).all()


def test_each_labelled_pixel_is_equally_likely(write_store: WriteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tile 0 has 60 labelled pixels, tile 1 has 6: draws must follow pixels, not tiles, and never an unlabelled one."""
    labels = np.full((2, 8, 8), 255, np.uint8)
    labels[0].flat[:60], labels[1].flat[:6] = 0, 1
    images = np.ones((2, 2, 8, 8), np.uint16)
    images[:, 0] = np.where(labels == 255, 9, labels + 1)
    tiles = open_tiles(write_store(images, labels, ["train"] * 2))
    seen = []
    monkeypatch.setattr(
        "landbalance.evaluate.forest.RandomForestClassifier.fit", lambda self, x, y: seen.append((x, y)) or self
    )
    counts = np.zeros(2)
    for seed in range(200):
        monkeypatch.setattr("landbalance.evaluate.forest._SEED", seed)
        fitted_forest(tiles, 11)
        inputs, targets = seen.pop()
        assert (inputs[:, 0] == targets + 1).all()
        counts += np.bincount(targets, minlength=2)
    assert counts.sum() == 2200
    assert counts[1] / 2200 == pytest.approx(6 / 66, abs=0.015)


def test_tile_statistics_leave_missing_pixels_out() -> None:
    images = np.array([[[[2, 4], [0, 0]], [[1, 1], [0, 0]]], [[[5, 5], [5, 5]], [[0, 2], [0, 2]]]], np.uint16)
    found = features(images, np.array([True, True]), 0.0)
    assert found.tolist() == [[3, 1, 1, 0], [5, 1, 0, 1]]
    assert features(images, np.array([True, False]), None)[0].tolist() == [1.5, 0.5, pytest.approx(1.6583124), 0.5]


def test_tile_half_of_which_is_missing_is_judged_by_the_other_half(write_store: WriteStore) -> None:
    labels = np.array([0, 1, 2] * 8, np.uint8)
    images = np.random.default_rng(0).integers(0, 3, (24, 2, 8, 8)).astype(np.uint16)
    images += (10 * labels + 10).astype(np.uint16)[:, None, None, None]
    tiles = open_tiles(write_store(images, labels, ["train"] * 21 + ["test"] * 3))
    judged, truth = tiles.read(tiles.ids("test"))
    judged[:, :, :5] = 0
    assert fitted_forest(tiles, 100).classes(judged, truth, 0.0).tolist() == truth.tolist()


def test_tile_without_any_data_gives_numbers() -> None:
    assert features(np.zeros((1, 2, 4, 4), np.uint8), np.array([True]), 0.0).tolist() == [[0, 0, 0, 0]]


def test_no_label_to_learn_from(write_store: WriteStore) -> None:
    folder = write_store(np.ones((2, 2, 8, 8), np.uint8), np.full((2, 8, 8), 255, np.uint8), ["train", "test"])
    with pytest.raises(UserError, match="no labelled sample in the train split"):
        fitted_forest(open_tiles(folder), 10)


def test_index_of_another_store(write_store: WriteStore) -> None:
    folder, labels = store_of_bands(write_store)
    labels[0] = 255
    np.save(folder / "labels.npy", labels)
    with pytest.raises(UserError, match="tile 0 has 0 labelled pixels, the index says"):
        fitted_forest(open_tiles(folder), 10_000)


def test_random_split_flatters_where_neighbours_are_alike(write_store: WriteStore) -> None:
    """Every tile has a brightness of its own, so pixels of the same tile give the class away."""
    generator = np.random.default_rng(7)
    classes = generator.integers(0, 3, 24)
    images = np.empty((24, 2, 8, 8), np.uint16)
    images[:, 0] = np.arange(24)[:, None, None] * 40 + generator.integers(1, 9, (24, 8, 8)) + 1
    images[:, 1] = 5
    labels = np.broadcast_to(classes[:, None, None], (24, 8, 8)).astype(np.uint8).copy()
    labels[:, :4] = 255
    tiles = open_tiles(write_store(images, labels, ["train"] * 16 + ["test"] * 8))
    fitted = fitted_forest(tiles, 300)
    judged, truth = tiles.read(tiles.ids("test"))
    counted = truth != 255
    honest = (fitted.classes(judged, truth, 0.0)[counted] == truth[counted]).mean()
    flattering = random_split(tiles, fitted.samples, 200)
    assert (flattering.train_samples, flattering.confusion.sum()) == (300, 200)
    assert np.trace(flattering.confusion) / 200 > 0.95
    assert honest < 0.7
    assert (random_split(tiles, 300, 200).confusion == flattering.confusion).all()


def test_random_split_of_tiles(write_store: WriteStore) -> None:
    labels = np.array([0, 1, 2] * 8, np.uint8)
    images = np.random.default_rng(0).integers(0, 3, (24, 2, 8, 8)).astype(np.uint16)
    images += (10 * labels + 10).astype(np.uint16)[:, None, None, None]
    tiles = open_tiles(write_store(images, labels, ["train"] * 15 + ["validation"] * 3 + ["test"] * 6))
    result = random_split(tiles, 15, 6)
    assert (result.train_samples, result.confusion.sum(), np.trace(result.confusion)) == (15, 6, 6)
