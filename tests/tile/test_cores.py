"""Work spread over processes: in order, and errors come back."""

import pytest

from landbalance.tile.cores import on_all_cores


def test_results_come_in_order_and_errors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert list(on_all_cores(abs, list(range(-40, 0)), 20)) == list(range(40, 0, -1))
    assert list(on_all_cores(abs, [-2, -1], 20)) == [2, 1]
    with pytest.raises(ValueError, match="could not convert"):
        list(on_all_cores(float, ["1", "2", "x", "4"], 2))
