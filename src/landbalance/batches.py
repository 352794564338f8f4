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
        if self.augment and epoch is not None:
            turns = orientations(ids, self.seed, epoch)
            images = _each_oriented(images, turns)
            if labels.ndim == 3:
                labels = _each_oriented(labels, turns)
        if self.shift and epoch is not None:
            moves = shifts(ids, self.seed, epoch, self.shift)
            images = _each_shifted(images, moves, self.shift)
            if labels.ndim == 3:
                labels = _each_shifted(labels, moves, self.shift)
        inputs = torch.from_numpy(normalised(images, self.store.info.normalisation))
        targets = torch.from_numpy(labels.astype(np.int64))
        return Batch(
            inputs.contiguous(memory_format=torch.channels_last),
            targets,
            float(summed_weight(targets, self.class_weights)),
        )


def _each_oriented(tiles: NDArray[ScalarT], turns: NDArray[np.int64]) -> NDArray[ScalarT]:
    result = np.empty_like(tiles)
    for row, turn in enumerate(turns):
        result[row] = oriented(tiles[row], int(turn))
    return result


def orientations(ids: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return which of the eight symmetries of the square each sample gets in this epoch.

    Keyed by (seed, epoch, sample), so that it does not matter which worker asks.
    """
    return np.array([np.random.default_rng([_STREAM, seed, epoch, sample]).integers(8) for sample in ids], np.int64)


def oriented(tile: NDArray[ScalarT], orientation: int) -> NDArray[ScalarT]:
    """Return `tile` (…, size, size) turned by a multiple of 90° and, from 4 on, mirrored."""
    turned = np.rot90(tile, orientation % 4, axes=(-2, -1))
    return turned[..., ::-1] if orientation >= 4 else turned


def _each_shifted(tiles: NDArray[ScalarT], moves: NDArray[np.int64], most: int) -> NDArray[ScalarT]:
    height, width = tiles.shape[-2:]
    around = [(0, 0)] * (tiles.ndim - 2) + [(most, most)] * 2
    wide = np.pad(tiles, around, mode="symmetric")
    result = np.empty_like(tiles)
    for row, (down, right) in enumerate(most + moves):
        result[row] = wide[row, ..., down : down + height, right : right + width]
    return result


def shifts(ids: NDArray[np.int64], seed: int, epoch: int, most: int) -> NDArray[np.int64]:
    """Return by how many pixels, down and right, each sample is moved in this epoch; shape (n, 2).

    Keyed like `orientations`. What comes in at an edge is the image mirrored there, labels alike.
    """
    draws = (np.random.default_rng([_SHIFT_STREAM, seed, epoch, sample]) for sample in ids)
    return np.array([draw.integers(-most, most + 1, 2) for draw in draws], np.int64).reshape(-1, 2)


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
