"""Cores that may be used, and work spread over them: in order, and errors come back."""

import os

import pytest

from landbalance.cores import cores, on_all_cores


def test_cores_are_those_that_were_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9}, raising=False)
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 64


def test_results_come_in_order_and_errors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert list(on_all_cores(abs, list(range(-40, 0)), 20)) == list(range(40, 0, -1))
    assert list(on_all_cores(abs, [-2, -1], 20)) == [2, 1]
    with pytest.raises(ValueError, match="could not convert"):
        list(on_all_cores(float, ["1", "2", "x", "4"], 2))
