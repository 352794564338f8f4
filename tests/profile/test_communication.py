"""Latency and bandwidth from timings of sums."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.profile.communication import fitted

SIZES = [4, 10_000, 40_000, 160_000, 640_000]


@given(st.floats(1e-6, 1e-2), st.floats(1e6, 1e11))
def test_a_line_is_found_again(latency, bandwidth):
    found, speed = fitted(SIZES, [latency + size / bandwidth for size in SIZES])
    assert found == pytest.approx(latency, rel=1e-3)
    if SIZES[-1] / bandwidth > 1e-3 * latency:
        assert speed == pytest.approx(bandwidth, rel=1e-2)


def test_small_sums_count_as_much_as_large_ones():
    """A large sum that is 10 % late would hide a latency of 20 µs, were not errors relative."""
    seconds = [20e-6 + size / 1e8 for size in SIZES]
    latency, _ = fitted(SIZES, [*seconds[:-1], 1.1 * seconds[-1]])
    assert latency == pytest.approx(20e-6, rel=0.1)


def test_no_latency_below_zero_and_no_speed_without_a_slope():
    latency, bandwidth = fitted([1000, 2000], [0.5e-3, 2e-3])
    assert latency == 0 and 1e6 < bandwidth < 2e6
    assert fitted([1, 1000], [2.0, 1.0]) == (1.5, None)
