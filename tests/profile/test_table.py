"""What is shown while it is measured."""

import sys

from landbalance.profile.rounds import Rounds, Visit
from landbalance.profile.table import LiveTable, table_lines


def rounds():
    found = Rounds([0, 1], [32], [None, None], [{1: 0.1}, {1: 0.2}], 1, 7, 0.025)
    found.add(Visit((24, 8), 7), [[0.2] * 7, [0.19] * 7], [[0.21] * 6 + [9.0], [0.2] * 7])
    return found


def test_a_line_per_round():
    title, line = table_lines(rounds())
    assert title.split() == ["samples", "by", "worker", "step", "±95", "%", "samples/s", "steps", "outliers"]
    assert line.split() == ["24", "+", "8", "0.2100", "s", "0.0", "%", "152.4", "7", "1"]


def test_many_workers_are_counted():
    found = Rounds([0] * 40, [80], [None] * 40, [{1: 0.1}] * 40, 1, 7, 0.025)
    found.add(Visit((2,) * 40, 3), [[0.2] * 3] * 40, [[0.21] * 3] * 40)
    assert table_lines(found)[1].startswith("40×2  ")


def test_a_terminal_sees_one_table(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with LiveTable(rounds(), 45.0, shown=True) as table:
        table.update(5.0)
        table.update(15.0)
    shown = capsys.readouterr().err
    assert "at most 40 s left" in shown and "at most 30 s left" in shown
    assert shown.count("\x1b[3A\x1b[J") == 2  # each time what stood there is taken away


def test_a_log_file_gets_plain_lines_now_and_then(monkeypatch, caplog):
    caplog.set_level("INFO")
    with LiveTable(rounds(), 45.0, shown=True) as table:
        table.update(5.0)
        assert not caplog.messages
        monkeypatch.setattr(table, "_last", -1e9)
        table.update(15.0)
        assert caplog.messages == ["profile: 1 rounds, worst ±0.0 %, at most 30 s left"]


def test_other_workers_are_silent(caplog):
    caplog.set_level("INFO")
    with LiveTable(rounds(), 45.0, shown=False) as table:
        table.update(5.0)
    assert not caplog.messages
