"""One scene into tiles, whatever split they will be in: images, labels and statistics in files of its own.

The scene is read in pieces of some megapixels, each decoded once, by several threads; memory does not grow with it.
Nothing here depends on another scene, but for where blocks begin: each is a job of its own, and one that is added at
the end is the only one cut.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from affine import Affine
from numpy.typing import NDArray
from pydantic import Field
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning

from landbalance.config import Dataset
from landbalance.config.base import Settings
from landbalance.cores import in_order
from landbalance.files import write_json
from landbalance.progress import Progress
from landbalance.raster import Grid, SceneReader, open_scene
from landbalance.tile.blocks import Placement, Window, blocks, cell_size, tile_windows
from landbalance.tile.labels import FoundLabels, SceneLabels, scene_labels
from landbalance.tile.statistics import moments
from landbalance.tile.write import GrowingArray, counts_of_each
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)

CARD, TABLE, IMAGES, LABELS = "cut.json", "tiles.parquet", "images.npy", "labels.npy"
COUNTS, MOMENTS = "counts.npy", "moments.npy"

_PIECES_BYTES = 64 << 20
"""Of the tiles that all threads cut at once."""
_PIECE_SIDE = 2048

T = TypeVar("T")
U = TypeVar("U")


class Cut(Settings):
    """What ``cut.json`` says about a scene's tiles."""

    key: str = Field(description="Digest of all that they depend on; while it stays the same, they stay.")
    crs: str
    transform: list[float]
    width: int
    height: int
    dtype: str
    tiles: int
    pixels: int = Field(description="Pixels read for tiles with labels.")
    missing: int = Field(description="How many of these hold no data.")
    found: FoundLabels = Field(description="What the labels on the scene are.")

    @property
    def grid(self) -> Grid:
        """Return the scene's grid."""
        return Grid(CRS.from_wkt(self.crs), Affine(*self.transform), self.width, self.height)


@dataclass(frozen=True)
class _Tiles:
    """Tiles of a piece of a scene, a row each; `missing` of its `pixels` hold no data."""

    windows: list[Window]
    images: NDArray[Any]
    labels: NDArray[np.uint8]
    counts: NDArray[np.int64]
    moments: NDArray[np.float64]
    valid: list[int]
    pixels: int
    missing: int


def cut_scene(
    name: str, dataset: Dataset, source: Path, scene: str, placement: Placement, key: str, folder: Path, workers: int
) -> Cut:
    """Cut one scene into `folder`, which is there and empty; return what is in it.

    Parameters
    ----------
    name : str
        The dataset's name, for messages.
    placement : Placement
        Where the scene lies among the squares of ground that no tile leaves.
    key : str
        Digest of all that the tiles depend on.
    workers : int
        Threads that read.

    Raises
    ------
    UserError
        When the scene's files or its labels cannot be read.
    """
    with _readers(dataset, scene, source, workers) as (readers, borrowed):
        grid, dtype = readers[0].grid, readers[0].dtype
        _log.info("%s: %s", scene, readers[0].description)
        labels = scene_labels(dataset, source, scene, grid)
        pixels = _PIECES_BYTES // (workers * dtype.itemsize * len(dataset.bands))
        pieces = _pieces(dataset, grid, placement, pixels)

        def cut(windows: Sequence[Window]) -> _Tiles | None:
            with borrowed() as reader:
                return _cut_piece(dataset, reader, labels, windows)

        parts = _tracked(cut, pieces, workers, f"tile {name}: {scene}")
        table, pixels, missing = _written(folder, dataset, dtype, parts)
    table.to_parquet(folder / TABLE, index=False)
    card = Cut(
        key=key, crs=grid.crs.to_wkt(), transform=list(grid.transform)[:6], width=grid.width, height=grid.height,
        dtype=dtype.str, tiles=len(table), pixels=pixels, missing=missing, found=labels.found,
    )  # fmt: skip
    write_json(folder / CARD, card.model_dump(mode="json"))
    _log.info("%s: %d tiles", scene, card.tiles)
    return card


@contextmanager
def _readers(
    dataset: Dataset, scene: str, source: Path, count: int
) -> Iterator[tuple[list[SceneReader], Callable[[], Any]]]:
    """Give `count` readers of a scene, and a way for a thread to have one for a while."""
    with ExitStack() as stack:
        readers = [
            stack.enter_context(open_scene(dataset.scenes[scene], source, dataset.resolution, dataset.resampling))
            for _ in range(count)
        ]
        free: SimpleQueue[SceneReader] = SimpleQueue()
        for reader in readers:
            free.put(reader)

        @contextmanager
        def borrowed() -> Iterator[SceneReader]:
            reader = free.get()
            try:
                yield reader
            finally:
                free.put(reader)

        yield readers, borrowed


