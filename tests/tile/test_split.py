"""Splits keep the shares, give each class to each split, and leave a buffer."""

import numpy as np
import pytest

from landbalance.tile.blocks import BlockKey
from landbalance.tile.split import draw_blocks, draw_samples, too_near


def shares_of(drawn: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.stack([counts[drawn == split].sum(axis=0) for split in range(3)]) / counts.sum(axis=0)


def test_every_class_comes_close_to_the_shares() -> None:
    """C13: the configured proportions hold, for each class."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 2000, (72, 7)) * (rng.random((72, 7)) < 0.4)
    drawn = draw_blocks(counts, (0.6, 0.15, 0.25), 0)
    wanted = np.array([0.6, 0.15, 0.25])[:, None]
    assert np.abs(shares_of(drawn, counts) - wanted).max() < 0.05


def test_a_class_in_three_blocks_reaches_three_splits() -> None:
    counts = np.zeros((60, 2), np.int64)
    counts[:, 0] = 100
    counts[[4, 17, 50], 1] = 5
    drawn = draw_blocks(counts, (0.6, 0.2, 0.2), 3)
    assert sorted(drawn[[4, 17, 50]].tolist()) == [0, 1, 2]


def test_a_class_that_occurs_nowhere_does_not_matter() -> None:
    counts = np.tile([10, 0, 20], (30, 1))
    assert np.bincount(draw_blocks(counts, (0.5, 0.2, 0.3), 0)).tolist() == [15, 6, 9]


def test_a_split_without_a_share_gets_nothing() -> None:
    counts = np.ones((40, 1), np.int64)
    assert set(draw_blocks(counts, (0.7, 0.0, 0.3), 0).tolist()) == {0, 2}
    assert set(draw_blocks(counts, (0.7, 0.3, 0.0), 0).tolist()) == {0, 1}
    assert set(draw_blocks(counts, (1.0, 0.0, 0.0), 0).tolist()) == {0}


def test_a_single_block_goes_to_the_split_that_wants_all() -> None:
    assert draw_blocks(np.array([[7, 3]]), (1.0, 0.0, 0.0), 0).tolist() == [0]


def test_the_draw_follows_the_seed() -> None:
    counts = np.random.default_rng(0).integers(1, 50, (100, 3))
    first = draw_blocks(counts, (0.6, 0.2, 0.2), 0)
    assert np.array_equal(first, draw_blocks(counts, (0.6, 0.2, 0.2), 0))
    assert not np.array_equal(first, draw_blocks(counts, (0.6, 0.2, 0.2), 1))


def test_samples_are_stratified() -> None:
    labels = np.repeat([0, 1, 2], [100, 10, 33])
    np.random.default_rng(0).shuffle(labels)
    drawn = draw_samples(labels, (0.6, 0.2, 0.2), 0)
    sizes = [[int(np.sum((labels == k) & (drawn == split))) for split in range(3)] for k in range(3)]
    assert sizes == [[60, 20, 20], [6, 2, 2], [20, 7, 6]]
    assert np.array_equal(drawn, draw_samples(labels, (0.6, 0.2, 0.2), 0))
    assert not np.array_equal(drawn, draw_samples(labels, (0.6, 0.2, 0.2), 1))


@pytest.mark.parametrize(("count", "expected"), [(1, [1, 0, 0]), (2, [1, 0, 1]), (3, [1, 1, 1]), (4, [2, 1, 1])])
def test_few_samples_reach_as_many_splits_as_they_can(count: int, expected: list[int]) -> None:
    drawn = draw_samples(np.zeros(count, np.int64), (0.6, 0.15, 0.25), 0)
    counted = np.bincount(drawn, minlength=3).tolist()
    assert sum(counted) == count
    assert counted[0] >= 1
    if count >= 3:
        assert counted == expected


@pytest.mark.parametrize("buffer", [0, 1, 3, 5, 8, 13])
def test_the_buffer_is_what_a_brute_force_search_finds(buffer: int) -> None:
    size, rows, cols = 5, 4, 5
    rng = np.random.default_rng(buffer)
    splits: dict[BlockKey, int] = {
        (0, row, col): int(rng.integers(0, 3)) for row in range(rows) for col in range(cols) if rng.random() < 0.8
    }
    of_pixel = np.full((rows * size, cols * size), -1)
    for (_, row, col), split in splits.items():
        of_pixel[row * size : (row + 1) * size, col * size : (col + 1) * size] = split
    for (frame, row, col), split in splits.items():
        near = too_near((frame, row, col), splits, size, buffer)
        near = np.zeros((size, size), bool) if near is None else near
        for y in range(size):
            for x in range(size):
                top, left = row * size + y, col * size + x
                around = of_pixel[max(top - buffer, 0) : top + buffer + 1, max(left - buffer, 0) : left + buffer + 1]
                assert near[y, x] == (around > split).any(), (row, col, y, x)
