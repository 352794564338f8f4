"""Scenes and polygons into tiles.

Two passes, so that each pixel is decoded once and no more than a shard is in memory: the first cuts every
tile that has a label into a scratch file and counts the labels of each block; then the blocks are drawn;
the second takes labels near other splits away and writes the store.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import numpy as np
import shapely
from numpy.typing import NDArray
from rasterio.warp import transform as transform_points

from landbalance.config import BlockSplit, Dataset
from landbalance.errors import UserError
from landbalance.progress import Progress
from landbalance.raster import Grid, SceneReader, open_scene
from landbalance.tile.blocks import (
    Block,
    BlockKey,
    Placement,
    Window,
    blocks,
    frame_place,
    place_scenes,
    tile_windows,
)
from landbalance.tile.labels import Polygons, burn, polygons_of, read_labels
from landbalance.tile.split import SPLITS, draw_blocks, part_of, too_near
from landbalance.tile.write import Store, label_counts, log_split, write_index, write_statistics
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Cut:
    """A tile cut from a scene; its pixels stand in the scratch file, in the same order."""

    scene: str
    block: Block
    window: Window


@dataclass
class _Cuts:
    """What the first pass leaves."""

    tiles: list[_Cut]
    counts: dict[BlockKey, NDArray[np.int64]]
    """Labels of each class in each block: pixels, or tiles for classification."""
    pixels: int = 0
    missing: int = 0


def tile_scenes(name: str, dataset: Dataset, source: Path, folder: Path) -> None:
    """Cut the scenes of a dataset into a tile store in `folder`, which is there and empty.

    Raises
    ------
    UserError
        When scenes or labels cannot be read or do not fit each other, or a split stays empty.
    """
    split = dataset.split
    assert isinstance(split, BlockSplit)
    assert dataset.labels is not None
    grids, dtype = _grids(dataset, source)
    placements = place_scenes(grids, split.buffer)
    labels = read_labels(source / dataset.labels.path, dataset.labels, dataset.classes, grids)
    polygons = {scene: polygons_of(scene, labels, grid) for scene, grid in grids.items()}
    _log.info("a pixel has the class of the polygon that holds its centre; where polygons overlap, of the smallest")
    scratch = folder / "scratch"
    with scratch.open("w+b") as file:
        cuts = _cut(name, dataset, source, grids, placements, polygons, dtype, file)
        splits = _drawn(cuts, dataset)
        store, rows = _fill(name, dataset, cuts, splits, dtype, folder, file)
    scratch.unlink()
    log_split(store, dataset)
    write_index(folder, rows, _footprints(rows, grids))
    resolution = next(iter(grids.values())).resolution
    info = write_statistics(store, dataset, resolution, cuts.missing / cuts.pixels)
    _log.info("%s: %d tiles of %d pixels, %.2f %% nodata", name, info.tiles, info.tile_size, 100 * info.nodata_share)


def _grids(dataset: Dataset, source: Path) -> tuple[dict[str, Grid], np.dtype[Any]]:
    grids, dtypes = {}, []
    for scene, item in dataset.scenes.items():
        with open_scene(item, source, dataset.resolution, dataset.resampling) as reader:
            grids[scene] = reader.grid
            _log.info("%s: %s", scene, reader.description)
            dtypes.append(reader.dtype)
    sizes = {f"{grid.resolution:.9g}": scene for scene, grid in grids.items()}
    if len(sizes) > 1:
        found = ", ".join(f"{scene} {size}" for size, scene in sizes.items())
        raise UserError(f"scenes: their pixels differ in size ({found}). Set the dataset's `resolution`.")
    return grids, np.result_type(*dtypes)


def _cut(
    name: str,
    dataset: Dataset,
    source: Path,
    grids: Mapping[str, Grid],
    placements: Mapping[str, Placement],
    polygons: Mapping[str, Polygons],
    dtype: np.dtype[Any],
    scratch: IO[bytes],
) -> _Cuts:
    """Write every tile with a label into `scratch`, image and labels, and count the labels."""
    size = dataset.split.size if isinstance(dataset.split, BlockSplit) else 0
    of_scenes = {scene: list(blocks(grid, placements[scene], size)) for scene, grid in grids.items()}
    cuts = _Cuts([], {})
    with Progress(f"tile {name}: reading", sum(map(len, of_scenes.values())), "block") as progress:
        for scene, scene_blocks in of_scenes.items():
            with open_scene(dataset.scenes[scene], source, dataset.resolution, dataset.resampling) as reader:
                for block in scene_blocks:
                    burnt = burn(polygons[scene], grids[scene], block.window)
                    if (burnt != IGNORED).any():
                        for window, image, label in _block_tiles(dataset, reader, block, burnt, cuts):
                            cuts.tiles.append(_Cut(scene, block, window))
                            scratch.write(image.astype(dtype, copy=False).tobytes())
                            scratch.write(label.tobytes())
                    progress.advance()
    if not cuts.tiles:
        raise UserError(
            "labels: no tile has enough labelled pixels. The polygons may be smaller than a pixel, lie on missing "
            f"pixels, or cover less than tiles.labelled ({dataset.tiles.labelled:g}) of every tile."
        )
    return cuts


def _block_tiles(
    dataset: Dataset, reader: SceneReader, block: Block, burnt: NDArray[np.uint8], cuts: _Cuts
) -> Iterator[tuple[Window, NDArray[Any], NDArray[np.uint8]]]:
    """Yield the tiles of a block that have labels enough: window, image, labels; and add to the counts."""
    size, class_count = dataset.tiles.size, len(dataset.classes)
    seen = np.full(burnt.shape, IGNORED, np.uint8)
    count = np.zeros(class_count, np.int64)
    for window in tile_windows(block.window, size, dataset.tiles.stride or size):
        part = part_of(window, block)
        if (burnt[part] == IGNORED).all():
            continue
        image, valid = reader.read(window.row, window.col, window.height, window.width)
        cuts.pixels += valid.size
        cuts.missing += int(np.count_nonzero(~valid))
        label = np.where(valid, burnt[part], np.uint8(IGNORED))
        if not _enough(label, dataset):
            continue
        seen[part] = label
        count[majority(label, class_count)] += 1
        yield window, _padded(image, size, 0), _padded(label, size, IGNORED)
    if dataset.task == "segmentation":
        count = label_counts(seen, class_count)
    if count.any():
        before = cuts.counts.setdefault(block.key, np.zeros(class_count, np.int64))
        before += count


def _padded(values: NDArray[Any], size: int, fill: int) -> NDArray[Any]:
    """Return `values`, shape (…, height, width), filled up to `size` below and to the right."""
    *leading, height, width = values.shape
    full = np.full((*leading, size, size), fill, values.dtype)
    full[..., :height, :width] = values
    return full


def _enough(label: NDArray[np.uint8], dataset: Dataset) -> bool:
    """Return whether a tile with these labels is kept."""
    counts = label_counts(label, len(dataset.classes))
    count = counts.sum() if dataset.task == "segmentation" else counts.max()
    return bool(count >= max(1, dataset.tiles.labelled * dataset.tiles.size**2))


def majority(label: NDArray[np.uint8], classes: int) -> int:
    """Return the most frequent class, the first of equals; 255 where there is no label."""
    counts = label_counts(label, classes)
    return int(counts.argmax()) if counts.any() else IGNORED


def _drawn(cuts: _Cuts, dataset: Dataset) -> dict[BlockKey, int]:
    """Return the split of each block that has labels."""
    split = dataset.split
    shares = (split.train, split.validation, split.test)
    keys = sorted(cuts.counts)
    wanted = sum(share > 0 for share in shares)
    if len(keys) < wanted:
        raise UserError(
            f"split: the labels lie in {len(keys)} block(s), but {wanted} splits want one at least. Make split.size "
            f"smaller, add labels, or give a split the share 0."
        )
    drawn = draw_blocks(np.stack([cuts.counts[key] for key in keys]), shares, split.seed)
    for number, title in enumerate(SPLITS):
        _log.info("%s: %d of %d blocks", title, np.count_nonzero(drawn == number), len(keys))
    return dict(zip(keys, drawn.tolist(), strict=True))


def _fill(
    name: str,
    dataset: Dataset,
    cuts: _Cuts,
    splits: Mapping[BlockKey, int],
    dtype: np.dtype[Any],
    folder: Path,
    scratch: IO[bytes],
) -> tuple[Store, list[dict[str, Any]]]:
    """Write the shards; return the store and the rows of its index."""
    assert isinstance(dataset.split, BlockSplit)
    size, class_count, per_pixel = dataset.tiles.size, len(dataset.classes), dataset.task == "segmentation"
    shape = (len(dataset.bands), size, size)
    store = Store(folder, shape, dtype, shape[1:] if per_pixel else (), class_count)
    block_ids = {key: number for number, key in enumerate(sorted(splits))}
    rows: list[dict[str, Any]] = []
    scratch.seek(0)
    with Progress(f"tile {name}: writing", len(cuts.tiles), "tile") as progress:
        for (_, block), tiles in groupby(cuts.tiles, key=lambda cut: (cut.scene, cut.block)):
            split = splits[block.key]
            near = too_near(block, splits, dataset.split.size, dataset.split.buffer)
            seen = np.zeros_like(near)
            for cut in tiles:
                progress.advance()
                image = np.frombuffer(scratch.read(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
                label = np.frombuffer(scratch.read(size * size), np.uint8).reshape(size, size).copy()
                part = part_of(cut.window, block)
                inside = label[: cut.window.height, : cut.window.width]
                if per_pixel:
                    inside[near[part]] = IGNORED
                    if SPLITS[split] != "train":
                        # Where tiles overlap, a pixel is judged once: in the first that has it.
                        inside[seen[part]] = IGNORED
                elif near[part].any():
                    continue
                if not _enough(label, dataset):
                    continue
                answer = np.array(majority(label, class_count), np.uint8)
                fresh = label_counts(inside[~seen[part]] if per_pixel else answer, class_count)
                seen[part] = True
                valid = np.asarray(image.any(axis=0))
                store.append(image, label if per_pixel else answer, split, valid, fresh)
                row = _row(len(rows), cut, block_ids[block.key], split, int(answer), label)
                rows.append({**row, **frame_place(block, cut.window, dataset.split.size)})
    if not rows:
        raise UserError("split: the buffer leaves no labels. Make split.buffer smaller or split.size larger.")
    store.flush()
    if left_out := len(cuts.tiles) - len(rows):
        _log.info("%d tiles left out: their labels are near another split, or were in a tile before", left_out)
    return store, rows


def _row(tile: int, cut: _Cut, block: int, split: int, answer: int, label: NDArray[np.uint8]) -> dict[str, Any]:
    """Return a tile's row of the index."""
    return {
        "tile": tile,
        "scene": cut.scene,
        "row": cut.window.row,
        "col": cut.window.col,
        "height": cut.window.height,
        "width": cut.window.width,
        "block": block,
        "split": SPLITS[split],
        "label": answer,
        "labelled": int(np.count_nonzero(label != IGNORED)),
    }


def _footprints(rows: Sequence[Mapping[str, Any]], grids: Mapping[str, Grid]) -> list[shapely.Geometry]:
    """Return the outline of each tile's part inside its scene, in EPSG:4326."""
    outlines: list[shapely.Geometry] = []
    for row in rows:
        grid = grids[row["scene"]]
        top, left, bottom, right = row["row"], row["col"], row["row"] + row["height"], row["col"] + row["width"]
        corners = [grid.transform @ corner for corner in ((left, top), (right, top), (right, bottom), (left, bottom))]
        x, y = transform_points(grid.crs, "EPSG:4326", *zip(*corners, strict=True))
        outlines.append(shapely.Polygon(zip(x, y, strict=True)))
    return outlines
