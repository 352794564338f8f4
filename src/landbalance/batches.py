"""A worker's samples: read from the tile store, augmented, and made ready ahead of the step that needs them."""

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from landbalance.objective import summed_weight
from landbalance.tiles import TileStore, normalised

_STREAM, _SHIFT_STREAM = 1, 2
"""Streams of random numbers; no two purposes share one (see `landbalance.train.order`)."""

T = TypeVar("T")
ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True)
class Batch:
    """A worker's samples of one step.

    Attributes
    ----------
    images : Tensor of float32, shape (n, bands, size, size), channels last
    labels : Tensor of int64, shape (n, size, size) or (n,)
    weight : float
        Sum of the class weights of the labelled elements.
    """

    images: Tensor
    labels: Tensor
    weight: float


@dataclass(frozen=True)
class BatchReader:
    """Makes batches of a tile store; augmentation depends on the seed, the epoch and the sample only.

    Attributes
    ----------
    augment : bool
        Whether samples are turned and mirrored.
    shift : int
        Most pixels by which they are moved besides.
    """

    store: TileStore
    class_weights: Tensor | None
    augment: bool
    seed: int
    shift: int = 0

    def batch(self, ids: NDArray[np.int64], epoch: int | None) -> Batch:
        """Return the samples `ids`, augmented for `epoch`, or as they are when it is None."""
        images, labels = self.store.read(ids)
        if epoch is not None:
            images = self._augmented(images, ids, epoch)
            if labels.ndim == 3:
                labels = self._augmented(labels, ids, epoch)
        return Batch(
            torch.from_numpy(normalised(images, self.store.info.normalisation)),
            torch.from_numpy(labels.astype(np.int64)),
            float(summed_weight(torch.from_numpy(labels), self.class_weights)),
        )

    def _augmented(self, tiles: NDArray[ScalarT], ids: NDArray[np.int64], epoch: int) -> NDArray[ScalarT]:
        if self.augment:
            tiles = _each_oriented(tiles, orientations(ids, self.seed, epoch))
        if self.shift:
            tiles = _each_shifted(tiles, shifts(ids, self.seed, epoch, self.shift), self.shift)
        return tiles


def _each_oriented(tiles: NDArray[ScalarT], turns: NDArray[np.int64]) -> NDArray[ScalarT]:
    result = np.empty_like(tiles)
    for turn in np.unique(turns).tolist():
        alike = turns == turn
        result[alike] = oriented(tiles[alike], turn)
    return result


def orientations(ids: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return which of the eight symmetries of the square each sample gets in this epoch.

    Keyed by (seed, epoch, sample), so that it does not matter which worker asks.
    """
    return (_drawn(_STREAM, ids, seed, epoch) >> 61).astype(np.int64)


def oriented(tile: NDArray[ScalarT], orientation: int) -> NDArray[ScalarT]:
    """Return `tile` (…, size, size) turned by a multiple of 90° and, from 4 on, mirrored."""
    turned = np.rot90(tile, orientation % 4, axes=(-2, -1))
    return turned[..., ::-1] if orientation >= 4 else turned


def _each_shifted(tiles: NDArray[ScalarT], moves: NDArray[np.int64], most: int) -> NDArray[ScalarT]:
    height, width = tiles.shape[-2:]
    around = [(0, 0)] * (tiles.ndim - 2) + [(most, most)] * 2
    wide = np.pad(tiles, around, mode="symmetric")
    result = np.empty_like(tiles)
    for row, (down, right) in enumerate((most + moves).tolist()):
        result[row] = wide[row, ..., down : down + height, right : right + width]
    return result


def shifts(ids: NDArray[np.int64], seed: int, epoch: int, most: int) -> NDArray[np.int64]:
    """Return by how many pixels, down and right, each sample is moved in this epoch; shape (n, 2).

    Keyed like `orientations`. What comes in at an edge is the image mirrored there, labels alike.
    """
    bits = _drawn(_SHIFT_STREAM, ids, seed, epoch)
    halves = np.stack([bits >> 32, bits & 0xFFFFFFFF], axis=1)
    return (halves * (2 * most + 1) >> 32).astype(np.int64) - most


def _drawn(stream: int, ids: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return 64 random bits for each sample, as if it had a generator of its own, but for all at once.

    SplitMix64 (Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators): the numbers that stand at
    the places `ids` of its sequence, of which each purpose has one for every seed and epoch.
    """
    (start,) = np.random.SeedSequence([stream, seed, epoch]).generate_state(1, np.uint64).tolist()
    bits = (ids.astype(np.uint64) + 1) * 0x9E3779B97F4A7C15 + start
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB
    mixed: NDArray[np.uint64] = bits ^ bits >> 31
    return mixed


def prefetched(items: Iterator[T], depth: int = 2) -> Generator[T]:
    """Yield `items`, of which a thread makes up to `depth` ahead."""
    ready: queue.Queue[T | BaseException | None] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def fill() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=fill, daemon=True, name="prefetch")
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
