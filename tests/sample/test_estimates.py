"""Against published numbers, against the formulas written out point by point, and against a known population."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbalance.sample.estimates import estimates

# Olofsson et al. (2014), table 8: rows = map, so a row is a stratum; pixels of 30 m.
OLOFSSON = np.array([[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]])
MAPPED = np.array([200_000, 150_000, 3_200_000, 6_450_000])

# Stehman (2014), table 2: stratum, map and reference class of 40 points.
STRATUM = "AAAAAAAAAABBBBBBBBBBCCCCCCCCCCDDDDDDDDDD"
MAP = "AAAAAAABBBABBBBBBBBBBBCCCCCCBBDDDDDDDDDD"
REFERENCE = "AAAAACBABCABBBBBAABBCCCCCDDBBADDDDDDDCCB"


def by_map(matrix: np.ndarray) -> np.ndarray:
    """Return the tally of a sample whose strata are the map's classes."""
    counts = np.zeros((len(matrix), *matrix.shape), np.int64)
    for stratum, row in enumerate(matrix):
        counts[stratum, :, stratum] = row
    return counts


def tally(stratum: np.ndarray, reference: np.ndarray, mapped: np.ndarray, strata: int, classes: int) -> np.ndarray:
    counts = np.zeros((strata, classes, classes), np.int64)
    np.add.at(counts, (stratum, reference, mapped), 1)
    return counts


def test_olofsson() -> None:
    found = estimates(by_map(OLOFSSON), MAPPED)
    assert found.overall.value == pytest.approx(0.9465, abs=5e-5)
    assert found.overall.half_width(0.95) == pytest.approx(0.0185, abs=5e-5)
    assert [item.value for item in found.users] == pytest.approx([0.88, 0.7333, 0.9273, 0.9631], abs=5e-5)
    assert [item.half_width(0.95) for item in found.users] == pytest.approx([0.0740, 0.1008, 0.0397, 0.0205], abs=5e-5)
    assert [item.value for item in found.producers] == pytest.approx([0.7487, 0.8472, 0.9345, 0.9616], abs=5e-5)
    halves = [item.half_width(0.95) for item in found.producers]
    assert halves == pytest.approx([0.2133, 0.2544, 0.0343, 0.0184], abs=5e-5)
    hectares = MAPPED.sum() * 0.09
    areas = [item.value * hectares for item in found.areas]
    assert areas == pytest.approx([21157.8, 11686.2, 285769.9, 581386.2], abs=0.06)
    halves = [item.half_width(0.95) * hectares for item in found.areas]
    assert halves == pytest.approx([6157.5, 3755.8, 15509.6, 16281.4], abs=0.06)


