"""Writing a tile store: arrays that grow, the index of tiles, statistics."""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.files import placed, write_json
from landbalance.tile.statistics import percentiles
from landbalance.tiles import IGNORED, SPLITS, Normalisation, Shard, StoreInfo, TileStore, write_lookup

_log = logging.getLogger(__name__)


class GrowingArray:
    """An ``.npy`` file that arrays are appended to; use it as a context manager.

    It is written, not mapped: pages of a mapped file on a full disk would end the process without a message.

    Parameters
    ----------
    path : Path
    shape : tuple of int
        Shape of one row.
    dtype : numpy.dtype
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any) -> None:
        self.count = 0
        self._shape, self._dtype = shape, np.dtype(dtype)
        self._file = path.open("wb")
        self._write_header()

    def _write_header(self) -> None:
        # numpy leaves room in a header for the first axis to grow, so it has the same length whatever the count.
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.count, *self._shape)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, rows: NDArray[Any]) -> None:
        """Add `rows`, shape (n, …)."""
        assert rows.shape[1:] == self._shape and rows.dtype == self._dtype
        self._file.write(np.ascontiguousarray(rows).data)
        self.count += len(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()


def label_counts(labels: NDArray[np.uint8], classes: int) -> NDArray[np.int64]:
    """Return how many labels there are of each class; shape (classes,)."""
    return np.bincount(labels.ravel(), minlength=IGNORED + 1)[:classes].astype(np.int64)


def counts_of_each(labels: NDArray[np.uint8], classes: int) -> NDArray[np.int64]:
    """Return how many labels of each class each tile has, shape (tiles, classes); `labels` is (tiles, …)."""
    # A tile at a time: its numbers stay in the cache while they are counted.
    counts = [np.bincount(tile.ravel(), minlength=IGNORED + 1) for tile in labels]
    return np.array(counts, np.int64).reshape(len(labels), IGNORED + 1)[:, :classes]


def write_index(
    folder: Path, frame: pd.DataFrame, places: NDArray[np.integer], footprints: NDArray[np.object_] | None
) -> None:
    """Write ``index.parquet`` and ``tiles.npy``; with `footprints` (in EPSG:4326) a GIS opens the index."""
    write_lookup(folder, frame["split"].to_numpy(), places)
    with placed(folder / "index.parquet") as temporary:
        if footprints is None:
            frame.to_parquet(temporary, index=False)
            return
        import geopandas as gpd

        gpd.GeoDataFrame(frame, geometry=footprints, crs="EPSG:4326").to_parquet(temporary, index=False)


def write_statistics(
    folder: Path,
    dataset: Dataset,
    shards: Sequence[Shard],
    frame: pd.DataFrame,
    class_counts: NDArray[np.int64],
    band_moments: tuple[NDArray[np.float64], NDArray[np.float64]],
    resolution: float | None,
    nodata_share: float,
) -> StoreInfo:
    """Write ``statistics.json``, after everything else, and return what stands in it.

    Parameters
    ----------
    frame : DataFrame
        The index.
    class_counts : ndarray of int, shape (splits, classes)
    band_moments : tuple of 2 ndarrays, shape (bands,)
        Mean and standard deviation.
    """
    mean, std = band_moments
    for band, deviation in zip(dataset.bands, std, strict=True):
        if deviation == 0:
            _log.warning("band %s has the same value everywhere; it tells the model nothing", band)
    info = StoreInfo(
        task=dataset.task,
        bands=dataset.bands,
        classes=dataset.classes,
        tile_size=int(np.load(folder / shards[0].images, mmap_mode="r").shape[-1]),
        resolution=resolution,
        tiles=len(frame),
        shards=list(shards),
        normalisation=Normalisation(
            mean=mean.tolist(),
            # A constant band is divided by 1: its input is 0 then, not NaN.
            std=np.where(std > 0, std, 1.0).tolist(),
            missing=None if dataset.folders is not None else 0.0,
        ),
        percentiles={},
        class_counts=dict(zip(SPLITS, class_counts.tolist(), strict=True)),
        nodata_share=nodata_share,
    )
    # Mapped anew for each part: pages that were looked at would else count as this process's memory.
    shown = percentiles(
        TileStore(folder, info).ids("train"),
        lambda ids: TileStore(folder, info).images(ids),
        info.normalisation.missing,
    )
    info = info.model_copy(update={"percentiles": shown})
    write_json(folder / "statistics.json", info.model_dump(mode="json"))
    return info


def log_split(class_counts: NDArray[np.int64], dataset: Dataset) -> None:
    """Log the shares reached, in all and for each class; warn of a class that a split lacks.

    Raises
    ------
    UserError
        When a split that should have labels has none.
    """
    wanted = dataset.split.wanted
    what = "labelled pixels" if dataset.task == "segmentation" else "tiles"
    for title, counts in [
        ("all classes", class_counts.sum(axis=1)),
        *((item.name, class_counts[:, number]) for number, item in enumerate(dataset.classes)),
    ]:
        shares = counts / max(counts.sum(), 1)
        parts = ", ".join(
            f"{name} {count:,} ({share:.0%})"
            for name, count, share in zip(SPLITS, counts.tolist(), shares, strict=True)
        )
        _log.info("%s of %s: %s", what, title, parts)
    for split, share in enumerate(wanted):
        if share > 0 and not class_counts[split].any():
            raise UserError(
                f"split: no labels are left for {SPLITS[split]}, though its share is {share:g}. Make split.size or "
                f"split.buffer smaller, or give it the share 0."
            )
        for number, item in enumerate(dataset.classes):
            if share > 0 and class_counts[split, number] == 0:
                _log.warning("class %s has no %s in the %s split", item.name, what, SPLITS[split])
