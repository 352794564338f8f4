"""Source values and the classes that they become: compared as text, counted, reported."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from landbalance.config import ClassInfo
from landbalance.config.base import Settings
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

EMPTY = "(empty)"
"""Stands for a field without a value, where values are counted."""


class FoundLabels(Settings):
    """What a scene's labels hold, as plain values: enough to judge them with those of the other scenes."""

    file: str
    """Where they stand: a path below the download folder, and the field where there is one."""
    what: str
    """What is counted: `polygons`, `points`, `pixels`."""
    counts: dict[str, int]
    """How many there are of each source value on the scene, also of those in no class."""
    place: str
    """Where the labels lie and where the scene, for the message that they miss each other."""


def source_value(value: Any) -> str | None:
    """Return a field's value as text to compare classes by; 10.0 is 10, and nothing (or NaN) is None."""
    if value is None or value != value:
        return None
    if isinstance(value, float | np.floating) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def class_index(classes: Sequence[ClassInfo]) -> dict[str | None, int]:
    """Return the index of the class that each source value becomes."""
    return {str(value): number for number, item in enumerate(classes) for value in item.values}


def report_values(counts: Mapping[str, int], classes: Sequence[ClassInfo], where: str, what: str) -> None:
    """Log what the source holds: how many of each class, what is ignored, what is missing.

    Raises
    ------
    UserError
        When no value is one of a class.
    """
    require_classes(counts, classes, where)
    report_counts(counts, classes, where, what)
    report_missing(counts, classes, where, what)


def require_classes(counts: Mapping[str, int], classes: Sequence[ClassInfo], where: str) -> None:
    """Stop when no value is one of a class.

    Raises
    ------
    UserError
        It lists the values found and those that the classes list.
    """
    index = class_index(classes)
    if not any(value in index for value in counts):
        raise UserError(
            f"{where}: none of the values is in the classes. Found: {counted(counts)}; the classes list: "
            f"{listed(classes)}. Correct `values` of the classes."
        )


def report_counts(counts: Mapping[str, int], classes: Sequence[ClassInfo], where: str, what: str) -> None:
    """Log how many labels each class has and, as a warning, which are left out."""
    index = class_index(classes)
    for item in classes:
        parts = counted({str(value): counts.get(str(value), 0) for value in item.values})
        _log.info("class %s: %s from %s", item.name, what, parts)
    if others := counted({value: count for value, count in counts.items() if value not in index}):
        _log.warning("%s: values in no class are left out: %s", where, others)


def report_missing(counts: Mapping[str, int], classes: Sequence[ClassInfo], where: str, what: str) -> None:
    """Warn of the values of classes that do not occur."""
    for item in classes:
        for value in item.values:
            if str(value) not in counts:
                _log.warning("%s: no %s for %s, which class %s lists", where, what, value, item.name)


def listed(classes: Sequence[ClassInfo]) -> str:
    """Return the source values of the classes, for a message."""
    return ", ".join(str(value) for item in classes for value in item.values)


def counted(counts: Mapping[str, int]) -> str:
    """Return values with their counts, the most frequent first, for a message."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ", ".join(f"{value} ({count})" for value, count in ordered)
