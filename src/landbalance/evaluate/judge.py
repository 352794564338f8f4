"""Passes over the test tiles: what a classifier gets right, tile by tile and block by block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from landbalance.comparison import Judged, Unit, packed
from landbalance.errors import UserError
from landbalance.evaluate import forest
from landbalance.evaluate.accuracy import Matrix, confusions
from landbalance.evaluate.calibration import BINS, Counts, counted
from landbalance.prediction import Predictor
from landbalance.progress import Progress
from landbalance.tiles import IGNORED, TileStore

_PROBABILITIES_AT_ONCE = 1 << 24

_COLUMNS = (
    ("tile", pa.int64()),
    ("unit", pa.int64()),
    ("valid", pa.int64()),
    ("correct", pa.int64()),
    ("hits", pa.binary()),
    ("confusion", pa.list_(pa.int64())),
)


@dataclass(frozen=True)
class HeldOut:
    """The test tiles of a store, and the units (blocks, or single images) by which they were drawn.

    Parameters
    ----------
    ids, units : ndarray of int64, shape (n,)
        Number of each tile, and of its unit.
    """

    tiles: TileStore
    ids: NDArray[np.int64]
    unit: Unit
    units: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return len(self.tiles.info.classes)


@dataclass(frozen=True)
class Verdict:
    """What a classifier did on the test split.

    Parameters
    ----------
    by_unit : ndarray of int64, shape (units, classes, classes)
        Confusion matrix of each unit.
    judged : Judged
        Hits and misses, sample by sample.
    """

    by_unit: Matrix
    judged: Judged

    @property
    def confusion(self) -> Matrix:
        """Return the confusion matrix of the whole split."""
        total: Matrix = self.by_unit.sum(axis=0)
        return total


def held_out(tiles: TileStore) -> HeldOut:
    """Return the test tiles of a store with the units by which they were drawn."""
    ids, blocks = tiles.ids("test"), tiles.column("block")
    if blocks is None:
        return HeldOut(tiles, ids, "tile", ids)
    return HeldOut(tiles, ids, "block", blocks[ids].astype(np.int64))


def judged_network(name: str, split: HeldOut, predictor: Predictor, target: Path) -> tuple[Verdict, Counts]:
    """Return how the network did, and its confidence (see `calibration`); write a row for each tile to `target`."""
    reliability = np.zeros((3, BINS), np.int64)

    def predicted(images: NDArray[np.generic], labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        classes, confidence = _predicted(predictor, images)
        labelled = labels != IGNORED
        reliability[:] += counted(confidence[labelled], classes[labelled] == labels[labelled])
        return classes

    schema = pa.schema(_COLUMNS, metadata={"unit": split.unit})
    with pq.ParquetWriter(target, schema) as writer:
        verdict = _judged(f"evaluate {name}", split, predicted, lambda rows: writer.write_table(pa.table(rows, schema)))
    return verdict, reliability


def _predicted(predictor: Predictor, images: NDArray[np.generic]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the most likely class of each sample, and its probability."""
    size = max(1, _PROBABILITIES_AT_ONCE // (len(predictor.card.classes) * images[0, 0].size))
    classes, confidence = [], []
    for first in range(0, len(images), size):
        probabilities = predictor.probabilities(images[first : first + size])
        classes.append(probabilities.argmax(axis=1).astype(np.uint8))
        confidence.append(probabilities.max(axis=1))
    return np.concatenate(classes), np.concatenate(confidence)


def judged_forest(split: HeldOut, fitted: forest.Forest) -> Verdict:
    """Return how a forest did on the same samples."""
    missing = split.tiles.info.normalisation.missing
    return _judged("random forest", split, lambda images, labels: fitted.classes(images, labels, missing), None)


def _judged(
    title: str,
    split: HeldOut,
    predicted: Callable[[NDArray[np.generic], NDArray[np.uint8]], NDArray[np.uint8]],
    write: Callable[[list[pa.Array]], None] | None,
) -> Verdict:
    numbers, place = np.unique(split.units, return_inverse=True)
    by_unit = np.zeros((len(numbers), split.classes, split.classes), np.int64)
    valid, hits = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for part, images, labels in _read(split, title):
        classes = predicted(images, labels)
        each = _confusions(split, labels, classes)
        np.add.at(by_unit, place[part], each)
        labelled = labels != IGNORED
        counts = labelled.reshape(len(labels), -1).sum(axis=1)
        right = classes[labelled] == labels[labelled]
        valid.append(counts)
        hits.append(right)
        if write is not None:
            write(_rows(split.ids[part], split.units[part], each, np.split(right, counts.cumsum()[:-1])))
    judged = Judged(split.unit, split.ids, split.units, np.concatenate(valid), np.concatenate(hits))
    return Verdict(by_unit, judged)


def _read(split: HeldOut, title: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.generic], NDArray[np.uint8]]]:
    """Yield places in the split, images and labels, as many at once as memory allows."""
    with Progress(title, len(split.ids), "tile") as progress:
        for part in forest.chunks(split.tiles, np.arange(len(split.ids))):
            yield part, *split.tiles.read(split.ids[part])
            progress.advance(len(part))


def _confusions(split: HeldOut, labels: NDArray[np.uint8], predicted: NDArray[np.uint8]) -> Matrix:
    if (wrong := labels[(labels >= split.classes) & (labels != IGNORED)]).size:
        raise UserError(
            f"{split.tiles.folder}: a label is {wrong[0]}; allowed: 0 … {split.classes - 1} and {IGNORED}. "
            "Delete the folder and tile again."
        )
    return confusions(labels, predicted, split.classes)


def _rows(
    ids: NDArray[np.int64], units: NDArray[np.int64], each: Matrix, hits: list[NDArray[np.bool_]]
) -> list[pa.Array]:
    flat = each.reshape(len(ids), -1)
    columns = [
        ids,
        units,
        flat.sum(axis=1),
        np.trace(each, axis1=1, axis2=2),
        [packed(of_tile) for of_tile in hits],
        flat.tolist(),
    ]
    return [pa.array(column, kind) for column, (_, kind) in zip(columns, _COLUMNS, strict=True)]
