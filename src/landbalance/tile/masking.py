"""The labels that tiles keep once their split is known, and what they then count."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.tile.blocks import Window
from landbalance.tile.cells import Cell, SceneTiles, in_cell
from landbalance.tile.cut import enough
from landbalance.tile.write import counts_of_each
from landbalance.tiles import IGNORED, SPLITS


@dataclass(frozen=True)
class Kept:
    """The tiles of a cell that keep labels enough.

    Attributes
    ----------
    tiles : ndarray of int, shape (n,)
        Their numbers in the scene.
    labels : ndarray of uint8, shape (n, size, size)
    classes : ndarray of uint8, shape (n,)
        The class that most of a tile's labels have.
    labelled : ndarray of int, shape (n,)
        Pixels with a label.
    fresh : ndarray of int, shape (n, classes)
        Labels of each class that no tile before had: pixels, or tiles in classification. Where training tiles overlap,
        a pixel must not count twice, or the shares of the splits would seem other than they are.
    """

    tiles: NDArray[np.int64]
    labels: NDArray[np.uint8]
    classes: NDArray[np.uint8]
    labelled: NDArray[np.int64]
    fresh: NDArray[np.int64]


def masked(
    tiles: SceneTiles,
    dataset: Dataset,
    splits: NDArray[np.int8],
    foreign: Callable[[Cell, int], NDArray[np.bool_] | None],
) -> Iterator[tuple[Cell, Kept]]:
    """Yield for each cell of a scene the tiles that stay, their labels masked.

    In segmentation, a tile loses the labels that are foreign to its split; in classification, a tile with a foreign
    pixel is left out. A pixel of validation or test is judged once, in the first tile that has it.

    Parameters
    ----------
    splits : ndarray of int8, shape (tiles,)
        Index into `SPLITS`; tiles with -1 are left out.
    foreign : callable
        As in `parting.Parting`.
    """
    per_pixel, class_count = dataset.task == "segmentation", len(dataset.classes)
    for cell in tiles.cells():
        numbers = cell.first + np.flatnonzero(splits[cell.first : cell.stop] >= 0)
        if not len(numbers):
            continue
        windows, labels, counts = tiles.windows(numbers), tiles.labels(numbers), tiles.counts(numbers)
        lost = np.zeros(len(numbers), np.bool_)
        masks = {number: foreign(cell, number) for number in np.unique(splits[numbers]).tolist()}
        for place, (window, split) in enumerate(zip(windows, splits[numbers].tolist(), strict=True)):
            mask = masks[split]
            if mask is not None and (gone := mask[in_cell(window, cell)]).any():
                labels[place, : window.height, : window.width][gone] = IGNORED
                lost[place] = True
        stays = np.ones(len(numbers), np.bool_)
        if not per_pixel:
            stays = ~lost
        elif tiles.overlap(numbers):
            fresh = _once(cell, windows, labels, splits[numbers], dataset)
            counts = counts_of_each(labels, class_count)
        else:
            counts[lost] = counts_of_each(labels[lost], class_count)
            fresh = counts
        stays &= enough(counts, dataset)
        classes = counts.argmax(axis=1)
        if not per_pixel:
            fresh = np.eye(class_count, dtype=np.int64)[classes]
        yield (
            cell,
            Kept(
                numbers[stays], labels[stays], classes[stays].astype(np.uint8), counts[stays].sum(axis=1), fresh[stays]
            ),
        )


def _once(
    cell: Cell, windows: Sequence[Window], labels: NDArray[np.uint8], splits: NDArray[np.int8], dataset: Dataset
) -> NDArray[np.int64]:
    """Take from tiles that overlap what an earlier one has, outside of training; return what is fresh in each."""
    fresh = np.zeros((len(windows), len(dataset.classes)), np.int64)
    top = max(window.row + window.height for window in windows) - cell.row
    left = max(window.col + window.width for window in windows) - cell.col
    seen = np.zeros((top, left), np.bool_)
    for place, window in enumerate(windows):
        part = in_cell(window, cell)
        inside = labels[place, : window.height, : window.width]
        if SPLITS[splits[place]] != "train":
            inside[seen[part]] = IGNORED
        counts = counts_of_each(labels[place : place + 1], len(dataset.classes))[0]
        if not enough(counts, dataset):
            continue
        fresh[place] = counts_of_each(inside[~seen[part]][None], len(dataset.classes))[0]
        seen[part] = True
    return fresh
