import pandas as pd
import pytest

from landbalance.report.timeline import ACTIVITIES, over_time, stretch
from report.report_samples import timing


def test_stretch_shows_usual_steps_one_after_another() -> None:
    shown = stretch(timing((12, 4), step=0.3, epochs=3), batch_size=16)
    assert shown.epoch == 2
    assert shown.steps == (2, 4)
    assert shown.starts == pytest.approx([0, 0.3, 0.6, 0.9])
    first = shown.rows[(shown.rows["rank"] == 0) & (shown.rows["start"] == 0)].iloc[0]
    assert first[list(ACTIVITIES)].tolist() == pytest.approx([0, 0.24, 0.03, 0.03])
    assert shown.rows.groupby("start")[list(ACTIVITIES)].sum().sum(axis=1).tolist() == pytest.approx([0.6] * 3)


def test_nothing_timed_is_nothing_shown() -> None:
    empty = timing((12, 4), step=0.3, epochs=1)[:0]
    assert stretch(empty, 16).rows.empty
    assert over_time(empty, 16).empty


def test_shares_over_time_follow_a_change() -> None:
    rows = pd.concat(
        [timing((12, 4), 0.3, 2), timing((10, 6), 0.2, 2).assign(epoch=lambda table: table["epoch"] + 2)],
        ignore_index=True,
    )
    table = over_time(rows, batch_size=16)
    fast = table[table["rank"] == 0].sort_values("progress")
    assert fast["share"].iloc[0] == pytest.approx(12 / 16)
    assert fast["share"].iloc[-1] == pytest.approx(10 / 16)
    assert fast["compute"].iloc[-1] == pytest.approx(0.16)
    assert table.groupby("progress")["share"].sum().tolist() == pytest.approx([1.0] * table["progress"].nunique())


def test_a_long_training_is_cut_into_few_parts() -> None:
    table = over_time(timing((12, 4), step=0.3, epochs=60), batch_size=16)
    assert len(table) == 2 * 40
    assert table["progress"].between(0, 60).all()
