"""The map's file: a Cloud-Optimized GeoTIFF with the classes' colours and names inside."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
from landbalance.map.blocks import Block
from landbalance.raster import Grid

# Without a limit GDAL keeps 5 % of the machine's memory; one thread, so that the same map is the same file.
# rasterio hands the limit on as bytes (256 alone would make GDAL decode a whole JPEG 2000 for each window).
_GDAL = {"GDAL_CACHEMAX": 256 << 20, "GDAL_NUM_THREADS": "1"}
_RAW = {"driver": "GTiff", "tiled": True, "blockxsize": 256, "blockysize": 256, "BIGTIFF": "IF_SAFER"}
# Mode: an average of the codes 5 and 9 would be 7, another class.
_COG = {
    "driver": "COG",
    "COMPRESS": "DEFLATE",
    "BLOCKSIZE": "512",
    "OVERVIEWS": "IGNORE_EXISTING",
    "OVERVIEW_RESAMPLING": "MODE",
    "BIGTIFF": "IF_SAFER",
}


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


def write_map(
    target: Path, blocks: Iterable[Block], grid: Grid, legend: Legend, tags: Mapping[str, str]
) -> NDArray[np.int64]:
    """Write a map to `target`, whole or not at all, and return how many pixels each of the 256 codes has.

    The blocks go to a temporary raster first, as a Cloud-Optimized GeoTIFF is not written in pieces. The same
    blocks and tags give the same bytes: the file says nothing about when it was written.

    Parameters
    ----------
    blocks : iterable of Block
        They cover the grid, each pixel once.
    tags : mapping
        Provenance: tags of the file.

    Raises
    ------
    UserError
        When the disk is full or the folder cannot be written.
    """
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_room(target, grid.width * grid.height)
        with (
            tempfile.TemporaryDirectory(prefix=f".{target.stem}.", dir=target.parent) as scratch,
            rasterio.Env(**_GDAL),
        ):
            raw = Path(scratch) / "raw.tif"
            counts = _write_raw(raw, blocks, grid, legend, tags)
            with placed(target) as temporary:
                copy(raw, temporary, **_COG)
                if not np.array_equal(_code_counts(temporary), counts):
                    raise OSError(0, "the file does not hold what was written to it", str(target))
    return counts


def _write_raw(
    path: Path, blocks: Iterable[Block], grid: Grid, legend: Legend, tags: Mapping[str, str]
) -> NDArray[np.int64]:
    counts = np.zeros(256, np.int64)
    place = {"crs": grid.crs, "transform": grid.transform, "width": grid.width, "height": grid.height}
    with rasterio.open(path, "w", **_RAW, **place, count=1, dtype="uint8", nodata=legend.nodata) as raster:
        raster.write_colormap(1, legend.colours)
        raster.update_tags(**tags)
        raster.update_tags(1, **legend.tags)
        raster.set_band_description(1, "land cover")
        for block in blocks:
            height, width = block.codes.shape
            raster.write(block.codes, 1, window=Window(block.col, block.row, width, height))
            counts += np.bincount(block.codes.ravel(), minlength=256)
    assert counts.sum() == grid.width * grid.height, "the blocks cover the grid, each pixel once"
    return counts


def _code_counts(path: Path) -> NDArray[np.int64]:
    """Return how often each code stands in a raster, read block by block."""
    counts = np.zeros(256, np.int64)
    with rasterio.open(path) as raster:
        for _, window in raster.block_windows(1):
            counts += np.bincount(raster.read(1, window=window).ravel(), minlength=256)
    return counts


def _check_room(target: Path, pixels: int) -> None:
    """Refuse before hours of work what would fail after them; the two rasters take a byte per pixel at most."""
    needed, free = 2 * pixels, shutil.disk_usage(target.parent).free
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
