import numpy as np
import pytest

from landbalance.evaluate.calibration import calibration, counted


def test_by_hand() -> None:
    confidence = np.array([0.9, 0.9, 0.9, 0.9, 0.5, 0.5], np.float32)
    hits = np.array([1, 1, 1, 0, 1, 0], bool)
    result = calibration(counted(confidence, hits))
    assert result["expected_error"] == pytest.approx((4 * abs(0.75 - 0.9) + 2 * 0) / 6, abs=1e-6)
    (low, high) = [item for item in result["bins"] if item["samples"]]
    assert (low["samples"], low["accuracy"], low["confidence"]) == (2, 0.5, pytest.approx(0.5))
    assert (high["samples"], high["accuracy"], high["confidence"]) == (4, 0.75, pytest.approx(0.9, abs=1e-6))
    assert high["low"] < 0.9 <= high["high"]
    empty = result["bins"][0]
    assert (empty["samples"], empty["accuracy"], empty["confidence"]) == (0, None, None)


def test_limits_belong_to_a_bin() -> None:
    counts = counted(np.array([0.0, 1 / 15, 1.0], np.float64).astype(np.float32), np.ones(3, bool))
    assert counts[0].sum() == 3
    assert (counts[0][0], counts[0][-1]) in [(2, 1), (1, 1)]  # 1/15 is not a float
    assert counted(np.array([0.2, 1.0], np.float32), np.ones(2, bool))[0].nonzero()[0].tolist() == [3, 14]


def test_a_network_that_knows_what_it_knows() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(200_000).astype(np.float32)
    assert calibration(counted(confidence, generator.random(200_000) < confidence))["expected_error"] < 0.01
    assert calibration(counted(confidence, np.zeros(200_000, bool)))["expected_error"] == pytest.approx(0.5, abs=0.01)


def test_order_and_batches_change_nothing() -> None:  # C24
    generator = np.random.default_rng(1)
    confidence, hits = generator.random(1_000).astype(np.float32), generator.random(1_000) < 0.5
    order = generator.permutation(1_000)
    parts = sum(counted(confidence[part], hits[part]) for part in np.array_split(order, 7))
    assert calibration(parts) == calibration(counted(confidence, hits))


def test_nothing_judged() -> None:
    assert calibration(counted(np.empty(0, np.float32), np.empty(0, bool)))["expected_error"] is None
