"""A calmer map: the most frequent class around each pixel, and no patch below the minimum mapping unit."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.features import sieve
from scipy.ndimage import correlate1d

_ROWS = 1024


@dataclass(frozen=True)
class Codes:
    """Class codes of a part of the map."""

    row: int
    col: int
    codes: NDArray[np.uint8]


def filtered(path: Path, classes: int, majority: int | None, minimum_unit: int | None) -> Iterator[Codes]:
    """Yield the filtered codes of the map at `path`; nodata stays where it is and counts for nothing.

    It holds the whole map in memory, a few bytes a pixel.

    Parameters
    ----------
    classes : int
        Codes below it are classes.
    majority, minimum_unit : int or None
        As in `config.Map`; the majority comes first.
    """
    with rasterio.open(path) as raster:
        codes = raster.read(1)
    if majority is not None:
        codes = most_frequent(codes, classes, majority)
    if minimum_unit is not None:
        codes = without_small_patches(codes, classes, minimum_unit)
    for row in range(0, len(codes), _ROWS):
        yield Codes(row, 0, codes[row : row + _ROWS])


def most_frequent(codes: NDArray[np.uint8], classes: int, width: int) -> NDArray[np.uint8]:
    """Return for each pixel the most frequent class of the `width` × `width` pixels around it.

    Among equally frequent classes the pixel's own wins, then the first.
    """
    result = codes.copy()
    half = width // 2
    for top in range(0, len(codes), _ROWS):
        first = max(0, top - half)
        part = codes[first : top + _ROWS + half]
        inside = slice(top - first, top - first + _ROWS)
        own = part[inside]
        best = np.zeros(own.shape, np.int64)
        winner = own.copy()
        for code in range(classes):
            # Twice, and one more for the pixel's own class: counts that differ by one stay apart.
            count = 2 * _sums(part == code, width)[inside] + (own == code)
            better = count > best
            winner[better] = code
            np.copyto(best, count, where=better)
        result[top : top + _ROWS] = np.where(own < classes, winner, own)
    return result


def _sums(mask: NDArray[np.bool_], width: int) -> NDArray[np.int64]:
    ones = np.ones(width, np.int64)
    counts = correlate1d(mask.astype(np.int64), ones, axis=0, mode="constant")
    found: NDArray[np.int64] = correlate1d(counts, ones, axis=1, mode="constant")
    return found


def without_small_patches(codes: NDArray[np.uint8], classes: int, pixels: int) -> NDArray[np.uint8]:
    """Return codes in which patches (pixels that share an edge) below `pixels` have joined their largest neighbour.

    A patch whose neighbours are all small too joins none of them in one pass, so the limit rises from pass to pass, and
    the last one is repeated until nothing changes. A small patch with nothing but nodata around it stays.
    """
    mask = (codes < classes).astype(np.uint8)
    limits = [2**power for power in range(1, 32) if 2**power < pixels]
    for limit in limits:
        codes = sieve(codes, limit, mask=mask)
    while True:
        calmer: NDArray[np.uint8] = sieve(codes, pixels, mask=mask)
        if np.array_equal(calmer, codes):
            return calmer
        codes = calmer
