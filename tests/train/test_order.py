import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.train.order import epoch_order, proportional, slice_of, steps_per_epoch

SHARES = st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any)


@given(SHARES, st.integers(1, 200), st.integers(0, 5))
def test_each_sample_is_used_once_per_epoch_whatever_the_shares(shares, samples, epoch):
    order = epoch_order(np.arange(samples), seed=3, epoch=epoch)
    steps = steps_per_epoch(samples, sum(shares))
    taken = [slice_of(step, order, shares, rank) for step in range(steps) for rank in range(len(shares))]
    assert np.concatenate(taken).tolist() == order.tolist()


@given(SHARES, SHARES, st.integers(1, 200))
def test_the_samples_of_a_step_do_not_depend_on_the_split(one, other, samples):
    other = [*other, 0]
    other[-1] = max(sum(one) - sum(other), 0)
    if sum(other) != sum(one):
        return
    order = epoch_order(np.arange(samples), seed=0, epoch=0)
    for step in range(steps_per_epoch(samples, sum(one))):
        sets = [
            np.concatenate([slice_of(step, order, shares, r) for r in range(len(shares))]) for shares in (one, other)
        ]
        assert sets[0].tolist() == sets[1].tolist()


@given(st.integers(0, 1000), SHARES)
def test_proportions_are_off_by_less_than_one(count, shares):
    sizes = proportional(count, shares)
    assert sum(sizes) == count
    assert all(abs(size - count * share / sum(shares)) < 1 for size, share in zip(sizes, shares, strict=True))


def test_a_small_last_batch_may_leave_a_worker_without_samples():
    assert proportional(5, [15, 1]) == [5, 0]


def test_the_order_differs_between_epochs_and_seeds_and_is_repeatable():
    ids = np.arange(100)
    assert epoch_order(ids, 1, 0).tolist() == epoch_order(ids, 1, 0).tolist()
    assert epoch_order(ids, 1, 0).tolist() != epoch_order(ids, 1, 1).tolist()
    assert epoch_order(ids, 1, 0).tolist() != epoch_order(ids, 2, 0).tolist()


@pytest.mark.parametrize(("samples", "batch", "steps"), [(10, 5, 2), (11, 5, 3), (4, 5, 1)])
def test_the_last_step_takes_what_is_left(samples, batch, steps):
    assert steps_per_epoch(samples, batch) == steps
