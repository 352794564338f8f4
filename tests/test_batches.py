import numpy as np

from landbalance.batches import orientations, oriented


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
