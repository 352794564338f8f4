import numpy as np
import pytest
import torch

from landbalance.batches import BatchReader, orientations, oriented, shifts
from landbalance.tiles import open_tiles
from stores import write_store


def test_augmentation_follows_the_sample_not_its_neighbours():
    together = orientations(np.arange(50), seed=0, epoch=4)
    alone = [int(orientations(np.array([sample]), 0, 4)[0]) for sample in range(50)]
    assert together.tolist() == alone
    assert set(together.tolist()) == set(range(8))


def test_the_eight_orientations_are_the_symmetries_of_the_square():
    tile = np.arange(9).reshape(1, 3, 3)
    seen = {oriented(tile, k).tobytes() for k in range(8)}
    assert len(seen) == 8
    assert all(sorted(oriented(tile, k).ravel()) == list(range(9)) for k in range(8))


def test_samples_move_by_every_distance_and_each_by_itself():
    together = shifts(np.arange(400), seed=0, epoch=4, most=2)
    assert together.tolist() == [shifts(np.array([sample]), 0, 4, 2)[0].tolist() for sample in range(400)]
    assert {tuple(move) for move in together.tolist()} == {
        (down, right) for down in range(-2, 3) for right in range(-2, 3)
    }
    assert (shifts(np.arange(400), 0, 5, 2) != together).any()


def test_what_is_drawn_is_even_and_tells_seeds_epochs_and_purposes_apart():
    ids = np.arange(80_000)
    turns = orientations(ids, 0, 0)
    assert np.bincount(turns).tolist() == pytest.approx([10_000] * 8, rel=0.04)
    others = [orientations(ids, 0, 1), orientations(ids, 1, 0), *(shifts(ids, 0, 0, 3) + 3).T, turns[1:], turns[2:]]
    for other in others:
        alike = np.mean(turns[: len(other)] % 4 == other % 4)
        chance = (np.bincount(turns % 4, minlength=4) * np.bincount(other % 4, minlength=4)).sum() / 80_000**2
        assert alike == pytest.approx(chance, abs=0.01)
    down, right = shifts(ids, 0, 0, 3).T
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.02


def test_images_and_labels_move_together_and_mirror_at_the_edge(tmp_path):
    store = open_tiles(write_store(tmp_path / "d", size=16))
    ids = store.ids("train")
    still = BatchReader(store, None, False, 0).batch(ids, 0)
    moved = BatchReader(store, None, False, 0, shift=3).batch(ids, 0)
    for row, (down, right) in enumerate(shifts(ids, 0, 0, 3)):
        rows, columns = (np.abs(np.arange(16) + by + 0.5) - 0.5 for by in (down, right))
        rows, columns = ((15.5 - np.abs(15.5 - places)).astype(int) for places in (rows, columns))
        assert (moved.images[row] == still.images[row][:, rows][:, :, columns]).all()
        assert (moved.labels[row] == still.labels[row][rows][:, columns]).all()
    assert not (moved.labels == still.labels).all()
    validated = BatchReader(store, None, True, 0, shift=3).batch(ids, None)
    assert (validated.images == still.images).all()


def test_a_sample_is_the_same_in_every_batch(tmp_path):
    store = open_tiles(write_store(tmp_path / "d"))
    ids = store.ids("train")[::-1]
    weights = torch.tensor([1.0, 0.5, 3.0])
    reader = BatchReader(store, weights, augment=True, seed=3, shift=2)
    together = reader.batch(ids, 5)
    assert together.images.is_contiguous(memory_format=torch.channels_last)
    alone = [reader.batch(ids[place : place + 1], 5) for place in range(len(ids))]
    assert torch.equal(together.images, torch.cat([batch.images for batch in alone]))
    assert torch.equal(together.labels, torch.cat([batch.labels for batch in alone]))
    assert together.weight == pytest.approx(sum(batch.weight for batch in alone), rel=1e-12)
    assert len(reader.batch(ids[:0], 5).images) == 0
