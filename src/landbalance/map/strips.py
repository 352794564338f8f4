"""A scene row of windows by row of windows, each pixel read once, while the rows before are worked on."""

from collections.abc import Iterator, Sequence
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


def strips(scene: SceneReader, rows: Sequence[int], height: int, col: int, width: int) -> Iterator[Strip]:
    """Yield the strips of `height` rows that begin at `rows` (ascending); one more is read ahead."""
    return _ahead(_read(scene, rows, height, col, width))


def _read(scene: SceneReader, rows: Sequence[int], height: int, col: int, width: int) -> Iterator[Strip]:
    before: Strip | None = None
    for row in rows:
        known = max(0, before.row + height - row) if before is not None else 0
        images, valid = scene.read(row + known, col, height - known, width)
        if before is not None and known:
            images = np.concatenate([before.images[:, -known:], images], axis=1)
            valid = np.concatenate([before.valid[-known:], valid])
        before = Strip(row, col, images, valid)
        yield before


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield `items`, of which the next is made in another thread meanwhile."""
    with ThreadPoolExecutor(1, "read") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
