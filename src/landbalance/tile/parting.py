"""Which split each tile of the scenes is in, and which of its labels stand too near to another split."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import geopandas as gpd
import numpy as np
from numpy.typing import NDArray

from landbalance.config import BlockSplit, ColumnSplit, Dataset
from landbalance.raster import moved_bounds, overlap
from landbalance.tile.blocks import BlockKey
from landbalance.tile.cells import Cell, SceneTiles
from landbalance.tile.columns import splits_of_scenes
from landbalance.tile.masking import masked
from landbalance.tile.polygons import part_by_polygon
from landbalance.tile.split import drawn_groups, too_near
from landbalance.tiles import SPLITS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parting:
    """How the tiles of one scene are parted.

    Attributes
    ----------
    splits : ndarray of int8, shape (tiles,)
        Index into `SPLITS`; -1 for a tile that is in none.
    blocks : list of tuple, one for each tile
        What stands together in a split: samples of one of them are not independent.
    foreign : callable
        Returns for a cell and a split which of the cell's pixels have no label in that split, being of another one
        or too near to one; None if all may keep theirs.
    polygons : GeoDataFrame or None
        Where the split goes by polygon: those of the scene that are in a split, with ``scene``, ``polygon`` (its id in
        the labels' file) and ``split``, in EPSG:4326.
    """

    splits: NDArray[np.int8]
    blocks: list[tuple[int, ...]]
    foreign: Callable[[Cell, int], NDArray[np.bool_] | None]
    polygons: gpd.GeoDataFrame | None = None


def part_tiles(name: str, dataset: Dataset, source: Path, scenes: Sequence[SceneTiles]) -> list[Parting]:
    """Return how the tiles of each scene are parted.

    Raises
    ------
    UserError
        When the labels lie in fewer blocks, polygons or scenes than there are splits, or a table or field does not
        say what is wanted of it.
    """
    split = dataset.split
    if isinstance(split, BlockSplit):
        return _by_block(dataset, split, scenes)
    if split.by == "polygon" or (isinstance(split, ColumnSplit) and split.file is None):
        return [Parting(*part) for part in part_by_polygon(name, dataset, source, scenes)]
    return _by_scene(dataset, source, scenes)


def _by_block(dataset: Dataset, split: BlockSplit, scenes: Sequence[SceneTiles]) -> list[Parting]:
    counts: dict[BlockKey, NDArray[np.int64]] = {}
    for tiles in scenes:
        for key, count in _counts_by_cell(dataset, tiles).items():
            counts[key] = counts.get(key, 0) + count
    keys = sorted(counts)
    drawn = drawn_groups(np.stack([counts[key] for key in keys]), dataset, "block")
    splits = dict(zip(keys, drawn.tolist(), strict=True))

    def foreign(cell: Cell, number: int) -> NDArray[np.bool_] | None:
        return too_near(cell.key, splits, split.size, split.buffer)

    return [
        Parting(_each(tiles, lambda cell: splits[cell.key]).astype(np.int8), _keys(tiles), foreign) for tiles in scenes
    ]


def _counts_by_cell(dataset: Dataset, tiles: SceneTiles) -> dict[BlockKey, NDArray[np.int64]]:
    """Return how many labels of each class each cell has: pixels, or tiles in classification."""
    everything = np.zeros(len(tiles.table), np.int8)
    return {
        cell.key: part.fresh.sum(axis=0) for cell, part in masked(tiles, dataset, everything, lambda cell, number: None)
    }


def _each(tiles: SceneTiles, of_cell: Callable[[Cell], int]) -> NDArray[np.int64]:
    """Return for each tile what `of_cell` says of its cell."""
    result = np.empty(len(tiles.table), np.int64)
    for cell in tiles.cells():
        result[cell.first : cell.stop] = of_cell(cell)
    return result


def _keys(tiles: SceneTiles) -> list[tuple[int, ...]]:
    return [cell.key for cell in tiles.cells() for _ in range(cell.stop - cell.first)]


def _by_scene(dataset: Dataset, source: Path, scenes: Sequence[SceneTiles]) -> list[Parting]:
    shared = _shared_ground(scenes)
    if isinstance(dataset.split, ColumnSplit):
        splits = splits_of_scenes(dataset, dataset.split, source)
        for one, other in shared:
            first, second = splits[scenes[one].scene], splits[scenes[other].scene]
            if first != second and min(first, second) >= 0:
                _log.warning(
                    "split: %s (%s) and %s (%s) share ground: the split leaks",
                    scenes[one].scene, SPLITS[first], scenes[other].scene, SPLITS[second],
                )  # fmt: skip
    else:
        splits = _drawn_scenes(dataset, scenes, shared)
    return [
        Parting(np.full(len(tiles.table), splits[tiles.scene], np.int8), _keys(tiles), lambda cell, number: None)
        for tiles in scenes
    ]


def _drawn_scenes(dataset: Dataset, scenes: Sequence[SceneTiles], shared: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Return the split of each scene; scenes that share ground are drawn as one."""
    group = list(range(len(scenes)))
    for one, other in shared:
        group = [group[one] if number == group[other] else number for number in group]
    counts: Mapping[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros(len(dataset.classes), np.int64))
    for number, tiles in zip(group, scenes, strict=True):
        for count in _counts_by_cell(dataset, tiles).values():
            counts[number][:] += count
    numbers = [number for number in sorted(counts) if counts[number].any()]
    drawn = drawn_groups(np.stack([counts[number] for number in numbers]), dataset, "scene")
    splits = dict(zip(numbers, drawn.tolist(), strict=True))
    return {tiles.scene: splits.get(number, -1) for number, tiles in zip(group, scenes, strict=True)}


def _shared_ground(scenes: Sequence[SceneTiles]) -> list[tuple[int, int]]:
    """Return the pairs of scenes that lie on the same ground."""
    pairs = []
    for (one, first), (other, second) in combinations(enumerate(scenes), 2):
        grid = second.grid
        if overlap(first.grid.bounds, moved_bounds(grid.bounds, grid.crs, first.grid.crs, f"scene {second.scene}")):
            pairs.append((one, other))
    return pairs
