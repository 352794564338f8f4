"""A scene row of windows by row of windows, each pixel read once, while the rows before are worked on."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from landbalance.raster import SceneReader

Item = TypeVar("Item")


@dataclass(frozen=True)
class Strip:
    """Rows of a scene.

    Parameters
    ----------
    row, col : int
        First pixel; it may lie beyond the raster.
    images : ndarray, shape (bands, height, width)
        Pixels that are not valid hold 0.
    valid : ndarray of bool, shape (height, width)
        Pixels with data, none of them beyond the raster.
    """

    row: int
    col: int
    images: NDArray[Any]
    valid: NDArray[np.bool_]


@dataclass(frozen=True)
class Place:
    """Where a strip lies: its first pixel and its width."""

    row: int
    col: int
    width: int


def strips(scene: SceneReader, places: Iterable[Place], height: int) -> Iterator[Strip]:
    """Yield the strips of `height` rows at `places`; one more is read ahead.

    Rows that a strip shares with the one before are not read again.
    """
    return _ahead(_read(scene, places, height))


def _read(scene: SceneReader, places: Iterable[Place], height: int) -> Iterator[Strip]:
    before: Strip | None = None
    for place in places:
        known = 0
        if before is not None and (before.col, before.valid.shape[1]) == (place.col, place.width):
            known = max(0, before.row + height - place.row) if place.row >= before.row else 0
        images, valid = scene.read(place.row + known, place.col, height - known, place.width)
        if before is not None and known:
            images = np.concatenate([before.images[:, -known:], images], axis=1)
            valid = np.concatenate([before.valid[-known:], valid])
        before = Strip(place.row, place.col, images, valid)
        yield before


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield `items`, of which the next is made in another thread meanwhile."""
    with ThreadPoolExecutor(1, "read") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
