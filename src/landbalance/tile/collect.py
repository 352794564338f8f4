"""From scenes that are cut to a store: splits are drawn, labels near other splits masked, all tiles listed.

The images stay in the files that the scenes' jobs wrote; the index says where each tile's is.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray
from rasterio.warp import transform as transform_points

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.files import placed, remove, remove_leftovers
from landbalance.progress import Progress
from landbalance.tile.blocks import Placement, cell_size
from landbalance.tile.cells import SceneTiles, read_scenes
from landbalance.tile.labels import require_labels
from landbalance.tile.masking import Kept, masked
from landbalance.tile.parting import Parting, part_tiles
from landbalance.tile.split import taken
from landbalance.tile.statistics import merged
from landbalance.tile.write import GrowingArray, log_split, write_index, write_statistics
from landbalance.tiles import POLYGONS, SPLITS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Listed:
    """The tiles of one scene that the store takes."""

    numbers: NDArray[np.int64]
    classes: NDArray[np.uint8]
    labelled: NDArray[np.int64]
    counts: NDArray[np.int64]
    """Labels of each class in each split, shape (splits, classes); a pixel in several tiles counts once."""


def collect(name: str, dataset: Dataset, source: Path, folder: Path, placements: Mapping[str, Placement]) -> None:
    """Draw the splits of a dataset whose scenes are cut, and write the store around them.

    Raises
    ------
    UserError
        When no scene has labels, or a split stays empty.
    """
    scenes = read_scenes(dataset, folder, placements, cell_size(dataset))
    require_labels(name, dataset, {tiles.scene: tiles.cut.found for tiles in scenes})
    if not any(tiles.cut.tiles for tiles in scenes):
        raise UserError(
            "labels: no tile has enough labelled pixels. The polygons may be smaller than a pixel, lie on missing "
            f"pixels, or cover less than tiles.labelled ({dataset.tiles.labelled:g}) of every tile."
        )
    parted = _sampled(dataset, scenes, part_tiles(name, dataset, source, scenes))
    remove_leftovers(folder / "labels.npy")
    with placed(folder / "labels.npy") as temporary:
        listed = _write_labels(name, dataset, scenes, parted, temporary)
        frame = _index(scenes, parted, listed)
        counts = np.sum([item.counts for item in listed], axis=0)
        log_split(counts, dataset)
        remove(folder / "statistics.json")  # from here on the older store is gone
    if left_out := sum(tiles.cut.tiles for tiles in scenes) - len(frame):
        _log.info("%d tiles left out: of no split, not drawn, or without a label of their own", left_out)
    write_index(folder, frame, _places(scenes, listed), _footprints(scenes, listed))
    _write_polygons(folder / POLYGONS, parted)
    pixels, missing = (sum(getattr(tiles.cut, key) for tiles in scenes) for key in ("pixels", "missing"))
    info = write_statistics(
        folder, dataset, [tiles.shard for tiles in scenes], frame, counts, _band_moments(scenes, parted, listed),
        scenes[0].grid.resolution, missing / pixels,
    )  # fmt: skip
    _log.info("%s: %d tiles of %d pixels, %.2f %% nodata", name, info.tiles, info.tile_size, 100 * info.nodata_share)


def _sampled(dataset: Dataset, scenes: Sequence[SceneTiles], parted: Sequence[Parting]) -> Sequence[Parting]:
    """Return the parting without the training tiles that `tiles.per_class` and `tiles.balance` leave out."""
    wanted = dataset.tiles
    if wanted.per_class is None and not wanted.balance:
        return parted
    kept = [
        [part for _, part in masked(tiles, dataset, parting.splits, parting.foreign)]
        for tiles, parting in zip(scenes, parted, strict=True)
    ]
    numbers = [np.concatenate([np.empty(0, np.int64), *(part.tiles for part in parts)]) for parts in kept]
    classes = np.concatenate([part.classes for parts in kept for part in parts])
    training = np.concatenate([parting.splits[ids] == 0 for parting, ids in zip(parted, numbers, strict=True)])
    chosen = taken(classes, training, wanted.per_class, wanted.balance, dataset.split.seed)
    _log.info("%d of %d training tiles drawn by class", np.count_nonzero(chosen & training), np.count_nonzero(training))
    result, first = [], 0
    for parting, ids in zip(parted, numbers, strict=True):
        splits = np.full_like(parting.splits, -1)
        of_scene = ids[chosen[first : first + len(ids)]]
        splits[of_scene] = parting.splits[of_scene]
        result.append(replace(parting, splits=splits))
        first += len(ids)
    return result


def _write_labels(
    name: str, dataset: Dataset, scenes: Sequence[SceneTiles], parted: Sequence[Parting], path: Path
) -> list[_Listed]:
    """Write ``labels.npy`` and return what of each scene is in it, in the same order."""
    per_pixel, size, classes = dataset.task == "segmentation", dataset.tiles.size, len(dataset.classes)
    listed = []
    with (
        GrowingArray(path, (size, size) if per_pixel else (), np.uint8) as file,
        Progress(f"tile {name}: labels", sum(len(tiles.table) for tiles in scenes), "tile") as progress,
    ):
        for tiles, parting in zip(scenes, parted, strict=True):
            parts, counts = [], np.zeros((len(SPLITS), classes), np.int64)
            for cell, part in masked(tiles, dataset, parting.splits, parting.foreign):
                file.append(part.labels if per_pixel else part.classes)
                np.add.at(counts, parting.splits[part.tiles], part.fresh)
                parts.append(part)
                progress.advance(cell.stop - cell.first)
            listed.append(_listed(parts, counts))
        if not file.count:
            raise UserError("split: the buffer leaves no labels. Make split.buffer smaller or split.size larger.")
    return listed


def _listed(parts: Sequence[Kept], counts: NDArray[np.int64]) -> _Listed:
    """Return what the cells of a scene hold together."""
    tiles, labelled = np.empty(0, np.int64), np.empty(0, np.int64)
    return _Listed(
        np.concatenate([tiles, *(part.tiles for part in parts)]),
        np.concatenate([np.empty(0, np.uint8), *(part.classes for part in parts)]),
        np.concatenate([labelled, *(part.labelled for part in parts)]),
        counts,
    )


def _index(scenes: Sequence[SceneTiles], parted: Sequence[Parting], listed: Sequence[_Listed]) -> pd.DataFrame:
    """Return the rows of the index, a tile each."""
    frames = []
    blocks = [
        [parting.blocks[number] for number in item.numbers.tolist()]
        for parting, item in zip(parted, listed, strict=True)
    ]
    numbers = {key: number for number, key in enumerate(sorted({key for keys in blocks for key in keys}))}
    for tiles, parting, item, keys in zip(scenes, parted, listed, blocks, strict=True):
        rows = tiles.table.iloc[item.numbers]
        names = np.array(SPLITS, object)[parting.splits[item.numbers]]
        frame = rows[["row", "col", "height", "width"]].reset_index(drop=True)
        frame.insert(0, "scene", tiles.scene)
        frame["block"] = np.array([numbers[key] for key in keys], np.int64)
        frame["split"], frame["label"], frame["labelled"] = names, item.classes.astype(np.int64), item.labelled
        frame["frame"] = tiles.placement.frame
        frame["frame_row"] = frame["row"] + tiles.placement.row
        frame["frame_col"] = frame["col"] + tiles.placement.col
        frames.append(frame)
    index = pd.concat([frame for frame in frames if len(frame)], ignore_index=True)
    index.insert(0, "tile", np.arange(len(index)))
    return index


def _places(scenes: Sequence[SceneTiles], listed: Sequence[_Listed]) -> NDArray[np.int64]:
    """Return the number of each tile's image, counted through all scenes."""
    first = np.cumsum([0, *(tiles.cut.tiles for tiles in scenes)])
    return np.concatenate(
        [
            tiles.table["place"].to_numpy()[item.numbers] + start
            for tiles, item, start in zip(scenes, listed, first[:-1], strict=True)
        ]
    )


