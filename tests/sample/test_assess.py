import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
from shapely.geometry import Point, box

from landbalance.errors import UserError
from landbalance.sample import Wanted, assess, design

WriteMap = Callable[..., Path]
NAMES = np.array(["Forest", "Water", "Farmland"])


def world(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return what is on the ground, and a map of it with errors; 200 × 150 pixels."""
    generator = np.random.default_rng(seed)
    truth = generator.choice(3, (20, 15), p=[0.5, 0.1, 0.4]).repeat(10, 0).repeat(10, 1).astype(np.uint8)
    mapped = truth.copy()
    wrong = generator.random(truth.shape) < np.array([0.1, 0.05, 0.3])[truth]
    mapped[wrong] = (truth[wrong] + generator.integers(1, 3, wrong.sum())) % 3
    return truth, mapped


def label(path: Path, truth: np.ndarray, answer: Callable[[int], object] = lambda code: NAMES[code]) -> None:
    """Fill in the field `reference` as a person would who knows the ground."""
    points = gpd.read_file(path, layer="points")
    row, col = ((5_800_000 - points.geometry.y) // 10).astype(int), ((points.geometry.x - 400_000) // 10).astype(int)
    points["reference"] = [answer(code) for code in truth[row, col]]
    points.to_file(path, layer="points", driver="GPKG")


@pytest.fixture
def labelled(write_map: WriteMap, tmp_path: Path) -> tuple[Path, Path, np.ndarray]:
    """Return a map, its labelled points, and the truth."""
    truth, mapped = world()
    path, points = write_map(mapped), tmp_path / "points.gpkg"
    design([path], {}, Wanted(points=600), points)
    label(points, truth)
    return path, points, truth


def run(maps: Any, points: Path, level: float = 0.95) -> dict[str, Any]:
    target = points.parent / "result.json"
    text = assess([maps] if isinstance(maps, Path) else maps, points, level, target)
    assert text.splitlines()[0].startswith("overall accuracy 0.")
    return json.loads(target.read_text())


def test_finds_the_truth_and_says_how_sure_it_is(labelled: tuple[Path, Path, np.ndarray]) -> None:
    path, points, truth = labelled
    result = run(path, points)
    _, mapped = world()
    assert result["estimator"] == "Olofsson et al. 2014"
    assert (result["labelled_points"], result["hectares"]) == (600, pytest.approx(300))
    low, high = result["overall_accuracy"]["interval"]
    assert low < (truth == mapped).mean() < high
    assert high - low < 0.08
    for code, item in enumerate(result["classes"]):
        assert (item["name"], item["code"]) == (NAMES[code], code)
        assert item["mapped_hectares"] == pytest.approx((mapped == code).sum() / 100)
        hectares = item["hectares"]
        assert abs(hectares["estimate"] - (truth == code).sum() / 100) < 2 * hectares["half_width"]
        assert hectares["half_width"] == pytest.approx(1.959964 * hectares["standard_error"], rel=1e-5)
    # Farmland is missed by the map: labelled points tell, the map's own area does not.
    assert abs(result["classes"][2]["hectares"]["estimate"] - 300 * (truth == 2).mean()) < abs(
        result["classes"][2]["mapped_hectares"] - 300 * (truth == 2).mean()
    )
    assert np.sum(result["confusion"]) == 600
    assert np.sum(result["proportions"]) == pytest.approx(1)
    narrow = run(path, points, 0.5)["overall_accuracy"]
    assert narrow["half_width"] < result["overall_accuracy"]["half_width"] / 2


def test_the_same_points_judge_a_later_map(labelled: tuple[Path, Path, np.ndarray], write_map: WriteMap) -> None:
    """The strata are the classes of the first map then, not of the one that is judged."""
    _, points, truth = labelled
    better = truth.copy()
    better[::7, ::3] = 0
    result = run(write_map(better, "better.tif"), points)
    assert result["estimator"] == "Stehman 2014"
    low, high = result["overall_accuracy"]["interval"]
    assert low <= (better == truth).mean() <= high
    assert result["overall_accuracy"]["estimate"] > 0.95
    assert result["hectares"] == pytest.approx(300)
    pixels = [item["pixels"] for item in result["strata"]]
    assert pixels == np.bincount(world()[1].ravel()).tolist()


def test_who_stops_early_has_a_smaller_sample(
    labelled: tuple[Path, Path, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    path, points, truth = labelled
    done = iter(range(600))
    label(points, truth, lambda code: NAMES[code] if next(done) < 250 else None)
    result = run(path, points)
    assert result["labelled_points"] == 250
    assert "350 of 600 points have no label" in caplog.text
    low, high = result["overall_accuracy"]["interval"]
    assert low < (truth == world()[1]).mean() < high


def test_codes_do_as_well_as_names(labelled: tuple[Path, Path, np.ndarray]) -> None:
    path, points, truth = labelled
    wanted = run(path, points)
    for answer in (float, lambda code: f" {code} "):
        label(points, truth, answer)
        assert run(path, points) == wanted


def test_points_from_elsewhere(write_map: WriteMap, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Points with a field `reference`, in another CRS: taken for a random sample of each class of the map."""
    truth, mapped = world()
    path = write_map(mapped)
    design([path], {}, Wanted(points=300), tmp_path / "drawn.gpkg")
    label(tmp_path / "drawn.gpkg", truth)
    wanted = run(path, tmp_path / "drawn.gpkg")
    foreign = gpd.read_file(tmp_path / "drawn.gpkg", layer="points")[["reference", "geometry"]].to_crs("EPSG:4326")
    foreign.to_file(tmp_path / "foreign.geojson")
    with caplog.at_level(logging.INFO):
        result = run(path, tmp_path / "foreign.geojson")
    assert "taken for a random sample of each class" in caplog.text
    assert {**result, "points": ""} == {**wanted, "points": ""}


def test_class_on_one_side_only(write_map: WriteMap, tmp_path: Path) -> None:
    """Mapped, never on the ground; on the ground, never mapped: n/a where nothing is known, and a warning."""
    truth, mapped = np.zeros((40, 30), np.uint8), np.zeros((40, 30), np.uint8)
    mapped[:10] = 1
    truth[20:] = 2
    path, points = write_map(mapped), tmp_path / "points.gpkg"
    design([path], {}, Wanted(points=200), points)
    label(points, truth)
    result = run(path, points)
    water, farmland = result["classes"][1:]
    assert (water["users_accuracy"]["estimate"], water["producers_accuracy"]) == (0, None)
    assert (farmland["users_accuracy"], farmland["producers_accuracy"]["estimate"]) == (None, 0)
    assert farmland["mapped_hectares"] == 0
    assert farmland["hectares"]["estimate"] == pytest.approx(6, rel=0.25)
    assert [text.split(":")[0] for text in result["warnings"]] == ["Water", "Farmland"]
    assert "n/a" in assess([path], points, 0.95, tmp_path / "again.json")


def test_all_right_is_not_certainty(write_map: WriteMap, tmp_path: Path) -> None:
    truth, _ = world()
    path, points = write_map(truth), tmp_path / "points.gpkg"
    design([path], {}, Wanted(points=150), points)
    label(points, truth)
    assert assess([path], points, 0.95, tmp_path / "r.json").startswith("overall accuracy 1.0000 ± 0.0000")
    result = json.loads((tmp_path / "r.json").read_text())
    assert len(result["warnings"]) == 3
    assert "an error of up to" in result["warnings"][0]


def spoilt(path: Path, change: Callable[[gpd.GeoDataFrame], gpd.GeoDataFrame]) -> None:
    points = change(gpd.read_file(path, layer="points"))
    pyogrio.write_dataframe(points, path, layer="points", driver="GPKG")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.assign(reference=["Wald", *p["reference"][1:]]), r"holds Wald, no class.*allowed: Forest \(0\)"),
        (lambda p: p.assign(reference=None), "no point is labelled"),
        (lambda p: p.assign(reference=[r if r != "Water" else None for r in p["reference"]]).iloc[:3], "at least two"),
        (lambda p: p.drop(columns="reference"), "no field `reference`"),
        (lambda p: p.assign(point=1), "gone or repeated"),
        (lambda p: p.assign(point=p["point"] + 1), "point 601 was not drawn"),
        (lambda p: p.set_geometry([Point(0, 0), *p.geometry[1:]]), "1 labelled points lie where"),
        (lambda p: p.set_geometry(p.geometry.buffer(5)), "holds Polygon; points are wanted"),
    ],
)
def test_points_that_cannot_judge(
    labelled: tuple[Path, Path, np.ndarray], change: Callable[..., Any], message: str
) -> None:
    path, points, _ = labelled
    spoilt(points, change)
    with pytest.raises(UserError, match=message):
        assess([path], points, 0.95, points.parent / "result.json")
    assert not (points.parent / "result.json").exists()


def test_files_that_are_none(labelled: tuple[Path, Path, np.ndarray], tmp_path: Path) -> None:
    path, points, _ = labelled
    with pytest.raises(UserError, match="--level: 95"):
        assess([path], points, 95, tmp_path / "r.json")
    with pytest.raises(UserError, match="no file of points"):
        assess([path], tmp_path / "none.gpkg", 0.95, tmp_path / "r.json")
    pyogrio.write_dataframe(pd.DataFrame({"a": [1]}), tmp_path / "table.gpkg", layer="t", driver="GPKG")
    with pytest.raises(UserError, match="has no layer `points`, but t"):
        assess([path], tmp_path / "table.gpkg", 0.95, tmp_path / "r.json")
    frame = gpd.GeoDataFrame({"reference": ["Forest"]}, geometry=[box(0, 0, 1, 1).centroid])
    frame.to_file(tmp_path / "nocrs.gpkg", layer="points")
    with pytest.raises(UserError, match="has no CRS"):
        assess([path], tmp_path / "nocrs.gpkg", 0.95, tmp_path / "r.json")
