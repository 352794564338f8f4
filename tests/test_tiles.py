"""Reading a tile store."""

from pathlib import Path

import numpy as np
import pytest

from landbalance.errors import UserError
from landbalance.tiles import Normalisation, normalised, open_tiles
from stores import write_store


def test_tiles_come_in_the_order_asked_for(tmp_path: Path) -> None:
    store = open_tiles(write_store(tmp_path / "store", tiles_per_shard=7))
    images = np.concatenate([np.load(path) for path in sorted((tmp_path / "store").glob("images-*.npy"))])
    labels = np.load(tmp_path / "store" / "labels.npy")
    for ids in ([3, 19, 0, 7, 6, 7], [5], []):
        read_images, read_labels = store.read(np.array(ids, np.int64))
        assert np.array_equal(read_images, images[ids])
        assert np.array_equal(read_labels, labels[ids])
    assert store.ids("train").tolist() == list(range(12))
    assert store.ids("test").tolist() == [16, 17, 18, 19]


@pytest.mark.parametrize(("first", "second"), [(np.uint8(7), np.uint16(1234)), (np.uint16(900), np.float32(0.25))])
def test_scenes_of_unlike_types_keep_their_values(tmp_path: Path, first: np.generic, second: np.generic) -> None:
    store = open_tiles(write_store(tmp_path / "store", train=4, validation=0, test=0, tiles_per_shard=2))
    for number, value in enumerate((first, second)):
        np.save(tmp_path / "store" / f"images-{number:03d}.npy", np.full((2, 2, 32, 32), value))
    images = store.images(np.array([3, 0]))
    assert (images[0] == second).all()
    assert (images[1] == first).all()


def test_labels_of_classification_are_one_a_tile(tmp_path: Path) -> None:
    store = open_tiles(write_store(tmp_path / "store", task="classification"))
    images, labels = store.read(store.ids("validation"))
    assert labels.shape == (4,)
    assert images.shape == (4, 2, 32, 32)


def test_normalised_pixels_have_mean_0_and_deviation_1() -> None:
    images = np.random.default_rng(0).integers(500, 3000, (4, 3, 9, 9)).astype(np.uint16)
    mean, std = images.mean(axis=(0, 2, 3)), images.std(axis=(0, 2, 3))
    result = normalised(images, Normalisation(mean=mean.tolist(), std=std.tolist(), missing=0.0))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.mean(axis=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(result.std(axis=(0, 2, 3)), 1, atol=1e-4)


def test_missing_pixels_become_0() -> None:
    images = np.full((1, 2, 1, 3), 5, np.uint16)
    images[0, :, 0, 0] = 0
    images[0, 0, 0, 1] = 0  # missing in one band only: a value
    result = normalised(images, Normalisation(mean=[4, 4], std=[2, 2], missing=0.0))
    assert result[0, :, 0].T.tolist() == [[0, 0], [-2, 0.5], [0.5, 0.5]]
    kept = normalised(images, Normalisation(mean=[4, 4], std=[2, 2]))
    assert kept[0, :, 0, 0].tolist() == [-2, -2]


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "float32", "float64"])
def test_an_image_is_normalised_alike_among_any_others(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 2, (7, 3, 5, 5)).astype(dtype)
    mean, std = [0.3, 0.5, 0.7], [0.46, 0.5, 0.45]
    center, scale = (np.float32(values).reshape(3, 1, 1) for values in (mean, 1 / np.array(std)))
    steps = (images.astype(np.float32) - center) * scale
    wanted = np.where(images.any(axis=1, keepdims=True), steps, 0)
    for at_once in (1, 150, 1 << 20):
        monkeypatch.setattr("landbalance.tiles._CACHED_VALUES", at_once)
        result = normalised(images, Normalisation(mean=mean, std=std, missing=0.0))
        assert np.array_equal(result, wanted)
        assert result.transpose(0, 2, 3, 1).flags.c_contiguous
    assert normalised(images[:0], Normalisation(mean=mean, std=std)).shape == (0, 3, 5, 5)


def test_a_store_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"statistics\.json: not found"):
        open_tiles(tmp_path)
    folder = write_store(tmp_path / "store")
    shard = folder / "images-001.npy"
    shard.write_bytes(shard.read_bytes()[:500])
    with pytest.raises(UserError, match=r"images-001\.npy: damaged or missing"):
        open_tiles(folder).read(np.array([0]))
    shard.unlink()
    with pytest.raises(UserError, match=r"images-001\.npy: damaged or missing"):
        open_tiles(folder).read(np.array([0]))
