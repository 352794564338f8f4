import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.train.rebalance import NOTICE, PATIENCE, WINDOW, Change, Shares, Watch, faster_shares


def linear(per_sample, batch=32):
    return np.arange(batch + 1) * per_sample


def watched(seconds_of, shares, steps, tables=None):
    """Return the changes that a watch asks for when step k takes ``seconds_of(k)`` a sample on each worker."""
    tables = tables or [linear(0.01), linear(0.01)]
    watch = Watch(tables, ["one", "two"])
    found = [watch.change(step, shares, np.array(shares) * seconds_of(step)) for step in range(steps)]
    return [change for change in found if change]


def test_a_worker_that_became_three_times_slower_keeps_a_quarter():
    (change,) = watched(lambda step: np.array([0.01, 0.03]), [16, 16], PATIENCE * WINDOW)
    assert change.shares == [24, 8]
    assert change.step == PATIENCE * WINDOW - 1 + NOTICE
    assert "worker 1 (two) computes 16 samples in 0.480 s, not in 0.160 s" in change.reason
    assert "falls from 0.480 s to 0.240 s" in change.reason


def test_noise_and_a_single_bad_window_move_nothing():
    random = np.random.default_rng(0)
    noisy = lambda step: 0.01 * random.lognormal(0, 0.3, 2)  # noqa: E731
    assert watched(noisy, [16, 16], 50 * WINDOW) == []
    hiccup = lambda step: np.array([0.01, 0.03 if WINDOW <= step < 2 * WINDOW else 0.01])  # noqa: E731
    assert watched(hiccup, [16, 16], 6 * WINDOW) == []


def test_a_gain_too_small_to_matter_moves_nothing():
    assert watched(lambda step: np.array([0.01, 0.0115]), [16, 16], 10 * WINDOW) == []


def test_shares_by_step_follow_the_plan_and_then_the_changes():
    shares = Shares([16, 16])
    shares.changes += [Change(10, [24, 8], ""), Change(20, [20, 12], "")]
    assert [shares.at(step) for step in (0, 9, 10, 19, 20, 99)] == [
        [16, 16], [16, 16], [24, 8], [24, 8], [20, 12], [20, 12],
    ]  # fmt: skip


@given(
    speeds=st.lists(st.floats(0.001, 1), min_size=2, max_size=4),
    fixed=st.floats(0, 0.1),
    batch=st.integers(4, 14),
)
def test_no_other_shares_are_faster(speeds, fixed, batch):
    tables = [np.where(np.arange(batch + 1) > 0, fixed + linear(speed, batch), 0.0) for speed in speeds]
    shares = faster_shares(tables, batch)
    assert sum(shares) == batch
    assert min(shares) >= 1
    finish = max(table[share] for table, share in zip(tables, shares, strict=True))
    assert finish == pytest.approx(min(finishes(tables, batch)))


def finishes(tables, batch):
    if len(tables) == 1:
        yield tables[0][batch]
        return
    for share in range(1, batch - len(tables) + 2):
        for rest in finishes(tables[1:], batch - share):
            yield max(tables[0][share], rest)
