"""Why a scene failed is noted by its job, and told wherever its lack shows."""

import os
from pathlib import Path

import pytest

from landbalance.cli import main
from landbalance.config import parse_config
from landbalance.errors import UserError
from landbalance.failures import failed_scenes, failures_of, noted
from landbalance.files import write_text
from landbalance.layout import Layout
from report.report_samples import RAW

CONFIG = parse_config(RAW)
SCENE = "valley-2020"


def fail(output: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), noted(output):
        raise error


def test_a_failure_counts_until_the_work_is_done(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert failed_scenes(CONFIG, layout) == []
    tiles = layout.tile_scene("valley", SCENE)
    fail(tiles, UserError("a.tif: cannot be read"))
    fail(layout.map("valley", SCENE), MemoryError("no room"))
    assert [failure.what + ": " + failure.reason for failure in failed_scenes(CONFIG, layout)] == [
        "scene valley-2020 of dataset valley was not cut into tiles: a.tif: cannot be read",
        "scene valley-2020 was not mapped with experiment valley: MemoryError: no room",
    ]
    assert [failure.stage for failure in failures_of("valley", CONFIG, layout)] == ["tile", "map"]
    assert [failure.stage for failure in failures_of("valley-equal", CONFIG, layout)] == ["tile"]
    assert failures_of("patches", CONFIG, layout) == []
    with noted(tiles):
        write_text(tiles, "{}")
    assert [failure.stage for failure in failed_scenes(CONFIG, layout)] == ["map"]
    assert [path.name for path in tiles.parent.iterdir()] == [tiles.name]


def test_a_result_made_since_by_another_way_counts_and_an_older_one_does_not(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    target = layout.map("valley", SCENE)
    write_text(target, "old")
    fail(target, UserError("a.tif: cannot be read"))
    os.utime(target, (1, 1))
    assert len(failed_scenes(CONFIG, layout)) == 1
    os.utime(target, (2e9, 2e9))
    assert failed_scenes(CONFIG, layout) == []


def test_a_stop_by_the_user_is_no_failure(tmp_path: Path) -> None:
    fail(Layout(tmp_path).map("valley", SCENE), KeyboardInterrupt())
    assert failed_scenes(CONFIG, Layout(tmp_path)) == []


def test_jobs_note_why_their_scene_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "config.yaml", yaml.safe_dump(RAW))
    assert main(["tile", "valley", "--scene", SCENE]) == 1
    assert main(["map", "valley", SCENE]) == 1
    tiles, map_ = failed_scenes(CONFIG, Layout(Path("results")))
    assert "blue.tif: not found" in tiles.reason
    assert "model.json: not found" in map_.reason
