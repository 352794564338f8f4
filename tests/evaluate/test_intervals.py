import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from landbalance.evaluate.accuracy import MEASURES, scores
from landbalance.evaluate.intervals import intervals, measures

NAMES = ["a", "b", "c"]


@given(arrays(np.int64, (4, 3, 3), elements=st.integers(0, 9)))
def test_measures_are_those_of_one_matrix(matrices: np.ndarray) -> None:
    found = measures(matrices.astype(float))
    for number, matrix in enumerate(matrices):
        wanted = scores(matrix, NAMES)

        def same(name: str, value: float | None, *place: int) -> None:
            got = found[name][place]
            assert np.isnan(got) if value is None else got == pytest.approx(value, abs=1e-12), name

        same("overall_accuracy", wanted.overall_accuracy, number)
        same("kappa", wanted.kappa, number)
        for item in MEASURES:
            same(f"macro {item}", wanted.macro[item], number)
            same(f"weighted {item}", wanted.weighted[item], number)
            for column, row in enumerate(wanted.per_class):
                same(item, getattr(row, item), number, column)


def blocks(count: int = 30) -> np.ndarray:
    generator = np.random.default_rng(0)
    right = generator.beta(6, 2, count)
    each = np.zeros((count, 3, 3), np.int64)
    for number, share in enumerate(right):
        hits = generator.binomial(200, share)
        each[number, 0, 0], each[number, 0, 1] = hits, 200 - hits
        each[number, 1, 1], each[number, 1, 0] = 150, 50
    return each


def test_holds_the_estimate_and_is_wider_than_that_of_pixels() -> None:
    each = blocks()
    result = intervals(each, NAMES, "block", 1_000, 0.95)
    whole = scores(each.sum(axis=0), NAMES)
    for name in ("overall_accuracy", "kappa"):
        low, high = result[name]
        assert low < getattr(whole, name) < high
    low, high = result["overall_accuracy"]
    by_pixel = 1.96 * np.sqrt(whole.overall_accuracy * (1 - whole.overall_accuracy) / each.sum())
    assert (high - low) / 2 > 3 * by_pixel
    assert (result["unit"], result["units"], result["resamples"], result["level"]) == ("block", 30, 1_000, 0.95)
    narrower = intervals(each, NAMES, "block", 1_000, 0.5)["overall_accuracy"]
    assert low < narrower[0] < narrower[1] < high
    json.dumps(result, allow_nan=False)


def test_class_that_does_not_occur_has_none() -> None:  # C23
    result = intervals(blocks(), NAMES, "block", 200, 0.95)
    assert result["per_class"][2] == {"name": "c", "units": 0, **dict.fromkeys(MEASURES)}
    assert result["per_class"][0]["producers_accuracy"] is not None
    assert result["macro"]["f1"] is not None


def test_class_of_one_block_has_none() -> None:
    """Its samples are drawn together or not at all: a width of zero would be a lie."""
    each = blocks()
    each[4, 2] = [3, 0, 7]
    row = intervals(each, NAMES, "block", 500, 0.95)["per_class"][2]
    assert (row["units"], row["producers_accuracy"], row["users_accuracy"]) == (1, None, None)
    each[5, 2] = [1, 0, 1]
    row = intervals(each, NAMES, "block", 500, 0.95)["per_class"][2]
    assert row["units"] == 2
    assert row["producers_accuracy"] == [0.5, 0.7] or row["producers_accuracy"] == (0.5, 0.7)


def test_one_block_gives_no_interval() -> None:
    each = np.concatenate([blocks(1), np.zeros((3, 3, 3), np.int64)])
    result = intervals(each, NAMES, "block", 200, 0.95)
    assert (result["units"], result["overall_accuracy"], result["macro"]["f1"]) == (1, None, None)
