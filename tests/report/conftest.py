import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from landbalance.files import read_json, write_json
from landbalance.report import charts, pictures, run, run_index
from report.report_samples import Changed, Results, write_results

EMPTY = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return all results but the reports; not to be changed."""
    return write_results(tmp_path_factory.mktemp("inputs") / "results")


@pytest.fixture(scope="session")
def made(inputs: Results, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return all results with their reports; not to be changed."""
    root = tmp_path_factory.mktemp("made") / "results"
    shutil.copytree(inputs.layout.root, root)
    results = Results(inputs.config, type(inputs.layout)(root))
    for name in ("valley", "patches"):
        run(name, results.config, results.layout)
    run_index(results.config, results.layout)
    return results


@pytest.fixture
def results(inputs: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """Return a fresh copy of all results, so that a test may spoil them; charts stay empty, for they take long."""
    monkeypatch.setattr(charts, "svg", lambda *args, **kwargs: EMPTY)
    monkeypatch.setattr(pictures, "map_png", lambda *args: b"")
    shutil.copytree(inputs.layout.root, tmp_path / "results")
    return Results(inputs.config, type(inputs.layout)(tmp_path / "results"))


@pytest.fixture
def changed() -> Changed:
    """Return a way to change the content of a JSON file."""

    def change(path: Path, edit: Callable[[Any], Any]) -> None:
        value = read_json(path)
        edit(value)
        write_json(path, value)

    return change
