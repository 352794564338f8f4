"""C16: workers that would see different numbers of steps are an error that names the worker, within a time limit."""

import shutil
import time

import pandas as pd
import pytest

from projects import write_plan, write_project
from workers import CommandLine, places


@pytest.fixture
def folders(tmp_path):
    """Two copies of one project, as two nodes without a shared folder would have them; 3 steps an epoch."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    write_plan(write_project(one, training={"timeout_seconds": 10}), [5, 3])
    shutil.copytree(one, other)
    return one, other


def shorter_data(folder):
    shutil.rmtree(folder / "results")
    write_project(folder, train=13)
    write_plan(folder, [5, 3])


def shorter_index(folder):
    """Leave out the last train tiles, as an index file that is older than the statistics beside it would."""
    path = folder / "results" / "tile" / "d" / "index.parquet"
    index = pd.read_parquet(path)
    index.loc[13:20, "split"] = "test"
    index.to_parquet(path)


def more_epochs(folder):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("epochs: 2", "epochs: 3"))


def other_shares(folder):
    write_plan(folder, [2, 6])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (shorter_data, "settings or tiles"),
        (shorter_index, "settings or tiles"),
        (more_epochs, "settings or tiles"),
        (other_shares, "plan"),
    ],
)
def test_C16_another_number_of_steps_is_told_at_once(folders, change, what):
    change(folders[1])
    began = time.monotonic()
    workers = [
        CommandLine(folder, "train", "e", environment=place) for folder, place in zip(folders, places(2), strict=True)
    ]
    for worker in workers:
        status, said = worker.ended()
        assert status == 1, said
        assert f"error: worker 1 (number 1) has another {what} than worker 0" in said
        assert "Traceback" not in said
    assert time.monotonic() - began < 60
