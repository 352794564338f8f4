"""Class probabilities of a scene, block by block: of each pixel, or from the votes of overlapping tiles.

The memory that it takes depends on the window, not on the scene: a wide scene is worked on in panels.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from landbalance.config.learning import Map
from landbalance.map.strips import Place, Strip, strips
from landbalance.map.windows import Span, spans, tile_starts
from landbalance.prediction import Predictor, in_order
from landbalance.raster import SceneReader

_VOTES = 1 << 20
"""A tile's probabilities become whole votes out of so many: their sums are exact, in any order."""

_STRIP_BYTES = 56 << 20
"""What a panel's strip and the sums of its probabilities may take together."""


@dataclass(frozen=True)
class Block:
    """Probabilities of a part of the map.

    Parameters
    ----------
    row, col : int
        First pixel.
    probabilities : ndarray of float32, shape (classes, height, width)
        They sum to 1 where `valid`, within rounding. They last until the next block is asked for.
    valid : ndarray of bool, shape (height, width)
        Pixels with data.
    """

    row: int
    col: int
    probabilities: NDArray[np.float32]
    valid: NDArray[np.bool_]


def segmented(scene: SceneReader, predictors: Sequence[Predictor], settings: Map) -> Iterator[Block]:
    """Yield the map of a network that gives a class to each pixel; each pixel of the scene stands in one block.

    Parameters
    ----------
    scene : SceneReader
        With the bands of the network, in its order.
    predictors : sequence of Predictor
        The same network for each thread that shall work; their number changes nothing.
    settings : Map
        Window, overlap and join.
    """
    card = predictors[0].card
    # An encoder of that depth halves the resolution so many times.
    multiple = 2**card.model.depth
    rows, columns = (
        spans(length, settings.window, settings.overlap, multiple, settings.join == "blend")
        for length in (scene.grid.height, scene.grid.width)
    )
    column_bytes = rows[0].size * (len(card.bands) * scene.dtype.itemsize + 4 * len(card.classes))
    panels = _panels(columns, max(1, _STRIP_BYTES // column_bytes))
    together = predictors[0].batch_size(rows[0].size, columns[0].size)
    # The same threads for all panels: memory that a thread gives back is not there for others at once.
    results = in_order(predictors, _tasks(scene, rows, panels, together), _weighted)
    for _, of_panel in groupby(results, key=lambda item: item[0].panel.first):
        yield from _panel_blocks(of_panel, rows, len(card.classes))


@dataclass(frozen=True)
class _Panel:
    """Columns `first` … `stop` - 1 of the scene and all windows that count for them."""

    first: int
    stop: int
    columns: Sequence[Span]

    @property
    def left(self) -> int:
        """Return the first column that is read."""
        return self.columns[0].start

    @property
    def width(self) -> int:
        """Return how many columns are read."""
        return self.columns[-1].start + self.columns[-1].size - self.left


def _panels(columns: Sequence[Span], width: int) -> list[_Panel]:
    """Return panels of about `width` columns; what windows on a border predict is computed for both its sides."""
    total = columns[-1].stop
    edges = np.linspace(0, total, -(-total // width) + 1).round().astype(int).tolist()
    return [
        _Panel(first, stop, [span for span in columns if span.first < stop and span.stop > first])
        for first, stop in pairwise(edges)
    ]


@dataclass(frozen=True)
class _Task:
    """Some windows of a row of windows."""

    panel: _Panel
    row: Span
    columns: Sequence[Span]
    strip: Strip


def _tasks(scene: SceneReader, rows: Sequence[Span], panels: Sequence[_Panel], together: int) -> Iterator[_Task]:
    """Yield all windows of a scene, panel by panel, row by row, some at a time."""
    order = [(panel, row) for panel in panels for row in rows]
    read = strips(scene, [Place(row.start, panel.left, panel.width) for panel, row in order], rows[0].size)
    for (panel, row), strip in zip(order, read, strict=True):
        for first in range(0, len(panel.columns), together):
            yield _Task(panel, row, panel.columns[first : first + together], strip)


def _panel_blocks(
    results: Iterable[tuple[_Task, list[NDArray[np.float32] | None]]], rows: Sequence[Span], classes: int
) -> Iterator[Block]:
    height = rows[0].size
    sums = np.zeros((classes, height, 0), np.float32)
    after = dict(zip([row.first for row in rows], [*(row.first for row in rows[1:]), rows[-1].stop], strict=True))
    for first, of_row in groupby(results, key=lambda item: item[0].row.first):
        for task, parts in of_row:
            strip, panel = task.strip, task.panel
            if not sums.size:
                sums = np.zeros((classes, height, panel.stop - panel.first), np.float32)
            for column, part in zip(task.columns, parts, strict=True):
                if part is not None:
                    low, high = max(column.first, panel.first), min(column.stop, panel.stop)
                    place = sums[:, : part.shape[1], low - panel.first : high - panel.first]
                    place += part[:, :, low - column.first : high - column.first]
        # Later windows count from the next row's first pixel on.
        done = after[first] - first
        there = strip.valid[
            first - strip.row : after[first] - strip.row, panel.first - strip.col : panel.stop - strip.col
        ]
        yield Block(first, panel.first, sums[:, :done], there)
        for each in sums:
            each[: height - done] = each[done:].copy()
            each[height - done :] = 0


def _weighted(predictor: Predictor, task: _Task) -> list[NDArray[np.float32] | None]:
    """Return what each window adds to the probabilities of the pixels it counts for; None for one without data."""
    strip = task.strip
    places = [slice(column.start - strip.col, column.start - strip.col + column.size) for column in task.columns]
    with_data = [
        number
        for number, (place, column) in enumerate(zip(places, task.columns, strict=True))
        if strip.valid[task.row.used, place][:, column.used].any()
    ]
    parts: list[NDArray[np.float32] | None] = [None] * len(places)
    if with_data:
        images = np.stack([strip.images[:, :, places[number]] for number in with_data])
        for number, probabilities in zip(with_data, predictor.probabilities(images), strict=True):
            column = task.columns[number]
            weights = task.row.weights[:, None] * column.weights
            parts[number] = probabilities[:, task.row.used, column.used] * weights
    return parts


def voted(scene: SceneReader, predictors: Sequence[Predictor], settings: Map) -> Iterator[Block]:
    """Yield the map of a network that gives a class to each tile; each pixel of the scene stands in one block.

    A pixel gets the mean probabilities of the tiles that cover it; a tile without data has no vote. Tiles lie
    ``map.stride`` apart.
    """
    size = predictors[0].card.tile_size
    stride = settings.stride or max(1, size // 4)
    height, width = scene.grid.height, scene.grid.width
    rows, columns = tile_starts(height, size, stride), tile_starts(width, size, stride)
    column_cells = _cells(columns, size, width)
    together = predictors[0].batch_size(size, size)
    tasks = (
        _Votes(number, columns[first : first + together], strip)
        for number, strip in enumerate(strips(scene, [Place(row, 0, max(width, size)) for row in rows], size))
        for first in range(0, len(columns), together)
    )
    recent: deque[NDArray[np.int64]] = deque()
    of_rows = groupby(in_order(predictors, tasks, _tile_votes), key=lambda item: item[0].number)
    # The last tile row that covers a cell is the one that begins above it; its cells are complete then.
    for last, cells in groupby(_cells(rows, size, height), key=lambda cell: cell.high - 1):
        number, done = next(of_rows)
        assert number == last, "each row of tiles completes some cells"
        results = list(done)
        strip = results[0][0].strip
        recent.append(np.concatenate([votes for _, votes in results]))
        for cell in cells:
            while len(recent) > cell.high - cell.low:
                recent.popleft()
            shares = _shares(np.sum(recent, axis=0), column_cells)
            rows_of_cell = cell.stop - cell.first
            there = strip.valid[cell.first - strip.row : cell.stop - strip.row, :width]
            yield Block(cell.first, 0, np.repeat(shares[:, None], rows_of_cell, axis=1), there)


@dataclass(frozen=True)
class _Votes:
    """Some tiles of a row of tiles."""

    number: int
    columns: Sequence[int]
    strip: Strip


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


def _tile_votes(predictor: Predictor, task: _Votes) -> NDArray[np.int64]:
    """Return the votes of some tiles, (tiles, classes)."""
    size, strip = predictor.card.tile_size, task.strip
    votes = np.zeros((len(task.columns), len(predictor.card.classes)), np.int64)
    places = [slice(start, start + size) for start in task.columns]
    with_data = [number for number, place in enumerate(places) if strip.valid[:, place].any()]
    if with_data:
        images = np.stack([strip.images[:, :, places[number]] for number in with_data])
        votes[with_data] = np.rint(predictor.probabilities(images) * _VOTES).astype(np.int64)
    return votes


def _shares(votes: NDArray[np.int64], cells: Sequence[_Cell]) -> NDArray[np.float32]:
    """Return each class's share of the votes for each pixel of a row, (classes, pixels), from those of the tiles."""
    until = np.concatenate([np.zeros((1, votes.shape[1]), np.int64), votes.cumsum(axis=0)])
    total = until[[cell.high for cell in cells]] - until[[cell.low for cell in cells]]
    shares = (total / np.maximum(total.sum(axis=1, keepdims=True), 1)).astype(np.float32)
    return np.repeat(shares.T, [cell.stop - cell.first for cell in cells], axis=1)
