"""The tiles cut from a scene, cell by cell, in the order of the store.

A cell is a square of ground that no tile leaves: a block of the split, or some tiles together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.files import read_json
from landbalance.raster import Grid
from landbalance.tile.blocks import BlockKey, Placement, Window
from landbalance.tile.cut import CARD, COUNTS, IMAGES, LABELS, MOMENTS, TABLE, Cut
from landbalance.tiles import Shard


@dataclass(frozen=True)
class Cell:
    """Tiles of a scene that lie in one cell.

    Attributes
    ----------
    key : BlockKey
        The cell on the ground.
    first, stop : int
        Its tiles are ``first`` to ``stop - 1`` of the scene's, in the order of the store.
    row, col : int
        Row and column of the scene at the cell's upper left corner; may be outside.
    """

    key: BlockKey
    first: int
    stop: int
    row: int
    col: int

    @property
    def tiles(self) -> NDArray[np.int64]:
        """Return the numbers of its tiles."""
        return np.arange(self.first, self.stop)


@dataclass(frozen=True)
class SceneTiles:
    """The tiles cut from one scene, cell by cell and in each by row and column.

    Attributes
    ----------
    table : DataFrame
        ``row``, ``col``, ``height``, ``width``, ``valid`` pixels, ``place`` in the scene's files, and the cell's
        ``cell_row`` and ``cell_col``.
    """

    scene: str
    folder: Path
    cut: Cut
    placement: Placement
    size: int
    """Width of a cell in pixels."""
    table: pd.DataFrame

    @property
    def grid(self) -> Grid:
        """Return the scene's grid."""
        return self.cut.grid

    @property
    def shard(self) -> Shard:
        """Return where the images lie, as the store names it."""
        return Shard(images=f"{self.folder.parent.name}/{self.folder.name}/{IMAGES}", count=self.cut.tiles)

    @cached_property
    def _place(self) -> NDArray[np.int64]:
        return self.table["place"].to_numpy()

    @cached_property
    def _windows(self) -> NDArray[np.int64]:
        return self.table[["row", "col", "height", "width"]].to_numpy()

    @cached_property
    def _labels(self) -> NDArray[np.uint8]:
        labels: NDArray[np.uint8] = np.load(self.folder / LABELS, mmap_mode="r")
        return labels

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = np.load(self.folder / COUNTS, mmap_mode="r")
        return counts

    def labels(self, tiles: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the labels of some tiles, a fresh array of shape (n, size, size)."""
        return np.asarray(self._labels[self._place[tiles]])

    def counts(self, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many labels of each class some tiles have, a fresh array of shape (n, classes)."""
        return np.asarray(self._counts[self._place[tiles]])

    def moments(self, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what `statistics.moments` gave for some tiles."""
        moments: NDArray[np.float64] = np.load(self.folder / MOMENTS, mmap_mode="r")
        return np.asarray(moments[self._place[tiles]])

    def windows(self, tiles: NDArray[np.int64]) -> list[Window]:
        """Return the windows of some tiles."""
        return [Window(*place) for place in self._windows[tiles].tolist()]

    def overlap(self, tiles: NDArray[np.int64]) -> bool:
        """Return whether some of the tiles, all of one cell, share pixels."""
        windows = self._windows[tiles]
        for axis in (0, 1):
            starts = np.unique(windows[:, axis])
            if len(starts) > 1 and np.diff(starts).min() < windows[:, axis + 2].max():
                return True
        return False

    def cells(self) -> Iterator[Cell]:
        """Yield the cells that hold tiles."""
        rows, cols = self.table["cell_row"].to_numpy(), self.table["cell_col"].to_numpy()
        new = np.flatnonzero((np.diff(rows, prepend=-(1 << 62)) != 0) | (np.diff(cols, prepend=-(1 << 62)) != 0))
        for first, stop in pairwise([*new.tolist(), len(rows)]):
            row, col = int(rows[first]), int(cols[first])
            yield Cell(
                (self.placement.frame, row, col),
                first,
                stop,
                row * self.size - self.placement.row,
                col * self.size - self.placement.col,
            )


def read_scenes(dataset: Dataset, folder: Path, placements: Mapping[str, Placement], size: int) -> list[SceneTiles]:
    """Return the tiles of all scenes, cut before, in the order of the configuration."""
    return [_read(folder / "scenes" / scene, scene, placements[scene], size) for scene in dataset.scenes]


def _read(folder: Path, scene: str, placement: Placement, size: int) -> SceneTiles:
    table = pd.read_parquet(folder / TABLE)
    table["place"] = np.arange(len(table))
    table["cell_row"] = (table["row"] + placement.row) // size
    table["cell_col"] = (table["col"] + placement.col) // size
    table = table.sort_values(["cell_row", "cell_col", "row", "col"], ignore_index=True)
    return SceneTiles(scene, folder, Cut.model_validate(read_json(folder / CARD)), placement, size, table)


def in_cell(window: Window, cell: Cell) -> tuple[slice, slice]:
    """Return the slices that cut a tile out of an array over its cell."""
    top, left = window.row - cell.row, window.col - cell.col
    return slice(top, top + window.height), slice(left, left + window.width)
