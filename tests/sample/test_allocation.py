import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.sample.allocation import allocated, expected_error, sample_size


def test_size_by_hand() -> None:
    """Two strata of half the area, U = 0.9 and 0.5: (0.5·0.3 + 0.5·0.5)² / (0.02² + 0.5·(0.09 + 0.25) / N)."""
    pixels = np.array([5_000, 5_000])
    assert sample_size(pixels, np.array([0.9, 0.5]), 0.02) == np.ceil(0.16 / (0.0004 + 0.17 / 10_000))


def test_olofssons_example() -> None:
    """Section 5.1: shares 0.02, 0.015, 0.32, 0.645; user's accuracies 0.7, 0.6, 0.9, 0.95; standard error 0.01: 641."""
    pixels = np.array([200_000, 150_000, 3_200_000, 6_450_000])
    assert sample_size(pixels, np.array([0.7, 0.6, 0.9, 0.95]), 0.01) == 641


def test_size_reaches_the_standard_error() -> None:
    pixels, accuracies = np.array([10**6, 4 * 10**6, 2 * 10**5]), np.array([0.6, 0.9, 0.3])
    for target in (0.05, 0.02, 0.01):
        total = sample_size(pixels, accuracies, target)
        # Neyman's shares, for which Cochran's formula is exact.
        best = pixels * np.sqrt(accuracies * (1 - accuracies))
        variance = (pixels**2 * accuracies * (1 - accuracies) / (total * best / best.sum())).sum() / pixels.sum() ** 2
        assert np.sqrt(variance) == pytest.approx(target, rel=0.01)


def test_rare_classes_are_raised_and_the_rest_goes_by_area() -> None:
    pixels = np.array([200_000, 150_000, 3_200_000, 6_450_000])
    points = allocated(pixels, 641, 75)
    assert points[:2].tolist() == [75, 75]
    assert points.sum() == 641
    assert points[2] / points[3] == pytest.approx(3.2 / 6.45, abs=0.01)


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=9), st.integers(2, 3_000), st.integers(2, 100))
def test_every_class_gets_its_least(pixels: list[int], total: int, fewest: int) -> None:
    sizes = np.array(pixels)
    points = allocated(sizes, total, fewest)
    assert (points <= sizes).all()
    assert (points >= np.minimum(sizes, fewest)).all()
    least = np.minimum(sizes, fewest).sum()
    if total >= least and (points < sizes).all():
        assert points.sum() == total
    if total < least:
        assert points.sum() == least


def test_expected_errors() -> None:
    overall, users = expected_error(np.array([100, 300]), np.array([51, 101]), np.array([0.5, 0.9]))
    assert users == pytest.approx([np.sqrt(0.25 / 50), np.sqrt(0.09 / 100)])
    assert overall == pytest.approx(np.sqrt(0.25**2 * 0.005 + 0.75**2 * 0.0009))
