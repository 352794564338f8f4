import numpy as np
import pytest

from landbalance import bootstrap
from landbalance.bootstrap import interval, resampled


def sums(units: np.ndarray, resamples: int) -> np.ndarray:
    return np.concatenate(list(resampled(units, resamples)))


@pytest.mark.parametrize("count", [3, 8, 40])
def test_variance_of_a_mean_is_the_unbiased_one(count: int) -> None:
    """The mean of n units varies by s² / n; drawing n of n would give (n - 1) / n of that, two thirds for three."""
    values = np.random.default_rng(count).normal(size=count)
    found = sums(np.stack([values, np.ones(count)], axis=1), 40_000)
    assert (found[:, 1] == count - 1).all()
    assert (found[:, 0] / found[:, 1]).var() == pytest.approx(values.var(ddof=1) / count, rel=0.04)


def test_covers_the_truth_where_pixels_of_a_unit_are_alike() -> None:
    """Accuracy differs from block to block: blocks give a 95 % interval, pixels one that mostly misses."""
    generator = np.random.default_rng(1)
    truth, covered, by_pixel = 0.7, 0, 0
    for _ in range(300):
        accuracy = generator.beta(7, 3, 40)  # mean 0.7
        hits = generator.binomial(500, accuracy)
        found = sums(np.stack([hits, np.full(40, 500)], axis=1).astype(float), 400)
        low, high = interval(found[:, 0] / found[:, 1], 0.95)
        covered += low <= truth <= high
        share = hits.sum() / 20_000
        by_pixel += abs(share - truth) <= 1.96 * np.sqrt(share * (1 - share) / 20_000)
    assert 0.90 <= covered / 300 <= 0.98
    assert by_pixel / 300 < 0.4


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    units = np.random.default_rng(2).integers(0, 50, (7, 4)).astype(float)
    whole = sums(units, 100)
    monkeypatch.setattr(bootstrap, "_AT_ONCE", 21)
    assert (sums(units, 100) == whole).all()


def test_undefined_resamples_are_left_out() -> None:
    assert interval(np.array([np.nan, 1.0, 2.0, 3.0, np.nan]), 0.5) == (1.5, 2.5)
    assert interval(np.full(5, np.nan), 0.95) is None
