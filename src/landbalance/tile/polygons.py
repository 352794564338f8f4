"""Splits by whole polygons: each tile is in the split that most of its labels have, and keeps the labels of that one.

No label is closer than the buffer to one of a later split, and no two tiles of different splits share a pixel.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter

from landbalance.config import ColumnSplit, Dataset, PolygonSplit
from landbalance.errors import UserError
from landbalance.tile.blocks import BlockKey, Window
from landbalance.tile.cells import Cell, SceneTiles, in_cell
from landbalance.tile.columns import splits_of_polygons
from landbalance.tile.labels import SceneLabels, scene_labels
from landbalance.tile.labels.vector import Shapes
from landbalance.tile.split import drawn_groups
from landbalance.tiles import IGNORED, SPLITS

_log = logging.getLogger(__name__)

_Part = tuple[
    NDArray[np.int8], list[tuple[int, ...]], Callable[[Cell, int], NDArray[np.bool_] | None], gpd.GeoDataFrame
]


def part_by_polygon(name: str, dataset: Dataset, source: Path, scenes: Sequence[SceneTiles]) -> list[_Part]:
    """Return splits, polygons and foreign pixels of the tiles of each scene, and outlines, see `parting.Parting`.

    Raises
    ------
    UserError
        When the labels are no polygons or points, there are too few of them, or their field names no split.
    """
    split = dataset.split
    assert isinstance(split, PolygonSplit | ColumnSplit)
    labels = [scene_labels(dataset, source, tiles.scene, tiles.grid) for tiles in scenes]
    counts = _counts(dataset, scenes, labels)
    if not counts or list(counts) == [-1]:
        raise UserError(
            f"split: by {split.by} goes with polygons or points as labels, not with a raster. Use by: block."
        )
    if isinstance(split, ColumnSplit):
        of_polygon = splits_of_polygons(dataset, split, source)
    else:
        numbers = sorted(counts)
        drawn = drawn_groups(np.stack([counts[number] for number in numbers]), dataset, "polygon")
        of_polygon = dict(zip(numbers, drawn.tolist(), strict=True))
    parted = [_tiles_of(tiles, scene, of_polygon) for tiles, scene in zip(scenes, labels, strict=True)]
    _part_pixels(scenes, [splits for splits, _ in parted])
    return [
        (
            splits,
            [(number,) for number in polygons.tolist()],
            _foreign(tiles, scene, of_polygon, split.buffer),
            _outlines(tiles.scene, scene, of_polygon),
        )
        for (splits, polygons), tiles, scene in zip(parted, scenes, labels, strict=True)
    ]


def _outlines(scene: str, labels: SceneLabels, of_polygon: Mapping[int, int]) -> gpd.GeoDataFrame:
    """Return the polygons on a scene that are in a split, in EPSG:4326."""
    assert isinstance(labels, Shapes), "only polygons are parted by polygon"
    splits = np.array([of_polygon.get(number, -1) for number in labels.numbers.tolist()], np.int8)
    there = splits >= 0
    columns = {"scene": scene, "polygon": labels.numbers[there], "split": np.array(SPLITS, object)[splits[there]]}
    frame = gpd.GeoDataFrame(columns, geometry=labels.geometries[there], crs=labels.grid.crs.to_wkt())
    return frame.to_crs("EPSG:4326")


def _cell_window(tiles: SceneTiles, cell: Cell, margin: int = 0) -> Window:
    side = tiles.size + 2 * margin
    return Window(cell.row - margin, cell.col - margin, side, side)


def _known(tiles: SceneTiles, cell: Cell) -> NDArray[np.uint8]:
    """Return the labels of a cell's tiles as one array over the cell."""
    known = np.full((tiles.size, tiles.size), IGNORED, np.uint8)
    windows, labels = tiles.windows(cell.tiles), tiles.labels(cell.tiles)
    for window, label in zip(windows, labels, strict=True):
        known[in_cell(window, cell)] = label[: window.height, : window.width]
    return known


