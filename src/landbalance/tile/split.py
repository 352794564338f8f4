"""Which block, or which sample, is for training, validation and testing; arrays in, arrays out."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.tile.blocks import BlockKey
from landbalance.tiles import SPLITS

_log = logging.getLogger(__name__)

_DRAWS = 4096
_FEWEST_DRAWS = 64
_MOST_MOVES = 256
_CELLS = 1 << 21
"""Draws times blocks that are weighed at once."""


def drawn_groups(counts: NDArray[np.int64], dataset: Dataset, noun: str) -> NDArray[np.int8]:
    """Return the split of each block, polygon or scene, drawn as the configuration says.

    Raises
    ------
    UserError
        When there are fewer than splits that want labels.
    """
    split = dataset.split
    wanted = sum(share > 0 for share in split.wanted)
    if len(counts) < wanted:
        smaller = "Make split.size smaller, add" if noun == "block" else "Add"
        raise UserError(
            f"split: the labels lie in {len(counts)} {noun}(s), but {wanted} splits want one at least. "
            f"{smaller} labels, or give a split the share 0."
        )
    drawn = draw_blocks(counts, split.wanted, split.seed)
    for number, title in enumerate(SPLITS):
        _log.info("%s: %d of %d %ss", title, np.count_nonzero(drawn == number), len(counts), noun)
    return drawn


def draw_blocks(counts: NDArray[np.int64], shares: Sequence[float], seed: int) -> NDArray[np.int8]:
    """Return the split of each block, such that every class comes close to the wanted shares.

    Blocks are put in a random order and cut where the wanted shares of all labels end. Of some
    thousand such draws the best is taken, and then bettered by moving single blocks as long as that helps.

    Parameters
    ----------
    counts : ndarray of int, shape (blocks, classes)
        Labels of each class in each block.
    shares : sequence of 3 floats
        Wanted shares of train, validation and test; their sum is 1.

    Returns
    -------
    ndarray of int8, shape (blocks,)
        Index into `SPLITS`.
    """
    present = counts.sum(axis=0) > 0
    parts = counts[:, present] / counts[:, present].sum(axis=0)
    weights = counts.sum(axis=1) / counts.sum()
    wanted = np.asarray(shares, np.float64)
    rng = np.random.default_rng(seed)
    block_count = len(counts)
    draws = int(np.clip(16 * _CELLS // block_count, _FEWEST_DRAWS, _DRAWS))
    at_once = max(1, _CELLS // block_count)
    best, lowest = np.zeros(block_count, np.int8), np.inf
    for first in range(0, draws, at_once):
        drawn = _drawn(rng, weights, wanted, min(at_once, draws - first))
        cost = _cost(_reached(drawn, parts), wanted)
        if cost.min() < lowest:
            lowest = float(cost.min())
            best = drawn[cost.argmin()]
    return _bettered(best, parts, wanted)


def _drawn(
    rng: np.random.Generator, weights: NDArray[np.float64], wanted: NDArray[np.float64], draws: int
) -> NDArray[np.int8]:
    order = rng.random((draws, len(weights))).argsort(axis=1, kind="stable")
    middle = weights[order].cumsum(axis=1) - weights[order] / 2
    # The last limit is left out: whatever lies beyond the one before it is in the last split with a share.
    used = np.flatnonzero(wanted > 0)
    limits = wanted[used].cumsum()[:-1]
    drawn = np.empty_like(order, np.int8)
    np.put_along_axis(drawn, order, used[np.searchsorted(limits, middle, side="right")].astype(np.int8), axis=1)
    return drawn


def _reached(drawn: NDArray[np.int8], parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each class in each split; shape (draws, splits, classes)."""
    return np.stack([(drawn == split).astype(np.float64) @ parts for split in range(len(SPLITS))], axis=1)


