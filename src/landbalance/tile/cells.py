"""The tiles cut from a scene, cell by cell, in the order of the store.

A cell is a square of ground that no tile leaves: a block of the split, or some tiles together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.files import read_json
from landbalance.raster import Grid
from landbalance.tile.blocks import BlockKey, Placement, Window
from landbalance.tile.cut import CARD, IMAGES, LABELS, MOMENTS, TABLE, Cut
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

    def labels(self, first: int, stop: int) -> NDArray[np.uint8]:
        """Return the labels of some tiles, a fresh array of shape (stop - first, size, size)."""
        labels: NDArray[np.uint8] = np.load(self.folder / LABELS, mmap_mode="r")
        return np.asarray(labels[self.table["place"].to_numpy()[first:stop]])

    def moments(self, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what `statistics.moments` gave for some tiles."""
        moments: NDArray[np.float64] = np.load(self.folder / MOMENTS, mmap_mode="r")
        return np.asarray(moments[self.table["place"].to_numpy()[tiles]])

    def windows(self, first: int, stop: int) -> list[Window]:
        """Return the windows of some tiles."""
        columns = [self.table[key].to_numpy()[first:stop].tolist() for key in ("row", "col", "height", "width")]
        return [Window(*place) for place in zip(*columns, strict=True)]

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


def overlapping(windows: Any) -> bool:
    """Return whether some of the windows of a grid share pixels."""
    for start, extent in (("row", "height"), ("col", "width")):
        starts = np.unique([getattr(window, start) for window in windows])
        if len(starts) > 1 and np.diff(starts).min() < max(getattr(window, extent) for window in windows):
            return True
    return False
