import doctest
from collections.abc import Callable
from typing import Any

import pytest

from landbalance.report import units


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(units).failed == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (0, "0 s"),
        (0.000_012, "12 µs"),
        (0.000_999_7, "1.0 ms"),
        (0.012_34, "12.3 ms"),
        (0.0999, "99.9 ms"),
        (0.4567, "457 ms"),
        (0.999_6, "1.00 s"),
        (9.996, "10.0 s"),
        (59.96, "1 min 00 s"),
        (192.4, "3 min 12 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_duration_changes_unit_without_a_gap(value: Any, text: str) -> None:
    assert plain(units.duration(value)) == text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.percent, 0.5468, "54.7 %"),
        (units.percent, 1.0, "100.0 %"),
        (units.percent, None, "n/a"),
        (units.decimal, -0.0419, "\u22120.042"),
        (units.decimal, None, "n/a"),
        (units.factor, 1.918, "1.92×"),
        (units.factor, None, "n/a"),
        (units.count, 36139, "36,139"),
        (units.count, None, "n/a"),
        (units.hectares, 12_420_000, "1,242 ha"),
        (units.hectares, 40_000, "4.0 ha"),
        (units.hectares, 0, "0 ha"),
        (units.hectares, None, "n/a"),
        (units.distance, 200, "200 m"),
        (units.distance, 2000, "2 km"),
        (units.data_size, 512, "512 B"),
        (units.data_size, 4_650_792, "4.65 MB"),
        (units.data_size, 999_700, "1 MB"),
        (units.rounded, 1234.5, "1,234"),
        (units.rounded, 57.14, "57.1"),
        (units.rounded, None, "n/a"),
        (units.moment, "2025-01-02T03:04:05+00:00", "2025-01-02 03:04 UTC"),
        (units.moment, "yesterday", "yesterday"),
    ],
)
def test_numbers(function: Callable[[Any], str], value: Any, text: str) -> None:
    assert plain(function(value)) == text


def test_plural() -> None:
    assert [plain(units.plural(number, "worker")) for number in (0, 1, 2000)] == [
        "0 workers",
        "1 worker",
        "2,000 workers",
    ]
