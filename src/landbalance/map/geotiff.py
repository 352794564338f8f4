"""The map's files: Cloud-Optimized GeoTIFFs, with the classes' colours and names inside."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio._err import CPLE_BaseError
from rasterio.errors import RasterioError
from rasterio.shutil import copy
from rasterio.windows import Window

from landbalance.config.data import ClassInfo
from landbalance.errors import UserError
from landbalance.files import placed, write_error
from landbalance.raster import Grid

# Without a limit GDAL keeps 5 % of the machine's memory; one thread, so that the same map is the same file.
# rasterio hands the limit on as bytes (256 alone would make GDAL decode a whole JPEG 2000 for each window).
_GDAL = {"GDAL_CACHEMAX": 192 << 20, "GDAL_NUM_THREADS": "1"}
_RAW = {"driver": "GTiff", "tiled": True, "blockxsize": 256, "blockysize": 256, "BIGTIFF": "IF_SAFER"}
_COG = {
    "driver": "COG",
    "COMPRESS": "DEFLATE",
    "BLOCKSIZE": "512",
    "OVERVIEWS": "IGNORE_EXISTING",
    "BIGTIFF": "IF_SAFER",
}


class Placed(Protocol):
    """A piece of a map that knows where it lies: its first row and column."""

    @property
    def row(self) -> int:
        """First row."""

    @property
    def col(self) -> int:
        """First column."""


Piece = TypeVar("Piece", bound=Placed)


@dataclass(frozen=True)
class Legend:
    """What the codes of a map mean.

    Parameters
    ----------
    classes : sequence of ClassInfo
        Class of code 0, 1, ….
    nodata : int
        Code of pixels without data; it is shown transparent.
    """

    classes: Sequence[ClassInfo]
    nodata: int

    @property
    def colours(self) -> dict[int, tuple[int, int, int, int]]:
        """Return red, green, blue and alpha of each code."""
        of_classes = {code: (*bytes.fromhex(item.colour[1:]), 255) for code, item in enumerate(self.classes)}
        return {**of_classes, self.nodata: (0, 0, 0, 0)}

    @property
    def tags(self) -> dict[str, str]:
        """Return the name and the source values of each code, as tags of the band."""
        names = {f"CLASS_{code}": item.name for code, item in enumerate(self.classes)}
        values = {f"VALUES_{code}": ", ".join(map(str, item.values)) for code, item in enumerate(self.classes)}
        return {**names, **values}


@dataclass(frozen=True)
class Layer(Generic[Piece]):
    """One file of uint8 values.

    Parameters
    ----------
    target : Path
    values : callable
        Makes of a piece of the map its values, uint8 of shape (height, width) or (bands, height, width).
    bands : sequence of str
        Their descriptions.
    nodata : int
        Value of pixels without data.
    legend : Legend or None
        Of codes, in a single band; None for quantities.
    scale : float
        What a value is multiplied with to get the quantity.
    tags : mapping
        More tags of this file.
    """

    target: Path
    values: Callable[[Piece], NDArray[np.uint8]]
    bands: Sequence[str]
    nodata: int
    legend: Legend | None = None
    scale: float = 1.0
    tags: Mapping[str, str] = field(default_factory=dict)


def code_layer(target: Path, values: Callable[[Piece], NDArray[np.uint8]], legend: Legend) -> Layer[Piece]:
    """Return the file of a class map."""
    return Layer(target, values, ["land cover"], legend.nodata, legend)


def write_layers(
    layers: Sequence[Layer[Piece]], pieces: Iterable[Piece], grid: Grid, tags: Mapping[str, str]
) -> NDArray[np.int64]:
    """Write the layers' files, each whole or not at all, and return how many pixels each code of the first has.

    The pieces go to temporary rasters first, as a Cloud-Optimized GeoTIFF is not written in pieces. The same
    pieces and tags give the same bytes: the files say nothing about when they were written.

    Parameters
    ----------
    pieces : iterable
        They cover the grid, each pixel once.
    tags : mapping
        Provenance: tags of all files.

    Raises
    ------
    UserError
        When the disk is full or the folder cannot be written.
    """
    target = layers[0].target
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_room(target, grid.width * grid.height * sum(len(layer.bands) for layer in layers))
        with (
            tempfile.TemporaryDirectory(prefix=f".{target.stem}.", dir=target.parent) as scratch,
            rasterio.Env(**_GDAL),
        ):
            raws = [Path(scratch) / f"{number}.tif" for number in range(len(layers))]
            counts = _write_raws(raws, layers, pieces, grid, tags)
            for raw, layer, count in zip(raws, layers, counts, strict=True):
                with _writing(layer.target), placed(layer.target) as temporary:
                    # Mode: an average of the codes 5 and 9 would be 7, another class.
                    resampling = "MODE" if layer.legend is not None else "AVERAGE"
                    copy(raw, temporary, **_COG, OVERVIEW_RESAMPLING=resampling)
                    if not np.array_equal(_code_counts(temporary), count):
                        raise OSError(0, "the file does not hold what was written to it", str(layer.target))
                raw.unlink()
    return counts[0]


def _write_raws(
    paths: Sequence[Path],
    layers: Sequence[Layer[Piece]],
    pieces: Iterable[Piece],
    grid: Grid,
    tags: Mapping[str, str],
) -> list[NDArray[np.int64]]:
    counts = [np.zeros(256, np.int64) for _ in layers]
    with ExitStack() as stack:
        rasters = [stack.enter_context(_raw(*each, grid, tags)) for each in zip(paths, layers, strict=True)]
        for piece in pieces:
            for raster, layer, count in zip(rasters, layers, counts, strict=True):
                values = layer.values(piece)
                values = values if values.ndim == 3 else values[None]
                raster.write(values, window=Window(piece.col, piece.row, values.shape[2], values.shape[1]))
                count += np.bincount(values.ravel(), minlength=256)
    for layer, count in zip(layers, counts, strict=True):
        assert count.sum() == len(layer.bands) * grid.width * grid.height, "the pieces cover the grid, each pixel once"
    return counts


def _raw(path: Path, layer: Layer[Any], grid: Grid, tags: Mapping[str, str]) -> Any:
    place = {"crs": grid.crs, "transform": grid.transform, "width": grid.width, "height": grid.height}
    raster = rasterio.open(path, "w", **_RAW, **place, count=len(layer.bands), dtype="uint8", nodata=layer.nodata)
    raster.update_tags(**{**tags, **layer.tags})
    raster.descriptions = layer.bands
    if layer.legend is not None:
        raster.write_colormap(1, layer.legend.colours)
        raster.update_tags(1, **layer.legend.tags)
    if layer.scale != 1:
        raster.scales = [layer.scale] * len(layer.bands)
    return raster


def _code_counts(path: Path) -> NDArray[np.int64]:
    """Return how often each code stands in a raster, read block by block."""
    counts = np.zeros(256, np.int64)
    with rasterio.open(path) as raster:
        for _, window in raster.block_windows(1):
            counts += np.bincount(raster.read(window=window).ravel(), minlength=256)
    return counts


def _check_room(target: Path, values: int) -> None:
    """Refuse before hours of work what would fail after them; each file is there twice, a byte per value at most."""
    needed, free = 2 * values, shutil.disk_usage(target.parent).free
    if free < needed:
        raise UserError(
            f"{target}: needs {needed / 2**20:,.0f} MiB while it is written, {free / 2**20:,.0f} MiB are free in "
            f"{target.parent}. Make room or choose another folder, then run again."
        )


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turn what GDAL and the system say about a failed write into a message about `target`."""
    try:
        yield
    except (RasterioError, CPLE_BaseError) as error:
        raise write_error(target, OSError(0, " ".join(str(error.__cause__ or error).split()))) from error
    except OSError as error:
        raise write_error(target, error) from error
