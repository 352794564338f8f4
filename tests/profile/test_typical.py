"""What raw timings say: the location, its interval, and which timings are outliers."""

import math
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.profiles import typical

timings = st.lists(st.floats(0.001, 100.0), min_size=1, max_size=60)


@given(timings, st.integers(0, 10_000), st.floats(0.5, 2.0))
def test_order_does_not_matter_and_units_carry_over(values, seed, unit):
    found = typical(values)
    shuffled = random.Random(seed).sample(values, len(values))
    assert typical(shuffled) == found
    scaled = typical([unit * value for value in values])
    assert scaled.median == pytest.approx(unit * found.median, rel=0.2)


@given(timings)
def test_every_timing_counts_or_is_named(values):
    found = typical(values)
    kept = list(values)
    for outlier in found.outliers:
        kept.remove(outlier)
    assert len(kept) >= len(values) / 2
    assert found.median == pytest.approx(median(kept))
    assert found.low <= found.median <= found.high
    assert math.isinf(found.high) == (len(kept) < 6)


@given(st.lists(st.floats(1.0, 1.1), min_size=8, max_size=40), st.floats(1.8, 1e6))
def test_a_step_that_came_late_does_not_move_the_location(values, late):
    assert min(values) <= typical([*values, late]).median <= max(values)
    assert late in typical([*values, late]).outliers


def test_a_far_one_is_an_outlier_and_a_near_one_is_not():
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06]
    assert typical([*values, 3.0]).outliers == (3.0,)
    assert typical([*values, 0.2]).outliers == (0.2,)
    assert typical([*values, 1.1]).outliers == ()


@pytest.mark.parametrize(
    "draw", [lambda r: r.lognormvariate(0, 0.5), lambda r: 1 + r.random(), lambda r: r.gauss(5, 1)]
)
@pytest.mark.parametrize("count", [6, 13, 40])
def test_the_interval_holds_the_true_median(draw, count):
    """At least 95 of 100 intervals do (less 2 for what the outlier rule takes, and for chance)."""
    chance = random.Random(3)
    truth = median(draw(chance) for _ in range(20_001))
    trials = [typical([draw(chance) for _ in range(count)]) for _ in range(1000)]
    assert sum(found.low <= truth <= found.high for found in trials) >= 930


def test_more_timings_narrow_it():
    chance = random.Random(0)
    few, many = (typical([1 + chance.random() for _ in range(count)]) for count in (10, 400))
    assert many.half_width < few.half_width / 3
    huge = typical([1 + chance.random() for _ in range(3000)])
    assert huge.half_width < many.half_width
