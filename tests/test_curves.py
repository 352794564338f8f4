import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.curves import isotonic, time_curve


def test_passes_through_medians_and_is_linear_between() -> None:
    curve = time_curve([1, 4, 8], [[1.0, 1.0, 9.0], [4.0, 3.9, 4.1], [6.0, 6.0, 6.0]], cap=None)
    np.testing.assert_allclose(curve.seconds([0, 1, 2, 4, 6, 8]), [0, 1, 2, 4, 5, 6])


def test_noise_that_falls_is_pooled_by_weight() -> None:
    np.testing.assert_allclose(isotonic(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4)), [1, 2.5, 2.5, 4])
    np.testing.assert_allclose(isotonic(np.array([3.0, 0.0]), np.array([1.0, 3.0])), [0.75, 0.75])


@given(st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 5)), min_size=1, max_size=6))
def test_isotonic_is_the_nearest_non_decreasing_sequence(points: list[tuple[float, int]]) -> None:
    values, weights = np.array([value for value, _ in points]), np.array([float(weight) for _, weight in points])
    found = isotonic(values, weights)
    # The min–max formula of isotonic regression.
    mean = {
        (low, high): np.average(values[low : high + 1], weights=weights[low : high + 1])
        for low in range(len(values))
        for high in range(low, len(values))
    }
    wanted = [
        max(min(mean[low, high] for high in range(at, len(values))) for low in range(at + 1))
        for at in range(len(values))
    ]
    np.testing.assert_allclose(found, wanted)


def test_goes_on_at_the_last_slope_but_promises_no_speed_that_was_not_measured() -> None:
    rising = time_curve([1, 2, 4], [[1.0], [2.0], [6.0]], cap=None)
    assert rising.seconds(6) == pytest.approx(6 + 2 * 2.0)
    flat = time_curve([1, 2, 4], [[1.0], [4.0], [4.0]], cap=None)
    assert flat.seconds(8) == pytest.approx(8.0)  # still 1 sample per second
    assert flat.measured == 4


@pytest.mark.parametrize(
    ("times", "single"),
    [
        ([4.0, 6.0], 2.5),  # a fixed part of 2 and 0.5 a sample
        ([4.0, 16.0], 1.0),  # steeper than proportional: not below a quarter of 4 samples
        ([4.0, 4.0], 4.0),  # all fixed
    ],
)
def test_below_the_smallest_size(times: list[float], single: float) -> None:
    assert time_curve([4, 8], [[time] for time in times], cap=None).seconds(1) == pytest.approx(single)


def test_a_single_size_gives_one_speed() -> None:
    curve = time_curve([8], [[2.0]], cap=None)
    np.testing.assert_allclose(curve.seconds([0, 1, 8, 16]), [0, 0.25, 2, 4])


def test_above_the_cap_the_batch_is_computed_in_rounds() -> None:
    curve = time_curve([1, 2, 4], [[2.0], [3.0], [5.0]], cap=4)
    np.testing.assert_allclose(curve.seconds([4, 5, 8, 11]), [5, 5 + 2, 10, 10 + 4])


@given(
    st.lists(st.lists(st.floats(1e-3, 10), min_size=1, max_size=5), min_size=1, max_size=6),
    st.integers(1, 5),
    st.none() | st.integers(1, 40),
)
def test_more_samples_never_take_less_time(timings: list[list[float]], first: int, cap: int | None) -> None:
    sizes = [first * 2**power for power in range(len(timings))]
    seconds = time_curve(sizes, timings, cap).seconds(np.arange(3 * sizes[-1]))
    assert seconds[0] == 0 < seconds[1]
    assert (np.diff(seconds) >= -1e-12 * seconds[1:]).all()
