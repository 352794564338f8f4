"""Class codes of a scene, block by block: a class per pixel, or votes of overlapping tiles.

The memory that it takes depends on the window or on the scene's width, not on its height.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from landbalance.map.windows import Span, spans, tile_starts
from landbalance.prediction import Predictor
from landbalance.raster import SceneReader

_VOTES = 1 << 20
"""A tile's probabilities become whole votes out of so many: their sums are exact, in any order."""


@dataclass(frozen=True)
class Block:
    """Codes of a part of the map; `codes` is uint8 of shape (height, width)."""

    row: int
    col: int
    codes: NDArray[np.uint8]


def segmented(scene: SceneReader, predictor: Predictor, window: int, overlap: int, nodata: int) -> Iterator[Block]:
    """Yield the map of a network that gives a class to each pixel; each pixel of the scene stands in one block.

    Parameters
    ----------
    scene : SceneReader
        With the bands of the network, in its order.
    window, overlap, nodata : int
        As in `config.Map`.
    """
    # An encoder of that depth halves the resolution so many times.
    multiple = 2**predictor.card.model.depth
    rows = spans(scene.grid.height, window, overlap, multiple)
    columns = spans(scene.grid.width, window, overlap, multiple)
    together = predictor.batch_size(rows[0].size, columns[0].size)
    for row in rows:
        for first in range(0, len(columns), together):
            yield from _window_blocks(scene, predictor, row, columns[first : first + together], nodata)


def _window_blocks(
    scene: SceneReader, predictor: Predictor, row: Span, columns: Sequence[Span], nodata: int
) -> list[Block]:
    """Return the used parts of some windows of a row; a window without data is not computed."""
    read = [scene.read(row.start, column.start, row.size, column.size) for column in columns]
    used = [
        (slice(row.first - row.start, row.stop - row.start), slice(span.first - span.start, span.stop - span.start))
        for span in columns
    ]
    blocks = [
        Block(row.first, span.first, np.full((row.stop - row.first, span.stop - span.first), nodata, np.uint8))
        for span in columns
    ]
    with_data = [number for number, (_, valid) in enumerate(read) if valid[used[number]].any()]
    if with_data:
        classes = predictor.classes(np.stack([read[number][0] for number in with_data]))
        for number, of_window in zip(with_data, classes, strict=True):
            np.copyto(blocks[number].codes, of_window[used[number]], where=read[number][1][used[number]])
    return blocks


def voted(scene: SceneReader, predictor: Predictor, nodata: int) -> Iterator[Block]:
    """Yield the map of a network that gives a class to each tile; each pixel of the scene stands in one block.

    Tiles lie a quarter of their size apart. A pixel gets the class with the highest mean probability over the tiles
    that cover it; a tile without data has no vote.
    """
    size = predictor.card.tile_size
    stride = max(1, size // 4)
    height, width = scene.grid.height, scene.grid.width
    rows, columns = tile_starts(height, size, stride), tile_starts(width, size, stride)
    column_cells = _cells(columns, size, width)
    recent: deque[NDArray[np.int64]] = deque()
    # The last tile row that covers a cell is the one that begins above it; its cells are complete then.
    for last, cells in groupby(_cells(rows, size, height), key=lambda cell: cell.high - 1):
        row, after = rows[last], rows[last + 1] if last + 1 < len(rows) else height
        votes, valid = _tile_votes(scene, predictor, row, columns, after - row)
        recent.append(votes)
        for cell in cells:
            while len(recent) > cell.high - cell.low:
                recent.popleft()
            codes = _winners(np.sum(recent, axis=0), column_cells, cell.stop - cell.first)
            there = valid[cell.first - row : cell.stop - row]
            yield Block(cell.first, 0, np.where(there, codes, np.uint8(nodata)))


@dataclass(frozen=True)
class _Cell:
    """Pixels `first` … `stop` - 1 of an axis, all covered by the tiles `low` … `high` - 1."""

    first: int
    stop: int
    low: int
    high: int


def _cells(starts: Sequence[int], size: int, length: int) -> list[_Cell]:
    """Return the pieces of an axis between which the tiles that cover it change."""
    edges = np.unique([*starts, *(min(start + size, length) for start in starts)])
    low = np.searchsorted(np.asarray(starts) + size, edges[:-1], side="right")
    high = np.searchsorted(starts, edges[:-1], side="right")
    return [_Cell(*map(int, each)) for each in zip(edges[:-1], edges[1:], low, high, strict=True)]


def _tile_votes(
    scene: SceneReader, predictor: Predictor, row: int, columns: Sequence[int], rows_valid: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the votes of a row of tiles, (tiles, classes), and the valid pixels of its first `rows_valid` rows."""
    size, grid = predictor.card.tile_size, scene.grid
    votes = np.zeros((len(columns), len(predictor.card.classes)), np.int64)
    valid = np.zeros((rows_valid, grid.width), np.bool_)
    together = predictor.batch_size(size, size)
    for first in range(0, len(columns), together):
        starts = columns[first : first + together]
        images, there = scene.read(row, starts[0], size, starts[-1] + size - starts[0])
        inside = min(there.shape[1], grid.width - starts[0])
        valid[:, starts[0] : starts[0] + inside] = there[:rows_valid, :inside]
        places = [slice(start - starts[0], start - starts[0] + size) for start in starts]
        with_data = [number for number, place in enumerate(places) if there[:, place].any()]
        if with_data:
            shares = predictor.probabilities(np.stack([images[:, :, places[number]] for number in with_data]))
            votes[first + np.asarray(with_data)] = np.rint(shares * _VOTES).astype(np.int64)
    return votes, valid


def _winners(votes: NDArray[np.int64], cells: Sequence[_Cell], height: int) -> NDArray[np.uint8]:
    """Return the class with most votes of each pixel of a strip, from the votes of tiles (tiles, classes)."""
    until = np.concatenate([np.zeros((1, votes.shape[1]), np.int64), votes.cumsum(axis=0)])
    total = until[[cell.high for cell in cells]] - until[[cell.low for cell in cells]]
    winner = np.repeat(total.argmax(axis=1).astype(np.uint8), [cell.stop - cell.first for cell in cells])
    return np.broadcast_to(winner, (height, len(winner)))
