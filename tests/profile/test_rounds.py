"""Which rounds are taken, on workers whose speed is known."""

import math
import random

import pytest

from landbalance.profile.points import seconds_at
from landbalance.profile.rounds import Rounds, Visit, is_lone


def simulated(speeds, batches, budget=60.0, noise=0.002, kinds=None, caps=None, overhead=0.0, seed=0):
    """Let workers that take `speeds[kind](size)` seconds be measured; return the rounds and the seconds it took."""
    chance = random.Random(seed)
    kinds = kinds or list(range(len(speeds)))
    rounds = Rounds(
        kinds=kinds,
        batches=batches,
        caps=caps or [None] * len(kinds),
        # A first look is off by a third.
        guesses=[{size: 1.3 * speeds[kind](size) for size in (1, 2, 4, 8, 16, 32)} for kind in kinds],
        smallest=1,
        repeats=7,
        tolerance=0.025,
    )
    spent, visits = 0.0, []
    while visit := rounds.next_visit(spent, budget):
        visits.append(visit)
        computed = [
            [speeds[kind](size) * chance.gauss(1, noise) for _ in range(visit.repeats)]
            if size or not visit.apart
            else []
            for kind, size in zip(kinds, visit.samples, strict=True)
        ]
        extra = 0.0 if visit.apart else overhead
        rounds.add(visit, computed, [[value + extra for value in values] for values in computed])
        spent += (visit.repeats + 1) * max(max(values, default=0.0) for values in computed)
        assert len(visits) < 500
    return rounds, visits, spent


def line(fixed, each):
    return lambda size: fixed + each * size if size else 0.0


def test_the_shares_that_matter_are_measured_as_they_run():
    rounds, visits, spent = simulated([line(0.01, 0.006), line(0.01, 0.02)], [32], overhead=0.02)
    assert spent < 60
    assert sum(visits[0].samples) == 32
    together = rounds.together(32)
    times = [seconds_at(rounds.curve(worker), size) for worker, size in enumerate(together)]
    assert max(times) - min(times) <= 0.02
    for samples in ((16, 16), together):
        taken = rounds.taken[samples]
        assert len(taken.steps) >= 14 <= len(taken.apart)  # twice, and in turn
        assert abs(len(taken.steps) - len(taken.apart)) <= 7
    assert (32, 0) in rounds.taken
    assert rounds.doubt() <= 0.025


def test_curves_are_known_at_all_sizes():
    def overflowing(size):
        return 0.0 if not size else 0.01 + 0.004 * size + 0.01 * max(size - 40, 0)

    rounds, _, _ = simulated([overflowing, line(0.02, 0.01)], [128], budget=400.0)
    for worker, curve in enumerate((overflowing, line(0.02, 0.01))):
        known = rounds.curve(worker)
        measured = [size for size in rounds.known(worker)]
        for size in range(min(measured), max(measured) + 1):
            assert seconds_at(known, size) == pytest.approx(curve(size), rel=0.08)


def test_workers_of_a_kind_share_a_curve_and_a_size():
    rounds, _visits, _ = simulated([line(0.01, 0.01), line(0.01, 0.03)], [64], kinds=[0, 0, 1])
    assert rounds.main()[1] == (22, 21, 21)
    assert set(rounds.pooled(0)) >= {21, 22}
    assert len(rounds.pooled(0)[rounds.together(64)[0]]) >= 7


def test_an_unsure_time_is_measured_more_often():
    quiet, _, _ = simulated([line(0.01, 0.006), line(0.01, 0.02)], [32], budget=200.0)
    noisy, _, _ = simulated([line(0.01, 0.006), line(0.01, 0.02)], [32], budget=200.0, noise=0.1)
    count = lambda rounds: sum(len(taken.steps) for taken in rounds.taken.values())  # noqa: E731
    assert count(noisy) > 2 * count(quiet)


@pytest.mark.parametrize("budget", [0.0, 2.0, 7.0])
def test_a_budget_ends_it_but_never_without_a_profile(budget):
    rounds, _visits, spent = simulated([line(0.01, 0.02), line(0.01, 0.2)], [32], budget=budget, noise=0.2)
    assert all(rounds.known(kind) for kind in (0, 1))
    assert spent <= budget + 4.0  # one visit of the fewest steps


def test_each_batch_of_an_experiment_has_its_shares():
    rounds, _, _ = simulated([line(0.01, 0.006), line(0.01, 0.02)], [8, 64], budget=400.0)
    assert {(4, 4), (32, 32), rounds.together(8), rounds.together(64)} <= set(rounds.taken)


def test_a_small_batch_is_not_starved_by_slow_steps_on_a_large_one():
    rounds, _, _ = simulated([line(0.02, 0.006), line(0.02, 0.024)], [32, 128], budget=30.0, noise=0.05)
    fast, slow = rounds.together(32)
    assert 22 <= fast <= 29 and fast + slow == 32
    assert {sum(samples) for samples in rounds.taken} >= {32, 128}


def test_below_what_was_timed_the_first_look_speaks():
    rounds, _, _ = simulated([line(0.0, 0.01), line(0.0, 0.02)], [128], budget=0.0)
    assert min(rounds.known(0)) > 32  # nothing near a batch of 32 was timed
    assert rounds.together(32) in {(21, 11), (22, 10)}


def test_no_share_is_above_what_fits():
    rounds, _visits, _ = simulated([line(0.01, 0.006), line(0.01, 0.02)], [64], caps=[20, 10])
    assert all(samples[0] <= 20 and samples[1] <= 10 for samples in rounds.taken)


def test_a_much_slower_worker_does_not_hold_up_all_rounds():
    rounds, _visits, spent = simulated([line(0.002, 0.005), line(0.1, 0.25)], [32], budget=120.0)
    together = rounds.together(32)
    assert together[0] >= 31
    assert spent < 120


def test_one_worker_is_nobody_to_communicate_with():
    rounds, visits, _ = simulated([line(0.01, 0.01)], [32])
    assert not any(visit.apart for visit in visits)
    assert (32,) in rounds.taken


def test_rounds_that_batch_norm_cannot_take_are_passed_over():
    rounds = Rounds([0, 1], [2], [None, None], [{1: 0.1}, {1: 0.2}], 2, 7, 0.025)
    rounds.impossible |= {(1, 1), (2, 0), (0, 2)}
    assert rounds.next_visit(0.0, 10.0) is None
    assert math.isinf(rounds.doubt())
    assert is_lone((0, 3)) and not is_lone((3,)) and not is_lone((1, 2))
    assert Visit((0, 3), 7, apart=True).lone