def _footprints(scenes: Sequence[SceneTiles], listed: Sequence[_Listed]) -> NDArray[np.object_]:
    """Return the outline of each tile's part inside its scene, in EPSG:4326."""
    outlines = []
    for tiles, item in zip(scenes, listed, strict=True):
        rows = tiles.table.iloc[item.numbers]
        top, left = rows["row"].to_numpy(), rows["col"].to_numpy()
        bottom, right = top + rows["height"].to_numpy(), left + rows["width"].to_numpy()
        cols, lines = np.stack([left, right, right, left], axis=1), np.stack([top, top, bottom, bottom], axis=1)
        grid = tiles.grid
        if len(rows):
            a, b, c, d, e, f = tuple(grid.transform)[:6]
            x, y = a * cols + b * lines + c, d * cols + e * lines + f
            corners = np.stack(transform_points(grid.crs, "EPSG:4326", x.ravel(), y.ravel()), axis=-1)
            outlines.append(np.asarray(shapely.polygons(corners.reshape(-1, 4, 2)), object))
    return np.concatenate(outlines)


def _write_polygons(path: Path, parted: Sequence[Parting]) -> None:
    """Write the polygons of all scenes that are in a split; no file where the split goes by something else."""
    frames = [parting.polygons for parting in parted if parting.polygons is not None and len(parting.polygons)]
    if not frames:
        remove(path)
        return
    with placed(path) as temporary:
        gpd.GeoDataFrame(pd.concat(frames, ignore_index=True)).to_parquet(temporary, index=False)


def _band_moments(
    scenes: Sequence[SceneTiles], parted: Sequence[Parting], listed: Sequence[_Listed]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each band over the valid pixels of the training tiles."""
    counts, of_tiles = [], []
    for tiles, parting, item in zip(scenes, parted, listed, strict=True):
        training = item.numbers[parting.splits[item.numbers] == SPLITS.index("train")]
        counts.append(tiles.table["valid"].to_numpy()[training])
        of_tiles.append(tiles.moments(training))
    return merged(np.concatenate(counts), np.concatenate(of_tiles))