def _cost(reached: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how bad draws are: mean distance from the wanted shares, and 1 for each class that a split lacks."""
    distance = np.abs(reached - wanted[:, None]).sum(axis=1).mean(axis=1)
    lacking = ((reached <= 0) & (wanted[:, None] > 0)).sum(axis=(1, 2))
    cost: NDArray[np.float64] = distance + lacking
    return cost


def _bettered(drawn: NDArray[np.int8], parts: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.int8]:
    drawn = drawn.copy()
    reached = _reached(drawn[None], parts)[0]
    lowest = _cost(reached[None], wanted)[0]
    used = np.flatnonzero(wanted > 0)
    for _ in range(min(len(drawn), _MOST_MOVES)):
        moved = np.repeat(reached[None], len(drawn) * len(used), axis=0).reshape(len(drawn), len(used), *reached.shape)
        blocks = np.arange(len(drawn))
        moved[blocks, :, drawn] -= parts[:, None]
        for place, split in enumerate(used):
            moved[:, place, split] += parts
        # What is left of a class that was moved out wholly is rounding, not presence.
        moved[moved < 1e-12] = 0
        cost = _cost(moved.reshape(-1, *reached.shape), wanted).reshape(len(drawn), len(used))
        if cost.min() > lowest - 1e-9:
            break
        block, target = divmod(int(cost.argmin()), len(used))
        drawn[block], reached, lowest = used[target], moved[block, target], cost.min()
    return drawn


def draw_samples(labels: NDArray[np.integer], shares: Sequence[float], seed: int) -> NDArray[np.int8]:
    """Return the split of each sample, at random within each class.

    Each class is shared out as closely as whole numbers allow; a class of few samples still gives one
    to every split that has a share, the training split first.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
    """
    splits = np.empty(len(labels), np.int8)
    for number in np.unique(labels):
        members = np.flatnonzero(labels == number)
        sizes = _whole_parts(len(members), shares)
        order = np.random.default_rng((seed, int(number))).permutation(len(members))
        splits[members[order]] = np.repeat(np.arange(len(SPLITS), dtype=np.int8), sizes)
    return splits


def taken(
    classes: NDArray[np.integer], training: NDArray[np.bool_], per_class: int | None, balance: bool, seed: int
) -> NDArray[np.bool_]:
    """Return which samples are taken: of the training samples of a class, so many at random as are wanted.

    Parameters
    ----------
    classes : ndarray of int, shape (n,)
    training : ndarray of bool, shape (n,)
        The samples for training; all others are taken.
    per_class : int or None
        Most training samples of a class.
    balance : bool
        As many of each class as there are of the rarest.
    """
    kept = np.ones(len(classes), np.bool_)
    found = {int(number): np.flatnonzero(training & (classes == number)) for number in np.unique(classes[training])}
    limits = [per_class] if per_class is not None else []
    if balance and found:
        limits.append(min(len(members) for members in found.values()))
    for number, members in found.items():
        if limits and len(members) > min(limits):
            order = np.random.default_rng((seed, number, 1)).permutation(len(members))
            kept[members[order[min(limits) :]]] = False
    return kept


def _whole_parts(total: int, shares: Sequence[float]) -> NDArray[np.int64]:
    """Return `total` shared out by largest remainder, with at least 1 for each share above 0 while it lasts."""
    wanted = np.asarray(shares, np.float64) * total
    parts = np.floor(wanted + 1e-9).astype(np.int64)
    for index in np.argsort(parts - wanted, kind="stable")[: total - parts.sum()]:
        parts[index] += 1
    for index in np.flatnonzero((np.asarray(shares) > 0) & (parts == 0)):
        if parts.max() > 1:
            parts[parts.argmax()] -= 1
            parts[index] += 1
    return parts


def too_near(key: BlockKey, splits: Mapping[BlockKey, int], size: int, buffer: int) -> NDArray[np.bool_] | None:
    """Return the pixels of a block that are closer than `buffer` to a block that goes before; None where none is.

    A training pixel gives way to validation and test, a validation pixel to test. The distance of two
    pixels counts the pixels between them, along rows or columns, whichever is more.

    Returns
    -------
    ndarray of bool, shape (size, size)
    """
    frame, row, col = key
    near = np.zeros((size, size), np.bool_)
    reach = -(-buffer // size)
    for down in range(-reach, reach + 1):
        for across in range(-reach, reach + 1):
            if splits.get((frame, row + down, col + across), -1) > splits[key]:
                near[_side(down, size, buffer), _side(across, size, buffer)] = True
    return near if near.any() else None


def _side(steps: int, size: int, buffer: int) -> slice:
    """Return the rows (or columns) of a block that lie within `buffer` of one so many blocks further on."""
    return slice(max(steps * size - buffer, 0), max(min((steps + 1) * size + buffer, size), 0))
