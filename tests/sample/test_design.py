import sys
from collections.abc import Callable
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyogrio
import pytest

from landbalance.errors import UserError
from landbalance.sample import Wanted, design
from landbalance.sample.maps import open_population

WriteMap = Callable[..., Path]

MODULE = sys.modules["landbalance.sample.design"]


def codes(height: int = 120, width: int = 90) -> np.ndarray:
    """Return a map of Forest in the upper half, Farmland below, a pond of 12 pixels, and a strip of nodata."""
    result = np.where(np.arange(height)[:, None] < height // 2, 0, 2).repeat(width, 1).astype(np.uint8)
    result[10:13, 10:14] = 1
    result[:, -5:] = 255
    return result


def read(path: Path, layer: str) -> object:
    return pyogrio.read_dataframe(path, layer=layer)


def test_points_are_as_many_as_wanted_in_pixels_of_their_class(write_map: WriteMap, tmp_path: Path) -> None:
    path, target = write_map(codes()), tmp_path / "out" / "points.gpkg"
    design([path], {"Forest": 0.9}, Wanted(points=100, fewest=20), target)
    points = gpd.read_file(target, layer="points")
    assert points.crs.to_epsg() == 32633
    assert list(points.columns) == ["point", "reference", "note", "geometry"]  # nothing gives the map's class away
    assert sorted(points["point"]) == list(range(1, 101))
    drawn, strata = read(target, "drawn"), read(target, "strata")
    # Twelve pixels of water are all there are; the others share the remaining 88 by area.
    assert strata.set_index("name")["points"].to_dict() == {"Forest": 44, "Water": 12, "Farmland": 44}
    assert strata["pixels"].tolist() == [(codes() == code).sum() for code in (0, 1, 2)]
    assert strata["hectares"].sum() == pytest.approx((codes() != 255).sum() / 100)
    places = np.stack([points.geometry.x, points.geometry.y], axis=1)
    assert (open_population([path]).codes_at(places) == drawn["stratum"]).all()
    assert len(np.unique(places, axis=0)) == 100
    assert ((places - [400_005, 5_799_995]) % 10 == 0).all()
    about = dict(read(target, "about").to_numpy().tolist())
    assert (about["seed"], about["rule"]) == ("0", "by area, at least 20 for each class")
    assert "Forest 0.9, Water 0.5" in about["expected user's accuracies"]
    assert [item.name for item in target.parent.iterdir()] == ["points.gpkg"]


def test_a_seed_draws_the_same_points(write_map: WriteMap, tmp_path: Path) -> None:
    path = write_map(codes())
    drawn = {}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        design([path], {}, Wanted(points=80, fewest=10, seed=seed), tmp_path / f"{name}.gpkg")
        drawn[name] = gpd.read_file(tmp_path / f"{name}.gpkg", layer="points").geometry.to_wkt().tolist()
    assert drawn["a"] == drawn["b"] != drawn["c"]
    # Random order: the classes do not come one after the other.
    strata = read(tmp_path / "a.gpkg", "drawn")["stratum"]
    assert (strata.diff() != 0).sum() > 10


def test_every_pixel_of_a_class_is_equally_likely(
    write_map: WriteMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = np.zeros((6, 5), np.uint8)
    small[:, 4] = 1
    path = write_map(small)
    times = np.zeros((6, 5))
    drawn = []
    monkeypatch.setattr(
        sys.modules[design.__module__], "write_points", lambda target, places, *rest: drawn.append(places)
    )
    for seed in range(120):
        design([path], {}, Wanted(points=10, fewest=3, seed=seed), tmp_path / "points.gpkg")
    for x, y in np.concatenate(drawn):
        times[int((5_800_000 - y) // 10), int((x - 400_000) // 10)] += 1
    # 7 of 24 pixels and 3 of 6, 120 times: 35 ± 5 and 60 ± 5.5
    assert abs(times[:, :4] - 35).max() < 20
    assert abs(times[:, 4] - 60).max() < 22
    assert times[:, 4].sum() == 360


def test_standard_error_decides_how_many(write_map: WriteMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_map(codes())
    sizes = []
    monkeypatch.setattr(MODULE, "write_points", lambda target, places, *rest: sizes.append(len(places)))
    for wanted in (Wanted(0.05), Wanted(0.025), Wanted(0.05, expected=0.95)):
        design([path], {}, wanted, tmp_path / "points.gpkg")
    assert 100 <= sizes[0] <= 115
    assert 350 <= sizes[1] <= 420
    assert sizes[2] == 112  # fewer would do; 50 of each class and all 12 pixels of water


def test_labels_are_never_overwritten(write_map: WriteMap, tmp_path: Path) -> None:
    target = tmp_path / "points.gpkg"
    target.write_text("a week of work")
    with pytest.raises(UserError, match="may hold labels"):
        design([write_map(codes())], {}, Wanted(), target)
    assert target.read_text() == "a week of work"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(standard_error=0.0), "standard-error"),
        (Wanted(points=1), "at least 2 points"),
        (Wanted(fewest=1), "at least 2 points"),
        (Wanted(expected=1.5), "--expected: 1.5"),
        (Wanted(seed=-1), "--seed: -1"),
    ],
)
def test_wishes_that_make_no_sense(write_map: WriteMap, tmp_path: Path, wanted: Wanted, message: str) -> None:
    with pytest.raises(UserError, match=message):
        design([write_map(codes())], {}, wanted, tmp_path / "points.gpkg")
    assert not (tmp_path / "points.gpkg").exists()
