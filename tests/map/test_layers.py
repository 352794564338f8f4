"""What probabilities become: codes and scaled quantities, checked against their definitions in float64."""

from typing import Any

import numpy as np
import pytest

from landbalance.map import layers
from landbalance.map.blocks import Block


@pytest.fixture
def block() -> Block:
    random = np.random.default_rng(0)
    shares = random.dirichlet([0.5] * 5, (30, 40)).astype(np.float32)
    shares[0, 0] = [0.2] * 5
    shares[0, 1] = [0, 0, 1, 0, 0]
    valid = random.random((30, 40)) < 0.8
    valid[0, :2] = True
    return Block(0, 0, np.moveaxis(shares, -1, 0), valid)


def test_codes_are_the_first_of_the_likeliest(block: Block) -> None:
    wanted = np.where(block.valid, block.probabilities.argmax(axis=0), 77)
    assert (layers.codes(block, 77) == wanted).all()
    assert layers.codes(block, 77)[0, 0] == 0


def shares_of(name: str, probabilities: Any) -> Any:
    ordered = np.sort(probabilities.astype(np.float64), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(ordered > 0, ordered * np.log(ordered), 0)
    return {
        "probability": probabilities,
        "confidence": ordered[-1],
        "margin": ordered[-1] - ordered[-2],
        "entropy": -terms.sum(axis=0) / np.log(len(ordered)),
    }[name]


@pytest.mark.parametrize("name", ["probability", "confidence", "margin", "entropy"])
def test_quantities_are_within_half_a_step(block: Block, name: str) -> None:
    found = getattr(layers, name)(block)
    wanted = shares_of(name, block.probabilities)
    assert (found.dtype, found.shape) == (np.uint8, wanted.shape)
    assert (found[..., ~block.valid] == layers.NO_SHARE).all()
    assert found[..., block.valid].max() <= 250
    assert np.abs(found * layers.SCALE - wanted)[..., block.valid].max() <= layers.SCALE / 2 + 1e-6
