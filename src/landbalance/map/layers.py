"""What a block of probabilities becomes in each of the map's files."""

import numpy as np
from numpy.typing import NDArray

from landbalance.map.blocks import Block

SCALE = 0.004
"""A value of a probability or uncertainty file times this is the share: 0 … 250 are 0 … 1 in steps of 0.4 %."""
NO_SHARE = 255
"""Value of pixels without data in these files."""


def codes(block: Block, nodata: int) -> NDArray[np.uint8]:
    """Return the likeliest class of each pixel, the first of equals; shape (height, width)."""
    best = block.probabilities[0].copy()
    found = np.zeros(best.shape, np.uint8)
    for code, probability in enumerate(block.probabilities[1:], 1):
        better = probability > best
        found[better] = code
        np.copyto(best, probability, where=better)
    found[~block.valid] = nodata
    return found


def probability(block: Block) -> NDArray[np.uint8]:
    """Return the scaled probabilities; shape (classes, height, width)."""
    return scaled(block.probabilities, block.valid)


def confidence(block: Block) -> NDArray[np.uint8]:
    """Return the scaled probability of the likeliest class."""
    return scaled(block.probabilities.max(axis=0), block.valid)


def margin(block: Block) -> NDArray[np.uint8]:
    """Return how far the likeliest class is ahead of the second, scaled."""
    first = np.zeros(block.valid.shape, np.float32)
    second = np.zeros_like(first)
    for each in block.probabilities:
        second = np.maximum(second, np.minimum(first, each))
        first = np.maximum(first, each)
    return scaled(first - second, block.valid)


def entropy(block: Block) -> NDArray[np.uint8]:
    """Return the Shannon entropy of the probabilities over the logarithm of their number, scaled: 0 … 1."""
    total = np.zeros(block.valid.shape, np.float32)
    for each in block.probabilities:
        total -= each * np.log(np.maximum(each, np.finfo(np.float32).tiny))
    return scaled(total / np.log(len(block.probabilities)), block.valid)


def scaled(shares: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return shares (…, height, width) from 0 to 1 as whole numbers of `SCALE`, `NO_SHARE` where not `valid`."""
    values: NDArray[np.uint8] = np.rint(np.clip(shares, 0, 1) * np.float32(1 / SCALE)).astype(np.uint8)
    values[..., ~valid] = NO_SHARE
    return values
