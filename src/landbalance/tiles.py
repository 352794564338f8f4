"""The tile store: what the tile stage writes and every learning stage reads.

A store is a folder of memory-mapped shards (``images-000.npy``, ``labels-000.npy``, …), an
``index.parquet`` with a row per tile, and a ``statistics.json``. Reading needs numpy and pyarrow only.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from landbalance.config.base import Settings
from landbalance.config.checks import checked
from landbalance.config.data import ClassInfo
from landbalance.errors import UserError
from landbalance.files import read_json

IGNORED = 255
"""Label of a pixel (or tile) that has no class: unlabelled, nodata, padding or inside a buffer."""

Split = Literal["train", "validation", "test"]


class Normalisation(Settings):
    """How pixel values become the model's input: ``(value - mean) / std`` per band."""

    mean: list[float] = Field(description="Mean of each band over the valid pixels of the train split.")
    std: list[float] = Field(description="Standard deviation of each band over the same pixels.")
    missing: float | None = Field(
        None, description="A pixel with this value in all bands is missing and becomes 0; None when none is."
    )


class StoreInfo(Settings):
    """What ``statistics.json`` says about a store."""

    task: Literal["segmentation", "classification"]
    bands: list[str]
    classes: list[ClassInfo]
    tile_size: int
    resolution: float | None
    tiles: int
    tiles_per_shard: int
    normalisation: Normalisation
    percentiles: dict[str, list[float]] = Field(
        description="Percentiles (as keys, e.g. '2') of each band over the valid pixels of the train split."
    )
    class_counts: dict[Split, list[int]] = Field(
        description="Labelled pixels (classification: tiles) of each class in each split; a pixel in several tiles "
        "counts once."
    )
    nodata_share: float = Field(description="Share of the pixels read for the tiles that hold no data.")


@dataclass(frozen=True)
class TileStore:
    """A store opened for reading; shards are mapped into memory, not read.

    Open it in each process that reads it.
    """

    folder: Path
    info: StoreInfo

    @cached_property
    def _splits(self) -> NDArray[np.str_]:
        splits = self.column("split")
        assert splits is not None, "every index says the split"
        return splits

    @cached_property
    def _shards(self) -> list[tuple[NDArray[np.generic], NDArray[np.uint8]]]:
        count = -(-self.info.tiles // self.info.tiles_per_shard)
        return [(self._mapped(f"images-{k:03d}.npy"), self._mapped(f"labels-{k:03d}.npy")) for k in range(count)]

    def _mapped(self, name: str) -> NDArray[Any]:
        path = self.folder / name
        try:
            mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
            return mapped
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: damaged or missing ({error}). Delete {self.folder} and tile again.") from error

    def ids(self, split: Split) -> NDArray[np.int64]:
        """Return the ids of the tiles in `split`, ascending; shape (n,)."""
        return np.flatnonzero(self._splits == split).astype(np.int64)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a column of the index, shape (tiles,); None where it has no such column.

        `block`, `frame`, `frame_row` and `frame_col` are there for tiles of scenes, not for images in folders.
        """
        import pyarrow.parquet as pq

        path = self.folder / "index.parquet"
        if name not in pq.read_schema(path).names:
            return None
        return np.asarray(pq.read_table(path, columns=[name])[name].to_numpy())

    def read(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.generic], NDArray[np.uint8]]:
        """Return images and labels of the tiles `ids`, in that order.

        Returns
        -------
        images : ndarray, shape (n, bands, size, size), the scenes' dtype
        labels : ndarray of uint8, shape (n, size, size) for segmentation, (n,) for classification
        """
        return self._gathered(ids, 0), self.labels(ids)

    def labels(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the labels of the tiles `ids` alone, as `read` does."""
        return self._gathered(ids, 1)

    def _gathered(self, ids: NDArray[np.int64], kind: int) -> NDArray[Any]:
        """Return images (kind 0) or labels (kind 1)."""
        shard, row = np.divmod(ids, self.info.tiles_per_shard)
        first = self._shards[0][kind]
        gathered = np.empty((len(ids), *first.shape[1:]), first.dtype)
        for number in np.unique(shard):
            of_shard = shard == number
            gathered[of_shard] = self._shards[number][kind][row[of_shard]]
        return gathered


def open_tiles(folder: Path) -> TileStore:
    """Return the tile store in `folder`.

    Raises
    ------
    UserError
        When there is no store, or its ``statistics.json`` does not fit this version.
    """
    path = folder / "statistics.json"
    return TileStore(folder, checked(StoreInfo, read_json(path), str(path)))


def normalised(images: NDArray[np.generic], normalisation: Normalisation) -> NDArray[np.float32]:
    """Return `images` as a model's input: float32, zero mean, unit variance, missing pixels 0.

    Parameters
    ----------
    images : ndarray, shape (n, bands, height, width)
    """
    shape = (1, -1, 1, 1)
    mean = np.asarray(normalisation.mean, np.float32).reshape(shape)
    scale = (1 / np.asarray(normalisation.std, np.float64)).astype(np.float32).reshape(shape)
    result = images.astype(np.float32)
    result -= mean
    result *= scale
    if normalisation.missing is not None:
        gone = (images == images.dtype.type(normalisation.missing)).all(axis=1, keepdims=True)
        np.copyto(result, 0, where=gone)
    return result
