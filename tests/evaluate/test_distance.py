from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from landbalance.evaluate import distance
from landbalance.evaluate.distance import distances
from landbalance.tiles import open_tiles

WriteStore = Callable[..., Path]
SIZE = 8


def brute_force(places: list[tuple[int, np.ndarray]], others: list[tuple[int, np.ndarray]]) -> list[float]:
    """Return the distance of each place to the nearest of the others in the same frame; inf where there is none."""
    result = []
    for frame, place in places:
        near = [np.hypot(*(place - other)) for number, other in others if number == frame]
        result.append(min(near, default=np.inf))
    return result


@pytest.mark.parametrize("at_once", [1, 1 << 22])
def test_every_pixel_of_two_grids(write_store: WriteStore, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    generator = np.random.default_rng(0)
    count = 12
    labels = np.where(generator.random((count, SIZE, SIZE)) < 0.5, 0, 255).astype(np.uint8)
    labels[0], labels[1] = 0, 255  # fully labelled, and not at all
    splits = (["train"] * 2 + ["test"] * 2) * 3
    frames = [0] * 8 + [1] * 4
    splits[8:] = ["test"] * 4  # the second grid has no training tile
    rows, cols = SIZE * np.array(np.divmod(generator.permutation(40)[:count], 8)) - 17
    places = {"frame": frames, "frame_row": rows, "frame_col": cols}
    store = open_tiles(write_store(np.ones((count, 2, SIZE, SIZE), np.uint8), labels, splits, **places))
    pixels = {"train": [], "test": []}
    for number, split in enumerate(splits):
        for row, col in np.argwhere(labels[number] != 255):
            pixels[split].append((frames[number], np.array([row + rows[number], col + cols[number]])))
    monkeypatch.setattr(distance, "_PIXELS_AT_ONCE", at_once)
    found = distances(store)
    wanted = np.array(brute_force(pixels["test"], pixels["train"]))
    assert found.elsewhere == np.isinf(wanted).sum() > 0
    assert np.sort(found.values) == pytest.approx(np.sort(wanted[np.isfinite(wanted)]))
    told = found.as_json(10.0)
    assert told["pixel"] == 10.0
    assert told["samples"] == len(found.values)
    assert told["quantiles"]["0"] == found.values.min()
    assert told["quantiles"]["0.5"] == np.median(found.values)


def test_of_very_many_pixels_some_are_drawn(write_store: WriteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.zeros((30, SIZE, SIZE), np.uint8)
    places = {"frame": [0] * 30, "frame_row": [0] * 30, "frame_col": [SIZE * k for k in range(30)]}
    splits = ["train"] * 2 + ["test"] * 28
    store = open_tiles(write_store(np.ones((30, 2, SIZE, SIZE), np.uint8), labels, splits, **places))
    whole = distances(store)
    assert len(whole.values) == 28 * 64
    monkeypatch.setattr(distance, "_MOST_PIXELS", 400)
    some = distances(store)
    assert 340 <= len(some.values) <= 460
    assert np.median(some.values) == pytest.approx(np.median(whole.values), rel=0.1)
    assert distances(store).values.tolist() == some.values.tolist()


def test_a_tile_with_one_label_counts_once_from_its_nearest_pixel(write_store: WriteStore) -> None:
    labels = np.array([0, 1, 2], np.uint8)
    places = {
        "frame": [0] * 3,
        "frame_row": [0, 0, 20],
        "frame_col": [0, 11, 0],
        "height": [8, 8, 8],
        "width": [4, 8, 8],
    }
    images = np.ones((3, 2, SIZE, SIZE), np.uint8)
    store = open_tiles(write_store(images, labels, ["train", "test", "test"], **places))
    # The training tile ends at column 3 and row 7.
    assert distances(store).values.tolist() == [11 - 3, 20 - 7]


def test_all_on_other_ground(write_store: WriteStore) -> None:
    labels = np.zeros((2, SIZE, SIZE), np.uint8)
    places = {"frame": [0, 1], "frame_row": [0, 0], "frame_col": [0, 0]}
    store = open_tiles(write_store(np.ones((2, 2, SIZE, SIZE), np.uint8), labels, ["train", "test"], **places))
    told = distances(store).as_json(10.0)
    assert (told["samples"], told["elsewhere"], told["quantiles"]["0.5"]) == (0, 64, None)


def test_images_in_folders_have_no_place(write_store: WriteStore) -> None:
    store = write_store(np.ones((2, 2, SIZE, SIZE), np.uint8), np.zeros(2, np.uint8), ["train", "test"])
    assert distances(open_tiles(store)) is None
