import pandas as pd
import pytest

from landbalance.report.speed import EqualRun, epoch_seconds, measured_speed, step_times, team
from report.report_samples import plan, timing

NO_EQUAL = EqualRun(None, None, "none was run")


def test_first_and_smaller_steps_of_an_epoch_do_not_count() -> None:
    times = step_times(timing((12, 4), step=0.3, epochs=3), batch_size=16)
    # 15 steps: in each of 3 epochs the first and the smaller last one are left out.
    assert (times.counted, times.steps) == (9, 15)
    assert times.median == pytest.approx(0.3)
    assert (times.low, times.high) == (pytest.approx(0.3), pytest.approx(0.3))
    assert times.workers[0].compute == pytest.approx(0.24)
    # Worker 1 waits 0.03 s, for nobody: that is the exchange, which worker 0 spends too.
    assert (times.workers[0].wait, times.workers[0].communicate) == (pytest.approx(0.03), pytest.approx(0.03))
    assert (times.workers[1].wait, times.workers[1].communicate) == (pytest.approx(0), pytest.approx(0.03))
    assert times.workers[1].compute == pytest.approx(0.27)
    assert times.workers[0].other == 0


def test_a_step_lasts_as_long_as_its_slowest_worker() -> None:
    rows = timing((12, 4), step=0.3, epochs=2)
    rows.loc[rows["rank"] == 1, "step_seconds"] *= 1.5
    times = step_times(rows, batch_size=16)
    assert times.median == pytest.approx(0.45)
    assert times.workers[1].other == pytest.approx(0.15)


@pytest.mark.parametrize("batch_size", [16, 64])
def test_a_short_run_still_has_a_step_time(batch_size: int) -> None:
    rows = timing((12, 4), step=0.3, epochs=1)
    rows = rows[rows["step"].isin([0, 4])]
    times = step_times(rows, batch_size)
    # One whole step and a smaller one; of a batch size that was never reached, both count.
    assert (times.counted, times.steps) == ({16: 1, 64: 2}[batch_size], 2)


def test_without_steps_nothing_is_measured() -> None:
    columns = ["epoch", "step", "rank", "samples", "compute_seconds", "wait_seconds", "step_seconds"]
    times = step_times(pd.DataFrame(columns=columns), 16)
    assert times.median is None
    speed = measured_speed(plan("x", "balanced", (12, 4)), times, NO_EQUAL)
    assert (speed.over_equal, speed.over_fastest, speed.fraction_of_total_speed) == (None, None, None)


def test_measured_speed_ups() -> None:
    times = step_times(timing((12, 4), step=0.3, epochs=3), 16)
    speed = measured_speed(plan("x", "balanced", (12, 4)), times, EqualRun("equal", 0.54, None))
    assert speed.over_equal == pytest.approx(0.54 / 0.3)
    assert speed.over_fastest == pytest.approx(0.36 / 0.3)
    assert speed.fraction_of_total_speed == pytest.approx(0.95 * 0.28 / 0.3)
    assert speed.samples_per_second == pytest.approx(16 / 0.3)
    assert speed.slower_than_predicted == pytest.approx(0.3 / 0.28 - 1)


def test_without_an_equal_run_there_is_no_measured_speed_up_over_it() -> None:
    times = step_times(timing((12, 4), step=0.3, epochs=3), 16)
    assert measured_speed(plan("x", "balanced", (12, 4)), times, NO_EQUAL).over_equal is None


@pytest.mark.parametrize(
    ("since_start", "median"),
    [([9.0, 12.0, 14.0, 18.0, 21.0], 3.0), ([9.0, 12.0, 16.0], 4.0), ([9.0], 9.0), ([], None)],
)
def test_an_epoch_lasts_from_the_end_of_the_one_before(since_start: list[float], median: float | None) -> None:
    assert epoch_seconds(pd.DataFrame({"seconds": since_start})) == median


def test_a_team_is_the_same_whatever_its_shares() -> None:
    assert team(plan("x", "balanced", (12, 4))) == team(plan("y", "equal", (8, 8)))