def _pieces(dataset: Dataset, grid: Grid, placement: Placement, pixels: int) -> list[list[Window]]:
    """Return the windows of all tiles, those together that are read at once: squares whose tiles have about `pixels`.

    Their width is a power of two, as that of a file's own blocks often is, so that few blocks are decoded twice; it is
    about a tile's at least. Where tiles overlap, they have more pixels than the square.
    """
    size, stride = dataset.tiles.size, dataset.tiles.stride or dataset.tiles.size
    side = min(2 ** int(math.log2(max(math.isqrt(pixels) * stride // size, size))), _PIECE_SIDE)
    pieces: dict[tuple[int, int], list[Window]] = {}
    for block in blocks(grid, placement, cell_size(dataset)):
        for window in tile_windows(block.window, size, stride):
            pieces.setdefault((window.row // side, window.col // side), []).append(window)
    return list(pieces.values())


def _tracked(
    cut: Callable[[list[Window]], _Tiles | None], pieces: Sequence[list[Window]], workers: int, title: str
) -> Iterator[_Tiles]:
    """Yield the tiles of each piece, in their order, while further ones are cut by `workers` threads."""
    executor = ThreadPoolExecutor(workers)
    try:
        with Progress(title, len(pieces), "piece") as progress, warnings.catch_warnings():
            # Rasterizing polygons silences it by itself, but not in several threads at once.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            for part in in_order(executor, cut, pieces, workers):
                if part is not None:
                    yield part
                progress.advance()
    finally:
        executor.shutdown(cancel_futures=True)


def _cut_piece(dataset: Dataset, reader: SceneReader, labels: SceneLabels, windows: Sequence[Window]) -> _Tiles | None:
    """Return those of some tiles that have labels enough; None where nothing is labelled."""
    size, classes = dataset.tiles.size, len(dataset.classes)
    around = _hull(windows)
    burnt = labels.burn(around)
    windows = [window for window in windows if (burnt[part_of(window, around)] != IGNORED).any()]
    if not windows:
        return None
    within = _hull(windows)
    image, valid = reader.read(within.row, within.col, within.height, within.width)
    label = np.where(valid, burnt[part_of(within, around)], np.uint8(IGNORED))
    parts = [part_of(window, within) for window in windows]
    tiles = np.full((len(windows), size, size), IGNORED, np.uint8)
    for tile, part, window in zip(tiles, parts, windows, strict=True):
        tile[: window.height, : window.width] = label[part]
    of_classes = counts_of_each(tiles, classes)
    kept = np.flatnonzero(enough(of_classes, dataset))
    images = np.zeros((len(kept), len(image), size, size), image.dtype)
    of_tiles = np.zeros((len(kept), 2, len(image)))
    for place, number in enumerate(kept.tolist()):
        window, part = windows[number], parts[number]
        images[place, :, : window.height, : window.width] = image[:, *part]
        of_tiles[place] = moments(images[place, :, : window.height, : window.width], valid[part])
    with_data = [int(np.count_nonzero(valid[part])) for part in parts]
    pixels = sum(window.height * window.width for window in windows)
    return _Tiles(
        windows=[windows[number] for number in kept],
        images=images,
        labels=tiles[kept],
        counts=of_classes[kept],
        moments=of_tiles,
        valid=[with_data[number] for number in kept],
        pixels=pixels,
        missing=pixels - sum(with_data),
    )


def _hull(windows: Sequence[Window]) -> Window:
    """Return the smallest window that holds all of `windows`."""
    top, left = min(window.row for window in windows), min(window.col for window in windows)
    bottom = max(window.row + window.height for window in windows)
    right = max(window.col + window.width for window in windows)
    return Window(top, left, bottom - top, right - left)


def part_of(window: Window, outer: Window) -> tuple[slice, slice]:
    """Return the slices that cut a window out of an array over an `outer` one."""
    top, left = window.row - outer.row, window.col - outer.col
    return slice(top, top + window.height), slice(left, left + window.width)


def enough(counts: NDArray[np.int64], dataset: Dataset) -> NDArray[np.bool_]:
    """Return which tiles have labels enough to be kept; `counts` is (…, classes)."""
    count = counts.sum(axis=-1) if dataset.task == "segmentation" else counts.max(axis=-1)
    few: NDArray[np.bool_] = count >= max(1, dataset.tiles.labelled * dataset.tiles.size**2)
    return few


def _written(
    folder: Path, dataset: Dataset, dtype: np.dtype[Any], parts: Iterable[_Tiles]
) -> tuple[pd.DataFrame, int, int]:
    """Write the tiles of all pieces; return a table of them, the pixels read and how many of these are missing."""
    bands, size = len(dataset.bands), dataset.tiles.size
    rows, pixels, missing = [], 0, 0
    with (
        GrowingArray(folder / IMAGES, (bands, size, size), dtype) as images,
        GrowingArray(folder / LABELS, (size, size), np.uint8) as labels,
        GrowingArray(folder / COUNTS, (len(dataset.classes),), np.int64) as counts,
        GrowingArray(folder / MOMENTS, (2, bands), np.float64) as of_tiles,
    ):
        for part in parts:
            images.append(part.images)
            labels.append(part.labels)
            counts.append(part.counts)
            of_tiles.append(part.moments)
            for window, valid in zip(part.windows, part.valid, strict=True):
                rows.append((window.row, window.col, window.height, window.width, valid))
            pixels, missing = pixels + part.pixels, missing + part.missing
    return pd.DataFrame(rows, columns=["row", "col", "height", "width", "valid"], dtype=np.int64), pixels, missing
