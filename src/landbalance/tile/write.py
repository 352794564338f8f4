"""Writing a tile store: shards, the index of tiles, statistics."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.files import write_json
from landbalance.tile.split import SPLITS
from landbalance.tile.statistics import BandStatistics
from landbalance.tiles import IGNORED, Normalisation, Split, StoreInfo

_log = logging.getLogger(__name__)

_SHARD_BYTES = 64 << 20
_MOST_TILES = 4096


class Store:
    """A tile store being written: it takes tiles in the order of their ids.

    One shard at a time is kept in memory. It is written as a whole: pages of a mapped file on a full disk
    would end the process without a message.

    Parameters
    ----------
    folder : Path
        An empty folder.
    shape : tuple of int
        Bands, height and width of a tile.
    dtype : numpy.dtype
        Of the images.
    label_shape : tuple of int
        Height and width, or nothing where a tile has one label.
    classes : int
        Number of classes.
    """

    def __init__(
        self,
        folder: Path,
        shape: tuple[int, int, int],
        dtype: np.dtype[Any],
        label_shape: tuple[int, ...],
        classes: int,
    ) -> None:
        self.folder = folder
        self.tile_size = shape[-1]
        self.tiles_per_shard = int(np.clip(_SHARD_BYTES // (np.prod(shape) * dtype.itemsize), 1, _MOST_TILES))
        self.tiles = 0
        self.class_counts = np.zeros((len(SPLITS), classes), np.int64)
        self.statistics = BandStatistics(shape[0], dtype)
        self._images = np.zeros((self.tiles_per_shard, *shape), dtype)
        self._labels = np.zeros((self.tiles_per_shard, *label_shape), np.uint8)

    def append(
        self,
        image: NDArray[Any],
        label: NDArray[np.uint8],
        split: int,
        valid: NDArray[np.bool_],
        fresh: NDArray[np.int64],
    ) -> None:
        """Add a tile; a training tile's `valid` pixels go into the statistics.

        `fresh` counts the labels of each class that no tile before had: where training tiles overlap, a
        pixel must not count twice, or the shares of the splits would seem other than they are.
        """
        place = self.tiles % self.tiles_per_shard
        self._images[place], self._labels[place] = image, label
        self.class_counts[split] += fresh
        if SPLITS[split] == "train":
            self.statistics.add(image[:, valid])
        self.tiles += 1
        if place + 1 == self.tiles_per_shard:
            self._write(self.tiles // self.tiles_per_shard - 1, self.tiles_per_shard)

    def flush(self) -> None:
        """Write the last shard, if it is not written yet."""
        shard, count = divmod(self.tiles, self.tiles_per_shard)
        if count:
            self._write(shard, count)

    def _write(self, shard: int, count: int) -> None:
        for kind, values in (("images", self._images), ("labels", self._labels)):
            np.save(self.folder / f"{kind}-{shard:03d}.npy", values[:count], allow_pickle=False)


def label_counts(labels: NDArray[np.uint8], classes: int) -> NDArray[np.int64]:
    """Return how many labels there are of each class; shape (classes,)."""
    return np.bincount(labels.ravel(), minlength=IGNORED + 1)[:classes].astype(np.int64)


def write_index(folder: Path, rows: Sequence[Mapping[str, Any]], footprints: Sequence[Any] | None) -> None:
    """Write ``index.parquet``; with `footprints` (in EPSG:4326) it is a GeoParquet that a GIS opens."""
    frame = pd.DataFrame(rows)
    path = folder / "index.parquet"
    if footprints is None:
        frame.to_parquet(path, index=False)
        return
    import geopandas as gpd

    gpd.GeoDataFrame(frame, geometry=list(footprints), crs="EPSG:4326").to_parquet(path, index=False)


def write_statistics(store: Store, dataset: Dataset, resolution: float | None, nodata_share: float) -> StoreInfo:
    """Write ``statistics.json`` and return what stands in it.

    Raises
    ------
    UserError
        When no training pixel holds data.
    """
    if store.statistics.count == 0:
        raise UserError("the training tiles hold no data at all: see the scene's `nodata` and its files.")
    std = store.statistics.std
    for band, deviation in zip(dataset.bands, std, strict=True):
        if deviation == 0:
            _log.warning("band %s has the same value everywhere; it tells the model nothing", band)
    info = StoreInfo(
        task=dataset.task,
        bands=dataset.bands,
        classes=dataset.classes,
        tile_size=store.tile_size,
        resolution=resolution,
        tiles=store.tiles,
        tiles_per_shard=store.tiles_per_shard,
        normalisation=Normalisation(
            mean=store.statistics.mean.tolist(),
            # A constant band is divided by 1: its input is 0 then, not NaN.
            std=np.where(std > 0, std, 1.0).tolist(),
            missing=None if dataset.folders is not None else 0.0,
        ),
        percentiles=store.statistics.percentiles(),
        class_counts={_split(number): counts.tolist() for number, counts in enumerate(store.class_counts)},
        nodata_share=nodata_share,
    )
    write_json(store.folder / "statistics.json", info.model_dump(mode="json"))
    return info


def _split(number: int) -> Split:
    names: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
    return names[number]


def log_split(store: Store, dataset: Dataset) -> None:
    """Log the shares reached, in all and for each class; warn of a class that a split lacks.

    Raises
    ------
    UserError
        When a split that should have labels has none.
    """
    wanted = (dataset.split.train, dataset.split.validation, dataset.split.test)
    what = "labelled pixels" if dataset.task == "segmentation" else "tiles"
    for title, counts in [
        ("all classes", store.class_counts.sum(axis=1)),
        *((item.name, store.class_counts[:, number]) for number, item in enumerate(dataset.classes)),
    ]:
        shares = counts / max(counts.sum(), 1)
        parts = ", ".join(
            f"{name} {count:,} ({share:.0%})"
            for name, count, share in zip(SPLITS, counts.tolist(), shares, strict=True)
        )
        _log.info("%s of %s: %s", what, title, parts)
    for split, share in enumerate(wanted):
        if share > 0 and not store.class_counts[split].any():
            raise UserError(
                f"split: no labels are left for {SPLITS[split]}, though its share is {share:g}. Make split.size or "
                f"split.buffer smaller, or give it the share 0."
            )
        for number, item in enumerate(dataset.classes):
            if share > 0 and store.class_counts[split, number] == 0:
                _log.warning("class %s has no %s in the %s split", item.name, what, SPLITS[split])
