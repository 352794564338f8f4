"""Where to measure: the adaptive rule on curves whose shape is known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbalance.profile.points import equal, finishing_together, intervals, most_within, seconds_at, worst_interval

TOLERANCE = 0.025


def measured_by_the_rule(curve, ends, tolerance=TOLERANCE):
    """Return the times that the rule asks for, starting with the ends."""
    times = {size: curve(size) for size in ends}
    while worst := worst_interval(intervals(times), tolerance):
        assert worst.middle not in times
        times[worst.middle] = curve(worst.middle)
    return times


slopes = st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    fixed=st.floats(0.001, 1.0),
    slopes=slopes,
    kinks=st.lists(st.integers(2, 250), min_size=6, max_size=6),
    convex=st.booleans(),
    start=st.integers(40, 200),
)
def test_a_bent_curve_is_known_to_twice_the_tolerance(fixed, slopes, kinks, convex, start):
    """Convex curves (a cache that overflows) and concave ones (a GPU that fills), with kinks anywhere."""
    ordered = sorted(slopes, reverse=not convex)
    starts = [0, *sorted(kinks)[: len(ordered) - 1]]

    def curve(size):
        ends = [*starts[1:], math.inf]
        parts = (
            slope * max(min(size, end) - begin, 0) for slope, begin, end in zip(ordered, starts, ends, strict=True)
        )
        return fixed + sum(parts)

    times = measured_by_the_rule(curve, (1, start, 256))
    for part in intervals(times):
        if part.narrow:
            continue
        for size in range(part.low, part.high + 1):
            assert abs(seconds_at(times, size) - curve(size)) <= 2.001 * TOLERANCE * curve(size)


def test_a_straight_line_needs_one_size_in_between():
    assert sorted(measured_by_the_rule(lambda size: 0.1 + 0.02 * size, (1, 256))) == [1, 128, 256]


def test_sizes_gather_where_the_curve_bends():
    times = measured_by_the_rule(lambda size: max(1.0, size / 50), (1, 1024))
    around, away = (sum(low <= size <= high for size in times) for low, high in ((25, 100), (512, 1024)))
    assert around >= away + 2


def test_doubt_is_no_bend():
    times = {1: 1.0, 256: 1.0, 128: 1.2}
    assert worst_interval(intervals(times), TOLERANCE).error == pytest.approx(0.2, rel=0.02)
    assert worst_interval(intervals(times, {128: 0.25}), TOLERANCE) is None


def test_a_cut_off_centre_leaves_more_open():
    """A gap near an end says little of the middle."""
    centre, edge = (max(part.error for part in intervals({0: 1.0, 100: 1.0, cut: 1.1})) for cut in (50, 10))
    assert edge == pytest.approx(5 * centre)


limits_of_six = st.lists(st.one_of(st.none(), st.integers(1, 60)), min_size=6, max_size=6)
speeds = st.lists(st.tuples(st.floats(0.0, 0.5), st.floats(0.001, 1.0)), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    lines=speeds,
    batch=st.integers(1, 300),
    caps=st.lists(st.one_of(st.none(), st.integers(1, 60)), min_size=6, max_size=6),
)
def test_shares_that_finish_together(lines, batch, caps):
    curves = [{size: fixed + each * size for size in (1, 300)} for fixed, each in lines]
    caps = caps[: len(lines)]
    limits = [batch if cap is None else min(cap, batch) for cap in caps]
    shares = finishing_together(curves, batch, caps)
    assert sum(shares) == min(batch, sum(limits))
    assert all(0 <= share <= limit for share, limit in zip(shares, limits, strict=True))
    # Nobody could hand a sample to another one and both be done before the step is.
    times = [seconds_at(curve, share) for curve, share in zip(curves, shares, strict=True)]
    last = max(times)
    for curve, share, limit in zip(curves, shares, limits, strict=True):
        if share < limit and times.count(last) == 1:
            assert seconds_at(curve, share + 1) >= last * (1 - 1e-9)


@given(lines=speeds, seconds=st.floats(0.0, 10.0), cap=st.integers(0, 100))
def test_most_within_is_the_most(lines, seconds, cap):
    curve = {size: lines[0][0] + lines[0][1] * size for size in (1, 80)}
    most = most_within(curve, seconds, cap)
    assert seconds_at(curve, most) <= seconds
    assert most == cap or seconds_at(curve, most + 1) > seconds


def test_equal_shares_differ_by_one_at_most():
    assert equal(32, 3) == [11, 11, 10]
