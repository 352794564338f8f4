from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from landbalance.errors import UserError
from landbalance.sample import maps
from landbalance.sample.maps import open_population

WriteMap = Callable[..., Path]


def some_codes(height: int = 30, width: int = 41, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array([0, 1, 2, 255], np.uint8), (height, width))


def test_counts_and_areas(write_map: WriteMap) -> None:
    codes = some_codes()
    found = open_population([write_map(codes, names={0: "Forest", 1: "Water", 2: "Farmland", 7: "Ice"})])
    assert found.pixels == {code: (codes == code).sum() for code in (0, 1, 2)}
    assert found.names == {0: "Forest", 1: "Water", 2: "Farmland", 7: "Ice"}
    assert found.hectares == pytest.approx(0.01)
    assert [item.hectares for item in found.strata] == pytest.approx(
        [(codes == code).sum() / 100 for code in (0, 1, 2)]
    )


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_every_pixel_is_found_by_its_rank(write_map: WriteMap, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(maps, "_ROWS", rows)
    first, second = some_codes(), some_codes(12, 9, seed=1)
    paths = [write_map(first), write_map(second, "other.tif", left=500_000)]
    population = open_population(paths)
    ranks = {code: np.arange(count) for code, count in population.pixels.items()}
    places = population.places(ranks)
    for code, of_class in places.items():
        wanted = [
            (left + 10 * col + 5, 5_800_000 - 10 * row - 5)
            for codes, left in ((first, 400_000), (second, 500_000))
            for row, col in np.argwhere(codes == code)
        ]
        assert of_class.tolist() == [list(place) for place in wanted]
        assert (population.codes_at(of_class) == code).all()
    some = population.places({1: np.array([0, 3, population.pixels[1] - 1])})[1]
    assert some.tolist() == places[1][[0, 3, -1]].tolist()


def test_places_without_a_class(write_map: WriteMap) -> None:
    codes = some_codes()
    codes[3, 4] = 255
    population = open_population([write_map(codes)])
    places = np.array([[400_045.0, 5_799_965.0], [399_999.0, 5_799_965.0], [400_005.0, 5_800_001.0], [9e9, 0]])
    assert population.codes_at(places).tolist() == [-1] * 4


def test_maps_without_names(write_map: WriteMap) -> None:
    assert open_population([write_map(some_codes(), names={})]).names == {0: "class 0", 1: "class 1", 2: "class 2"}


def test_what_is_no_population(write_map: WriteMap, tmp_path: Path) -> None:
    good = write_map(some_codes())
    cases = [
        ([tmp_path / "none.tif"], "none.tif: no map"),
        ([write_map(some_codes(), "degrees.tif", left=10, crs="EPSG:4326", size=0.01)], "not of one area"),
        ([write_map(some_codes(), "lost.tif", crs=None)], "not of one area"),
        ([write_map(some_codes().astype(np.float32), "float.tif")], "float32; a class map has one of uint8"),
        ([good, write_map(some_codes(), "beside.tif", left=400_200)], "overlap, so pixels would count twice"),
        ([good, write_map(some_codes(), "far.tif", left=600_000, size=20)], "do not count alike"),
        ([good, write_map(some_codes(), "x.tif", left=600_000, names={0: "Wood"})], "its class 0 is Wood, in .*Forest"),
        ([write_map(some_codes(), "named.tif", names={0: "Forest", 1: "Water"})], "the code 2, which has no name"),
        ([write_map(np.full((4, 4), 255, np.uint8), "empty.tif")], "no pixel has a class"),
    ]
    for paths, message in cases:
        with pytest.raises(UserError, match=message):
            open_population(paths)