def _counts(
    dataset: Dataset, scenes: Sequence[SceneTiles], labels: Sequence[SceneLabels]
) -> dict[int, NDArray[np.int64]]:
    """Return how many labelled pixels of each class each polygon has in the tiles."""
    counts: Mapping[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros(len(dataset.classes), np.int64))
    for tiles, of_scene in zip(scenes, labels, strict=True):
        for cell in tiles.cells():
            known = _known(tiles, cell)
            there = known != IGNORED
            pairs = np.stack([of_scene.objects(_cell_window(tiles, cell))[there], known[there]])
            found, times = np.unique(pairs, axis=1, return_counts=True)
            for (number, kind), count in zip(found.T.tolist(), times.tolist(), strict=True):
                counts[number][kind] += count
    return dict(counts)


def _split_raster(objects: NDArray[np.integer], of_polygon: Mapping[int, int]) -> NDArray[np.int8]:
    """Return the split of each pixel's polygon; -1 where there is no polygon, or it is in no split."""
    numbers, places = np.unique(objects, return_inverse=True)
    splits = np.array([of_polygon.get(number, -1) for number in numbers.tolist()], np.int8)
    return splits[places].reshape(objects.shape)


def _tiles_of(
    tiles: SceneTiles, labels: SceneLabels, of_polygon: Mapping[int, int]
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return the split of each tile, and the polygon that has most of its labels."""
    splits, polygons = np.full(len(tiles.table), -1, np.int8), np.full(len(tiles.table), -1, np.int64)
    for cell in tiles.cells():
        known, objects = _known(tiles, cell) != IGNORED, labels.objects(_cell_window(tiles, cell))
        of_pixel = np.where(known, _split_raster(objects, of_polygon), np.int8(-1))
        for number, window in enumerate(tiles.windows(cell.tiles), cell.first):
            part = in_cell(window, cell)
            counts = np.bincount(of_pixel[part].ravel() + 1, minlength=len(SPLITS) + 1)[1:]
            if counts.any():
                # Of equals the last, which the others give way to.
                splits[number] = len(SPLITS) - 1 - int(counts[::-1].argmax())
                found, times = np.unique(objects[part][of_pixel[part] == splits[number]], return_counts=True)
                polygons[number] = found[times.argmax()]
    return splits, polygons


def _part_pixels(scenes: Sequence[SceneTiles], splits: Sequence[NDArray[np.int8]]) -> None:
    """Take out of their split (set to -1) tiles that share pixels on the ground with one of a later split."""
    of_cell: Mapping[BlockKey, list[tuple[int, int, int, Window, Cell]]] = defaultdict(list)
    for scene, tiles in enumerate(scenes):
        for cell in tiles.cells():
            for number, window in enumerate(tiles.windows(cell.tiles), cell.first):
                of_cell[cell.key].append((-int(splits[scene][number]), scene, number, window, cell))
    lost = 0
    for members in of_cell.values():
        if len({split for split, *_ in members if split <= 0}) < 2:
            continue
        owner = np.full((scenes[0].size, scenes[0].size), -1, np.int8)
        for split, scene, number, window, cell in sorted(members, key=lambda item: item[:3]):
            part = in_cell(window, cell)
            if split > 0:
                continue
            if ((owner[part] != -1) & (owner[part] != -split)).any():
                splits[scene][number] = -1
                lost += 1
            else:
                owner[part] = -split
    if lost:
        _log.info("%d tiles left out: they share pixels with tiles of another split", lost)


def _foreign(
    tiles: SceneTiles, labels: SceneLabels, of_polygon: Mapping[int, int], buffer: int
) -> Callable[[Cell, int], Any]:
    """Return a function that gives the pixels of a cell with a label of another split, or too near to a later one."""

    def foreign(cell: Cell, split: int) -> NDArray[np.bool_]:
        objects = labels.objects(_cell_window(tiles, cell, buffer))
        around = _split_raster(objects, of_polygon)
        inside = (slice(buffer, buffer + tiles.size),) * 2
        near = maximum_filter(around, 2 * buffer + 1, mode="constant", cval=-1)[inside] > split
        return np.asarray(((objects[inside] >= 0) & (around[inside] != split)) | near)

    return foreign
