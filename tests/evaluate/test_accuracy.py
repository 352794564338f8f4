import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from landbalance.evaluate.accuracy import confusions, kappa, majority_confusion, scores

# Olofsson et al. (2014), table 8; printed with rows = map, here turned.
OLOFSSON = np.array([[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]]).T


def test_two_classes_by_hand() -> None:
    result = scores(np.array([[40, 10], [20, 30]]), ["a", "b"])
    assert result.overall_accuracy == pytest.approx(0.7)
    assert result.kappa == pytest.approx(0.4)  # chance: (50·60 + 50·40) / 100² = 0.5
    assert result.majority_share == pytest.approx(0.5)
    first = result.per_class[0]
    assert (first.producers_accuracy, first.users_accuracy) == (pytest.approx(0.8), pytest.approx(2 / 3))
    assert (first.f1, first.iou) == (pytest.approx(80 / 110), pytest.approx(40 / 70))
    assert (first.support, first.predicted) == (50, 60)
    assert result.macro["producers_accuracy"] == pytest.approx((0.8 + 0.6) / 2)
    assert result.weighted["users_accuracy"] == pytest.approx((50 * 40 / 60 + 50 * 30 / 40) / 100)


def test_cohens_own_example() -> None:
    # Cohen (1960), table 1, proportions × 200: p_o = 0.70, p_e = 0.41.
    proportions = np.array([[88, 10, 2], [14, 40, 6], [18, 10, 12]])
    assert kappa(proportions) == pytest.approx(0.492, abs=5e-4)


def test_published_users_accuracies() -> None:
    users = [item.users_accuracy for item in scores(OLOFSSON, ["1", "2", "3", "4"]).per_class]
    assert users == pytest.approx([0.88, 0.7333, 0.9273, 0.9631], abs=5e-5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_equals_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    reference, predicted = np.array(pairs, np.uint8).T
    matrix = confusions(reference[None], predicted[None], 5)[0]
    assert (matrix == metrics.confusion_matrix(reference, predicted, labels=range(5))).all()
    result = scores(matrix, list("abcde"))
    assert result.overall_accuracy == pytest.approx(metrics.accuracy_score(reference, predicted))
    if len(set(reference) | set(predicted)) > 1:
        assert result.kappa == pytest.approx(metrics.cohen_kappa_score(reference, predicted), abs=1e-12)
    else:
        assert result.kappa is None
    options = {"labels": range(5), "average": None, "zero_division": np.nan}
    wanted = {
        "producers_accuracy": metrics.recall_score(reference, predicted, **options),
        "users_accuracy": metrics.precision_score(reference, predicted, **options),
        "f1": metrics.f1_score(reference, predicted, **options),
        "iou": metrics.jaccard_score(reference, predicted, labels=range(5), average=None, zero_division=0),
    }
    wanted["iou"] = np.where(matrix.sum(0) + matrix.sum(1) == 0, np.nan, wanted["iou"])
    for measure, values in wanted.items():
        found = [getattr(item, measure) for item in result.per_class]
        assert found == [None if np.isnan(value) else pytest.approx(value) for value in values], measure
        assert result.macro[measure] == pytest.approx(np.nanmean(values)), measure
        there = ~np.isnan(values)
        weighted = np.average(values[there], weights=matrix.sum(1)[there]) if matrix.sum(1)[there].any() else None
        assert result.weighted[measure] == (None if weighted is None else pytest.approx(weighted)), measure
    assert result.weighted["producers_accuracy"] == pytest.approx(result.overall_accuracy)


def test_class_without_reference_or_prediction_is_undefined_and_left_out() -> None:  # C23
    result = scores(np.array([[8, 0, 2, 0], [5, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]), ["a", "b", "c", "d"])
    a, b, c, d = result.per_class
    assert (b.producers_accuracy, b.users_accuracy, b.f1, b.iou) == (0, None, 0, 0)  # occurs, never predicted
    assert (c.producers_accuracy, c.users_accuracy, c.f1) == (None, 0, 0)  # predicted, does not occur
    assert (d.producers_accuracy, d.users_accuracy, d.f1, d.iou) == (None, None, None, None)
    assert result.macro["producers_accuracy"] == pytest.approx((a.producers_accuracy + 0) / 2)
    assert result.macro["f1"] == pytest.approx((a.f1 + 0 + 0) / 3)
    assert "null" in json.dumps(result.as_json(), allow_nan=False)


def test_no_samples_at_all() -> None:
    result = scores(np.zeros((2, 2), np.int64), ["a", "b"])
    assert (result.overall_accuracy, result.kappa, result.majority_share, result.macro["iou"]) == (None,) * 4


def test_one_class_only_has_no_kappa() -> None:
    assert kappa(np.array([[7, 0], [0, 0]])) is None


def test_kappa_of_huge_counts_does_not_overflow() -> None:
    assert kappa(np.array([[4 * 10**12, 10**12], [2 * 10**12, 3 * 10**12]])) == pytest.approx(0.4)


def test_majority() -> None:
    matrix = majority_confusion(np.array([[1, 2], [3, 4]]))
    assert matrix.tolist() == [[0, 3], [0, 7]]
    assert scores(matrix, ["a", "b"]).kappa == 0


def test_ignored_pixels_count_nowhere_whatever_the_prediction_there() -> None:  # C02, C04, C24
    reference = np.array([[[0, 255], [1, 255]], [[255, 255], [255, 255]]], np.uint8)
    predicted = np.array([[[0, 254], [0, 1]], [[9, 1], [1, 0]]], np.uint8)
    each = confusions(reference, predicted, 2)
    assert each.tolist() == [[[1, 0], [1, 0]], [[0, 0], [0, 0]]]


def test_sum_over_batches_is_the_whole() -> None:  # C24
    generator = np.random.default_rng(3)
    reference = generator.choice(np.array([0, 1, 2, 255], np.uint8), (21, 5, 5))
    predicted = generator.integers(0, 3, (21, 5, 5), dtype=np.uint8)
    whole = confusions(reference, predicted, 3)
    for size in (1, 2, 4, 20):
        parts = [
            confusions(reference[k : k + size], predicted[k : k + size], 3) for k in range(0, len(reference), size)
        ]
        assert (np.concatenate(parts) == whole).all()


@pytest.mark.parametrize(("reference", "predicted"), [(3, 0), (0, 3)])
def test_code_outside_the_classes(reference: int, predicted: int) -> None:
    with pytest.raises(ValueError, match="not below 3"):
        confusions(np.array([[reference]], np.uint8), np.array([[predicted]], np.uint8), 3)
