"""The tile store: what the tile stage writes and every learning stage reads.

A store is a folder with an ``index.parquet`` (a row per tile), a ``statistics.json``, and arrays that are mapped into
memory and so cost a worker nothing, however many tiles there are: ``labels.npy``, ``tiles.npy`` (of each tile its split
and where its image is) and the shards, files of images that ``statistics.json`` names. A scene has a shard of its own,
which may hold tiles that no split took. Where the split goes by polygon, ``polygons.parquet`` holds them. Reading needs
numpy and pyarrow only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from landbalance.config.base import Settings
from landbalance.config.checks import checked
from landbalance.config.data import ClassInfo
from landbalance.errors import UserError
from landbalance.files import placed, read_json

IGNORED = 255
"""Label of a pixel (or tile) that has no class: unlabelled, nodata, padding or inside a buffer."""

POLYGONS = "polygons.parquet"
"""File of the labelled polygons on each scene that are in a split, where the split goes by polygon."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
"""In the order of who gives way: labels near those of a later split are left out."""

_CACHED_VALUES = 1 << 17
"""So many values are normalised at once: what is made of them on the way stays in a core's cache."""

_LOOKUP = np.dtype([("place", np.int64), ("split", np.uint8)])
"""A row of ``tiles.npy``: the number of a tile's image, counted through all shards; the number of its split."""


class Normalisation(Settings):
    """How pixel values become the model's input: ``(value - mean) / std`` per band."""

    mean: list[float] = Field(description="Mean of each band over the valid pixels of the train split.")
    std: list[float] = Field(description="Standard deviation of each band over the same pixels.")
    missing: float | None = Field(
        None, description="A pixel with this value in all bands is missing and becomes 0; None when none is."
    )


class Shard(Settings):
    """A file of images."""

    images: str = Field(description="The file, below the store's folder: an array of (images, bands, height, width).")
    count: int = Field(description="How many images it holds.")


class StoreInfo(Settings):
    """What ``statistics.json`` says about a store."""

    task: Literal["segmentation", "classification"]
    bands: list[str]
    classes: list[ClassInfo]
    tile_size: int
    resolution: float | None
    tiles: int
    shards: list[Shard]
    normalisation: Normalisation
    percentiles: dict[str, list[float]] = Field(
        description="Percentiles (as keys, e.g. '2') of each band over the valid pixels of the train split; where "
        "these are more than two million, of tiles drawn from it evenly."
    )
    class_counts: dict[Split, list[int]] = Field(
        description="Labelled pixels (classification: tiles) of each class in each split; a pixel in several tiles "
        "counts once."
    )
    nodata_share: float = Field(description="Share of the pixels read for the tiles that hold no data.")


@dataclass(frozen=True)
class TileStore:
    """A store opened for reading; its arrays are mapped into memory, not read.

    Open it in each process that reads it.
    """

    folder: Path
    info: StoreInfo

    @cached_property
    def _lookup(self) -> NDArray[Any]:
        return self._mapped("tiles.npy")

    @cached_property
    def _labels(self) -> NDArray[np.uint8]:
        return self._mapped("labels.npy")

    @cached_property
    def _shards(self) -> list[NDArray[np.generic]]:
        return [self._mapped(shard.images) for shard in self.info.shards]

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        """Return a type that holds the values of every shard: scenes of one dataset may differ."""
        return np.result_type(*(shard.dtype for shard in self._shards))

    @cached_property
    def _firsts(self) -> NDArray[np.int64]:
        """Return the number of each shard's first image."""
        return np.cumsum([0, *(shard.count for shard in self.info.shards[:-1])])

    def _mapped(self, name: str) -> NDArray[Any]:
        path = self.folder / name
        try:
            mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
            return mapped
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: damaged or missing ({error}). Delete {self.folder} and tile again.") from error

    def ids(self, split: Split) -> NDArray[np.int64]:
        """Return the ids of the tiles in `split`, ascending; shape (n,)."""
        return np.flatnonzero(self._lookup["split"] == SPLITS.index(split)).astype(np.int64, copy=False)

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
        images : ndarray, shape (n, bands, size, size), of a type that holds the values of every scene
        labels : ndarray of uint8, shape (n, size, size) for segmentation, (n,) for classification
        """
        return self.images(ids), self.labels(ids)

    def labels(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the labels of the tiles `ids` alone, as `read` does."""
        return self._labels[ids]

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the images of the tiles `ids` alone, as `read` does."""
        place = self._lookup["place"][ids]
        if len(self._shards) == 1:
            only: NDArray[np.generic] = self._shards[0][place]
            return only
        shard = np.searchsorted(self._firsts, place, side="right") - 1
        place -= self._firsts[shard]
        gathered = np.empty((len(ids), *self._shards[0].shape[1:]), self._dtype)
        for number in np.unique(shard).tolist():
            of_shard = np.flatnonzero(shard == number)
            gathered[of_shard] = self._shards[number][place[of_shard]]
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


def write_lookup(folder: Path, splits: Sequence[str] | NDArray[Any], places: NDArray[np.integer]) -> None:
    """Write ``tiles.npy``: the split's name of each tile, and the number of its image counted through all shards."""
    lookup = np.empty(len(places), _LOOKUP)
    lookup["place"] = places
    names = np.asarray(splits, str)
    for number, name in enumerate(SPLITS):
        lookup["split"][names == name] = number
    with placed(folder / "tiles.npy") as temporary, temporary.open("wb") as file:
        np.save(file, lookup, allow_pickle=False)


def normalised(images: NDArray[np.generic], normalisation: Normalisation) -> NDArray[np.float32]:
    """Return `images` as a model's input: float32, zero mean, unit variance, missing pixels 0.

    Parameters
    ----------
    images : ndarray, shape (n, bands, height, width)

    Returns
    -------
    ndarray, shape (n, bands, height, width)
        The bands of a pixel lie side by side in memory, as networks like it (torch's ``channels_last``).
    """
    count, bands, height, width = images.shape
    mean = np.asarray(normalisation.mean, np.float32).reshape(-1, 1, 1)
    scale = (1 / np.asarray(normalisation.std, np.float64)).astype(np.float32).reshape(-1, 1, 1)
    result = np.empty((count, height, width, bands), np.float32)
    at_once = max(_CACHED_VALUES // max(bands * height * width, 1), 1)
    for start in range(0, count, at_once):
        some = slice(start, start + at_once)
        values = images[some].astype(np.float32)
        values -= mean
        values *= scale
        if normalisation.missing is not None:
            gone = missing_pixels(images[some], normalisation.missing)
            if gone.any():
                np.copyto(values, 0, where=gone[:, None])
        for band in range(bands):
            result[some, ..., band] = values[:, band]
    return result.transpose(0, 3, 1, 2)


def missing_pixels(images: NDArray[np.generic], value: float) -> NDArray[np.bool_]:
    """Return which pixels of `images` (n, bands, height, width) hold `value` in all bands; (n, height, width)."""
    wanted = images.dtype.type(value)
    gone: NDArray[np.bool_] = images[:, 0] == wanted
    for band in range(1, images.shape[1]):
        if not gone.any():  # mostly so after the first band
            break
        gone &= images[:, band] == wanted
    return gone
