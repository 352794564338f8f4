from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from landbalance.files import read_json, write_json
from report.report_samples import Changed, Results, write_results


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Return a fresh copy of all results, so that a test may spoil them."""
    return write_results(tmp_path / "results")


@pytest.fixture
def changed() -> Changed:
    """Return a way to change the content of a JSON file."""

    def change(path: Path, edit: Callable[[Any], Any]) -> None:
        value = read_json(path)
        edit(value)
        write_json(path, value)

    return change