def test_stehman() -> None:
    """Published to three decimals: A 0.35 (SE 0.082), C 0.20 (0.064), overall 0.63 (0.085), B 0.574 and 0.794."""
    stratum, reference, mapped = (np.array(["ABCD".index(c) for c in text]) for text in (STRATUM, REFERENCE, MAP))
    found = estimates(tally(stratum, reference, mapped, 4, 4), np.array([40_000, 30_000, 20_000, 10_000]))
    assert (found.areas[0].value, found.areas[2].value) == (pytest.approx(0.35), pytest.approx(0.20))
    assert found.areas[0].standard_error == pytest.approx(0.082, abs=5e-4)
    assert found.areas[2].standard_error == pytest.approx(0.064, abs=5e-4)
    assert found.overall.value == pytest.approx(0.63)
    assert found.overall.standard_error == pytest.approx(0.085, abs=5e-4)
    assert found.users[1].value == pytest.approx(0.574, abs=5e-4)
    assert found.producers[1].value == pytest.approx(0.794, abs=5e-4)
    assert found.proportions[2, 1] == pytest.approx(0.08)  # C on the ground, B on the map


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_formulas_point_by_point(seed: int) -> None:
    """Stehman's sums over points, with numpy's sample variances and covariances."""
    generator = np.random.default_rng(seed)
    strata, classes = 3, 3
    points = generator.integers(2, 12, strata)
    stratum = np.repeat(np.arange(strata), points)
    reference, mapped = generator.integers(0, classes, (2, len(stratum)))
    pixels = generator.integers(20, 5_000, strata)
    found = estimates(tally(stratum, reference, mapped, strata, classes), pixels)

    def total(y: np.ndarray) -> float:
        return sum(pixels[h] * y[stratum == h].mean() for h in range(strata))

    def variance(y: np.ndarray, x: np.ndarray, ratio: float) -> float:
        parts = 0.0
        for h in range(strata):
            both = np.cov(y[stratum == h], x[stratum == h], ddof=1)
            parts += pixels[h] ** 2 * (both[0, 0] + ratio**2 * both[1, 1] - 2 * ratio * both[0, 1]) / points[h]
        return parts

    right = (reference == mapped).astype(float)
    everywhere = np.ones(len(stratum))
    assert found.overall.value == pytest.approx(total(right) / pixels.sum())
    assert found.overall.standard_error == pytest.approx(np.sqrt(variance(right, everywhere, 0)) / pixels.sum())
    for item in range(classes):
        for estimate, whole in ((found.users[item], mapped == item), (found.producers[item], reference == item)):
            x = whole.astype(float)
            if not x.any():
                assert estimate is None
                continue
            ratio = total(right * x) / total(x)
            assert estimate.value == pytest.approx(ratio)
            wanted = np.sqrt(max(variance(right * x, x, ratio), 0)) / total(x)
            assert estimate.standard_error == pytest.approx(wanted, abs=1e-7)
        assert found.areas[item].value == pytest.approx(total((reference == item).astype(float)) / pixels.sum())
    assert found.proportions.sum() == pytest.approx(1)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """A map of known errors, sampled again and again; the share of right pixels in it is 0.77."""
    generator = np.random.default_rng(0)
    shares = np.array([[0.9, 0.1], [0.25, 0.75]])  # of reference by stratum (class on the map)
    pixels = np.array([2_000, 13_000])
    truth = (pixels[0] * 0.9 + pixels[1] * 0.75) / pixels.sum()
    area = (pixels[0] * 0.9 + pixels[1] * 0.25) / pixels.sum()
    covered = np.zeros(2)
    for _ in range(400):
        matrix = np.stack([generator.multinomial(80, row) for row in shares])
        found = estimates(by_map(matrix), pixels)
        for number, (estimate, right) in enumerate(((found.overall, truth), (found.areas[0], area))):
            low, high = estimate.interval(0.95)
            covered[number] += low <= right <= high
    assert (covered / 400 >= 0.92).all() and (covered / 400 <= 0.98).all()


def test_mapped_but_not_on_the_ground_and_the_other_way_round() -> None:
    counts = np.zeros((2, 3, 3), np.int64)
    counts[0, 0, 0], counts[0, 2, 0] = 8, 2  # class 2 occurs, and is never mapped
    counts[1, 0, 1] = 10  # class 1 is mapped, and never occurs
    found = estimates(counts, np.array([500, 500]))
    assert found.producers[1] is None and found.users[1].value == 0
    assert found.users[2] is None and found.producers[2].value == 0
    assert found.areas[2].value == pytest.approx(0.1)


def test_stratum_with_one_point_is_refused_unless_it_is_one_pixel() -> None:
    counts = by_map(np.array([[5, 5], [0, 1]]))
    with pytest.raises(ValueError, match="fewer than two"):
        estimates(counts, np.array([100, 2]))
    assert estimates(counts, np.array([100, 1])).users[1].standard_error == 0


def test_interval_stays_between_0_and_1() -> None:
    low, high = estimates(by_map(np.array([[9, 1], [1, 9]])), np.array([50, 50])).users[0].interval(0.999)
    assert (low > 0, high) == (True, 1)
