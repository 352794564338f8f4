"""The filtered map: majority and minimum mapping unit."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rasterio.features import shapes

from landbalance.map import filtering
from landbalance.map.filtering import most_frequent, without_small_patches


def noisy(height: int, width: int) -> NDArray[np.uint8]:
    random = np.random.default_rng(0)
    codes = random.integers(0, 3, (-(-height // 9), -(-width // 9))).repeat(9, 0).repeat(9, 1)[:height, :width]
    codes = np.where(random.random(codes.shape) < 0.2, random.integers(0, 3, codes.shape), codes)
    codes[random.random(codes.shape) < 0.1] = 255
    return codes.astype(np.uint8)


@pytest.mark.parametrize("width", [3, 7])
def test_majority_against_counting(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "_ROWS", 10)  # as many strips as a large map has
    codes, half = noisy(37, 29), width // 2
    wanted = codes.copy()
    for (row, col), own in np.ndenumerate(codes):
        around = codes[max(0, row - half) : row + half + 1, max(0, col - half) : col + half + 1]
        counts = np.bincount(around[around < 3], minlength=3)
        if own < 3:
            wanted[row, col] = own if counts[own] == counts.max() else counts.argmax()
    assert (most_frequent(codes, 3, width) == wanted).all()


def patch_sizes(codes: NDArray[np.uint8]) -> list[float]:
    from shapely.geometry import shape

    return [shape(patch).area for patch, code in shapes(codes) if code < 3]


def test_no_patch_is_below_the_minimum_unit() -> None:
    codes = noisy(80, 90)
    codes[codes == 255] = 1  # holes of nodata would cut patches off
    codes[:20, :20] = 255
    found = without_small_patches(codes, 3, 25)
    assert min(patch_sizes(codes)) == 1
    assert min(patch_sizes(found)) >= 25
    assert ((found == 255) == (codes == 255)).all()
    large = without_small_patches(found, 3, 25)
    assert (large == found).all()


def test_a_small_patch_joins_its_largest_neighbour_and_others_stay() -> None:
    codes = np.zeros((20, 20), np.uint8)
    codes[:, 12:] = 1
    codes[5:7, 11:13] = 2
    found = without_small_patches(codes, 3, 5)
    assert (found[5:7, 11:13] == 0).all()
    codes[5:7, 11:13] = 0
    assert (found == codes).all()


def test_a_lonely_patch_within_nodata_stays() -> None:
    codes = np.full((9, 9), 255, np.uint8)
    codes[4, 4] = 2
    assert (without_small_patches(codes, 3, 50) == codes).all()


def test_both_in_the_file(tmp_path: Path) -> None:
    import rasterio

    codes = noisy(50, 60)
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", width=60, height=50, count=1, dtype="uint8") as raster:
        raster.write(codes, 1)
    found = np.concatenate([piece.codes for piece in filtering.filtered(tmp_path / "a.tif", 3, 3, 20)])
    assert (found == without_small_patches(most_frequent(codes, 3, 3), 3, 20)).all()
    assert (found != codes).any()
