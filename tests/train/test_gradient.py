"""The gradient of any split is that of one process: drawn shares, masks, weights and norms, on real workers.

Each example runs an epoch of the project's own loop (two or more steps, the last one smaller) over gloo in float64.
The workers stay; what they run lies in `steps.py`.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steps import Problem, in_one_process, on_this_worker, worst_difference
from workers import Workers

pytestmark = pytest.mark.slow

BOUND = 1e-12


@pytest.fixture(scope="module")
def workers():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    groups = {size: Workers(size) for size in (1, 2, 3)}
    yield groups
    for group in groups.values():
        group.close()
    torch.set_num_threads(threads)


@st.composite
def problems(draw):
    shares = tuple(draw(st.lists(st.integers(0, 8), min_size=1, max_size=3).filter(any)))
    left_over = draw(st.integers(0, sum(shares) - 1))
    samples = sum(shares) + left_over
    norm = draw(st.sampled_from(["none", "group", "batch"]))
    # Batch norm would see the parts of an accumulated batch; the plan refuses that.
    sizes = st.none() if norm == "batch" else st.none() | st.integers(1, 3)
    return Problem(
        shares=shares,
        ignored=tuple(draw(st.sampled_from(["nothing", "pixels", "tile"])) for _ in range(samples)),
        ignored_workers=draw(st.frozensets(st.integers(0, len(shares) - 1))),
        class_weights=draw(st.none() | st.tuples(*[st.floats(0.01, 100)] * 3)),
        norm=norm,
        micro_batches=tuple(draw(sizes) for _ in shares),
        clip_norm=draw(st.none() | st.just(0.05)),
        label_smoothing=draw(st.sampled_from([0.0, 0.2])),
        shift=draw(st.integers(0, 2)),
        seed=draw(st.integers(0, 2**31)),
    )


def outcomes(workers, problem):
    """Return the outcome on each worker; all hold the same network."""
    found = workers[len(problem.shares)].run(on_this_worker, problem)
    for other in found[1:]:
        assert all(ours.equal(theirs) for ours, theirs in zip(found[0].gradients, other.gradients, strict=True))
    return found


def check(workers, problem):
    found, wanted = outcomes(workers, problem), in_one_process(problem)
    for outcome in found:
        assert worst_difference(outcome, wanted) <= BOUND
        assert outcome.losses == pytest.approx(wanted.losses, rel=1e-10, nan_ok=True)
    assert sorted(sample for outcome in found for sample in outcome.read) == sorted(wanted.read)
    if len(problem.ignored) < 2 * sum(problem.shares):
        for share, outcome in zip(problem.shares, found, strict=True):
            trained = sum(sample < len(problem.ignored) for sample in outcome.read)
            assert abs(trained - len(problem.ignored) * share / sum(problem.shares)) < 1


@settings(max_examples=90, deadline=None)
@given(problem=problems())
def test_any_split_gives_the_gradient_of_one_process(workers, problem):
    check(workers, problem)


SAMPLES = ("nothing", "pixels") * 7
CASES = {
    "C05 a tile whose labels are all ignored": Problem((6, 2), ("tile", *SAMPLES)),
    "C05 all tiles of a worker": Problem((3, 5), SAMPLES, ignored_workers=frozenset({0})),
    "C05 all tiles of a step": Problem((4, 2), ("tile",) * 6 + SAMPLES, ignored_workers=frozenset({0, 1})),
    "C14 shares 7 + 3": Problem((7, 3), ("nothing",) * 10),
    "C14 shares 1 + 1 + 14": Problem((1, 1, 14), SAMPLES * 2, norm="batch"),
    "C14 accumulation, another number of parts on each worker": Problem((7, 3), SAMPLES, micro_batches=(2, 3)),
    "C14 clipping by the norm of the whole gradient": Problem((7, 3), SAMPLES, clip_norm=0.05),
    "C15 pixels ignored on one worker only, class weights": Problem(
        (5, 5), ("nothing",) * 10, ignored_workers=frozenset({1}), class_weights=(0.2, 1.0, 30.0)
    ),
    "C15 label smoothing with class weights and ignored pixels, samples moved": Problem(
        (7, 3), SAMPLES, class_weights=(0.2, 1.0, 30.0), label_smoothing=0.3, shift=2
    ),
    "C17 a share of 1 with batch norm, no sample in the last batch": Problem((7, 1), SAMPLES[:11], norm="batch"),
    "C17 a share of 1 of which a layer leaves one pixel": Problem((7, 1), SAMPLES[:11], norm="pooled batch"),
}


@pytest.mark.parametrize("problem", [pytest.param(problem, id=name) for name, problem in CASES.items()])
def test_case(workers, problem):
    check(workers, problem)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("C14", "C15"))])
def test_the_comparison_sees_a_plain_mean_of_unequal_shares(workers, name):
    problem = CASES[name]
    (found, *_) = outcomes(workers, replace(problem, arm="unweighted"))
    assert worst_difference(found, in_one_process(problem)) > 1e-3


def test_C18_validation_on_two_workers_counts_each_of_21_items_once(workers):
    """Also C24: how many are computed at once changes nothing."""
    problem = Problem((5, 3), SAMPLES, validation=21, micro_batches=(2, None))
    found, wanted = outcomes(workers, problem), in_one_process(problem)
    validated = [[sample for sample in outcome.read if sample >= len(SAMPLES)] for outcome in found]
    assert [len(ids) for ids in validated] == [13, 8]
    assert sorted(validated[0] + validated[1]) == list(range(len(SAMPLES), len(SAMPLES) + 21))
    for outcome in found:
        assert outcome.losses == pytest.approx(wanted.losses, rel=1e-12)
