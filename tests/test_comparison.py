from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from landbalance import comparison
from landbalance.comparison import (
    Judged,
    chi_squared,
    coin_toss,
    compared,
    mcnemar,
    packed,
    read_judged,
    require_same_samples,
    unpacked,
)
from landbalance.errors import UserError


def judged(hits: np.ndarray, units: list[int], valid: list[int]) -> Judged:
    return Judged("block", np.arange(len(units)), np.array(units), np.array(valid), hits.astype(bool))


@given(st.integers(0, 400), st.integers(0, 400))
def test_p_value_is_that_of_scipy(first: int, second: int) -> None:
    differing = first + second
    if differing == 0:
        assert (chi_squared(first, second), mcnemar(first, second)) == (None, 1.0)
    elif differing < 25:
        assert mcnemar(first, second) == pytest.approx(stats.binomtest(first, differing, 0.5).pvalue)
    else:
        statistic = chi_squared(first, second)
        assert statistic == pytest.approx(max(abs(first - second) - 1, 0) ** 2 / differing)
        assert mcnemar(first, second) == pytest.approx(stats.chi2.sf(statistic, 1))


def test_textbook_table() -> None:
    """Discordant pairs 59 and 6 … (59 - 6 - 1)² / 65 by hand."""
    assert chi_squared(59, 6) == pytest.approx(2704 / 65)


def test_signs_in_full_by_hand() -> None:
    # 3 + 2 + 1: all eight signs give ±6 twice, ±4 twice, ±2 twice, 0 twice.
    assert coin_toss(np.array([3.0, 2.0, 1.0, 0.0])) == 2 / 8
    assert coin_toss(np.array([3.0, 2.0, -1.0])) == 4 / 8
    assert coin_toss(np.array([3.0, -3.0])) == 1
    assert coin_toss(np.zeros(4)) == 1


def test_drawn_signs_come_close_to_all_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    leads = np.random.default_rng(4).normal(0.4, 1, 12).round(2)
    exact = coin_toss(leads)
    monkeypatch.setattr(comparison, "_MOST_UNITS_IN_FULL", 2)
    drawn = coin_toss(leads)
    assert drawn == pytest.approx(exact, abs=0.015)
    monkeypatch.setattr(comparison, "_AT_ONCE", 100)
    assert coin_toss(leads) == drawn


def test_counts_and_difference() -> None:
    first = np.array([1, 1, 1, 0, 0, 1, 1, 0])
    second = np.array([1, 0, 0, 1, 0, 0, 1, 0])
    result = compared(judged(first, [5, 5, 9], [3, 0, 5]), judged(second, [5, 5, 9], [3, 0, 5]), 500)
    assert (result.both, result.first_only, result.second_only, result.neither) == (2, 3, 1, 2)
    assert (result.samples, result.units, result.unit) == (8, 2, "block")
    assert result.difference == pytest.approx(2 / 8)
    # Two blocks with leads of 2 in 3 and 0 in 5: a draw takes one of them.
    assert result.interval == (0, pytest.approx(2 / 3))
    assert result.p_value_by_unit == 1  # one block differs, and its sign is a coin toss
    assert result.as_json()["first_only"] == 3


def test_turned_round() -> None:
    generator = np.random.default_rng(5)
    one, two = (judged(generator.random(300) < share, list(range(30)), [10] * 30) for share in (0.8, 0.6))
    there, back = compared(one, two), compared(two, one)
    assert there.difference == -back.difference
    assert there.interval == pytest.approx(tuple(-value for value in back.interval[::-1]))
    assert (there.p_value, there.p_value_by_unit) == (back.p_value, back.p_value_by_unit)
    assert there.p_value_by_unit < 0.01


def test_pixels_that_all_lie_in_one_block_prove_nothing() -> None:
    """A thousand pixels of one field say the same thing a thousand times."""
    second = np.zeros(2_000)
    first = np.r_[np.ones(1_000), np.zeros(1_000)]
    result = compared(judged(first, [0, 1], [1_000, 1_000]), judged(second, [0, 1], [1_000, 1_000]))
    assert result.p_value < 1e-100
    assert result.p_value_by_unit == 1


def test_one_unit_has_no_interval() -> None:
    assert compared(judged(np.ones(4), [3], [4]), judged(np.zeros(4), [3], [4])).interval is None


@given(st.lists(st.booleans(), max_size=40))
def test_bits(hits: list[bool]) -> None:
    assert unpacked(packed(np.array(hits, bool)), len(hits)).tolist() == hits


def test_other_samples_are_refused() -> None:
    one = judged(np.ones(4), [0, 1], [2, 2])
    require_same_samples(one, judged(np.zeros(4), [0, 1], [2, 2]), ("a", "b"))
    for other in (judged(np.ones(4), [0, 1], [1, 3]), judged(np.ones(4), [0, 2], [2, 2])):
        with pytest.raises(UserError, match="a and b were not judged on the same test samples"):
            require_same_samples(one, other, ("a", "b"))


def test_files_that_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Run the evaluate stage first"):
        read_judged(tmp_path / "predictions.parquet")
    pd.DataFrame({"tile": [0], "valid": [3]}).to_parquet(tmp_path / "old.parquet")
    with pytest.raises(UserError, match="of an older version"):
        read_judged(tmp_path / "old.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="damaged"):
        read_judged(tmp_path / "cut.parquet")
    columns = {"tile": [0], "unit": [0], "valid": [1], "hits": [b"\x80"]}
    pq.write_table(pa.table(columns), tmp_path / "bare.parquet")
    with pytest.raises(UserError, match="of an older version"):
        read_judged(tmp_path / "bare.parquet")
