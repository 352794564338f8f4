"""Scenes as one grid: bands of any pixel size, read window by window with a mask of valid pixels.

Every band is read through a warped virtual raster, also one that lies on the grid already (by nearest
neighbour, which copies it): so masks, alpha bands, nodata and places outside the file mean the same for
all, and a damaged file raises an error. (Read directly, GDAL fills a truncated JPEG 2000 with zeros.)
"""

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio._err import CPLE_BaseError
from rasterio.coords import BoundingBox
from rasterio.crs import CRS
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import CRSError, RasterioError
from rasterio.transform import array_bounds
from rasterio.vrt import WarpedVRT
from rasterio.warp import calculate_default_transform, transform_bounds
from rasterio.windows import Window

from landbalance.config.data import Scene, band_file
from landbalance.errors import UserError

# Without a limit (in bytes here) GDAL keeps 5 % of the machine's memory; its own threads would print errors
# past our message.
_GDAL = {"GDAL_CACHEMAX": 192 << 20, "GDAL_NUM_THREADS": "1"}
_EXACT = 1e-6
"""Error allowed to the warper's approximation of coordinates, in pixels; it refuses 0."""
_MOST_PIXELS = 1 << 31
"""Largest width or height of a raster that GDAL takes."""


@dataclass(frozen=True)
class Grid:
    """The common grid of a scene: where its pixels lie.

    Parameters
    ----------
    crs : rasterio.crs.CRS
    transform : affine.Affine
        From (column, row) of a pixel's upper left corner to coordinates in `crs`.
    width, height : int
        Pixels.
    """

    crs: CRS
    transform: Affine
    width: int
    height: int

    @property
    def bounds(self) -> BoundingBox:
        """Return left, bottom, right and top in units of the CRS."""
        return BoundingBox(*array_bounds(self.height, self.width, self.transform))

    @property
    def resolution(self) -> float:
        """Return the width of a pixel in units of the CRS."""
        return math.hypot(self.transform.a, self.transform.d)

    def window_transform(self, row: int, col: int) -> Affine:
        """Return the transform of a window whose first pixel is (`row`, `col`)."""
        return self.transform @ Affine.translation(col, row)


@dataclass(frozen=True)
class _Band:
    """A band's file, opened: `dataset` holds the band first, an alpha band (if there is one) last."""

    name: str
    path: Path
    dataset: Any
    dtype: np.dtype[Any]
    nodata: float | None


class SceneReader:
    """An open scene; use it as a context manager, in the process that opened it.

    Attributes
    ----------
    grid : Grid
    bands : tuple of str
        Names of the bands, in the order of the scene.
    dtype : numpy.dtype
        One that holds the values of every band.
    description : str
        The grid and what was resampled to it, for the log.
    """

    def __init__(self, bands: Sequence[_Band], grid: Grid, resampling: str, stack: ExitStack) -> None:
        self.grid = grid
        self.bands = tuple(band.name for band in bands)
        self.dtype: np.dtype[Any] = np.result_type(*(band.dtype for band in bands))
        self.description = _description(bands, grid, resampling, self.dtype)
        self._stack = stack
        self._warped = [(band, stack.enter_context(_warped(band, grid, resampling))) for band in bands]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read(self, row: int, col: int, height: int, width: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the images and the valid pixels of a window, which may reach beyond the raster.

        Parameters
        ----------
        row, col : int
            First row and column of the window; negative above and left of the raster.
        height, width : int
            Size of the window in pixels.

        Returns
        -------
        images : ndarray of `dtype`, shape (bands, height, width)
            Pixels that are not valid hold 0 in all bands.
        valid : ndarray of bool, shape (height, width)
            Pixels inside the raster that hold data in all bands. A pixel that is 0 in all bands is
            missing too: Sentinel-2 files mean that and do not say so, and a tile store cannot tell it apart.

        Raises
        ------
        UserError
            When a file is damaged.
        """
        images = np.zeros((len(self._warped), height, width), self.dtype)
        valid = np.zeros((height, width), np.bool_)
        top, left = max(row, 0), max(col, 0)
        bottom, right = min(row + height, self.grid.height), min(col + width, self.grid.width)
        if top >= bottom or left >= right:
            return images, valid
        inside = (slice(top - row, bottom - row), slice(left - col, right - col))
        window = Window(left, top, right - left, bottom - top)
        valid[inside] = True
        for image, (band, warped) in zip(images, self._warped, strict=True):
            try:
                values, alpha = warped.read(1, window=window), warped.read(warped.count, window=window)
            except RasterioError as error:
                raise _damaged(band.path, band.name, error) from error
            image[inside] = values
            valid[inside] &= alpha > 0
            if np.issubdtype(values.dtype, np.floating):
                valid[inside] &= np.isfinite(values)
        images[:, ~valid] = 0
        return images, valid & images.any(axis=0)


def open_scene(scene: Scene, source: Path, resolution: float | None, resampling: str) -> SceneReader:
    """Return `scene`, whose files lie below `source`, opened on one grid.

    The grid is that of the band with the smallest pixels (the first of equals), from its upper left
    corner on in square pixels of `resolution`; the last row and column may reach beyond it.

    Parameters
    ----------
    resolution : float or None
        Pixel size in units of the CRS; that of the finest band when None.
    resampling : str
        How other bands reach the grid: nearest, bilinear, cubic or average.

    Raises
    ------
    UserError
        When a file is missing, damaged, has no such band, no CRS, or lies elsewhere than the others;
        when `resolution` does not suit the scene.
    """
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**_GDAL))
        bands = [_opened(name, reference, scene, source, stack) for name, reference in scene.bands.items()]
        finest = _finest(bands)
        grid = _grid(finest, resolution)
        for band in bands:
            _require_overlap(band, finest, grid)
        return SceneReader(bands, grid, resampling, stack.pop_all())


def _opened(name: str, reference: str, scene: Scene, source: Path, stack: ExitStack) -> _Band:
    file, number = band_file(reference)
    path = source / file
    if not path.is_file():
        raise UserError(
            f"{path}: not found (band {name}). Correct its path in the scene's `bands`, or see that the "
            f"dataset's `sources` (and their `members`) bring it."
        )
    try:
        dataset = stack.enter_context(rasterio.open(path))
        count, crs, dtype = dataset.count, dataset.crs, np.dtype(dataset.dtypes[min(number, dataset.count) - 1])
        if 1 <= number <= count and count > 1:
            # A raster of this band alone, lest another band's nodata hides its pixels.
            alpha = [index for index, kind in enumerate(dataset.colorinterp, 1) if kind == ColorInterp.alpha]
            wanted = ",".join(str(index) for index in [number, *alpha])
            dataset = stack.enter_context(rasterio.open(f"vrt://{path.absolute()}?bands={wanted}"))
    except (RasterioError, TypeError) as error:
        raise _damaged(path, name, error) from error
    if not 1 <= number <= count:
        raise UserError(f"{path}: has {count} bands, but {name} asks for number {number}. Correct it in the scene.")
    if crs is None:
        raise UserError(
            f"{path}: has no CRS (band {name}), so nothing says where it lies. Give it one, e.g. with "
            f"`gdal_edit.py -a_srs EPSG:32633 {path.name}`."
        )
    if dtype.kind not in "uif":
        raise UserError(f"{path}: band {name} holds {dtype} values; integers or floats are wanted.")
    return _Band(name, path, dataset, dtype, _nodata(path, name, dtype, dataset.nodata, scene.nodata))


def _nodata(path: Path, name: str, dtype: np.dtype[Any], own: float | None, configured: float | None) -> float | None:
    """Return the value of missing pixels: the file's own word counts, then the scene's."""
    nodata = own if own is not None else configured
    if nodata is None or dtype.kind == "f" or _holds(dtype, nodata):
        return nodata
    if own is None:
        raise UserError(
            f"{path}: nodata {nodata:g} is no value of {dtype} (band {name}). Correct `nodata` of the scene."
        )
    return None


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Return whether an integer type holds `value`."""
    limits = np.iinfo(dtype)
    return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max


def _damaged(path: Path, name: str, error: Exception) -> UserError:
    cause = error.__cause__ or error
    return UserError(
        f"{path}: cannot be read (band {name}): the file is damaged, cut off or no raster "
        f"({' '.join(str(cause).split())}). Replace {path.resolve()} by a whole copy; if the download "
        "stage fetched it, delete the dataset's download folder and run that stage again."
    )


def _finest(bands: Sequence[_Band]) -> _Band:
    """Return the band with the smallest pixels, measured in the CRS of the first one."""
    return min(bands, key=lambda band: _pixel_area(band.dataset, bands[0].dataset.crs))


def _pixel_area(dataset: Any, crs: CRS) -> float:
    transform = dataset.transform
    if dataset.crs != crs:
        transform, _, _ = calculate_default_transform(dataset.crs, crs, dataset.width, dataset.height, *dataset.bounds)
    # Rounded, so that equal pixels stay equal and the first of them counts.
    return float(f"{abs(transform.determinant):.9g}")


def _grid(finest: _Band, resolution: float | None) -> Grid:
    dataset = finest.dataset
    transform: Affine = dataset.transform
    across, down = math.hypot(transform.a, transform.d), math.hypot(transform.b, transform.e)
    if resolution is None:
        return Grid(dataset.crs, transform, dataset.width, dataset.height)
    width, height = (
        math.ceil(pixels * size / resolution - _EXACT)
        for pixels, size in ((dataset.width, across), (dataset.height, down))
    )
    if resolution > max(dataset.width * across, dataset.height * down) or max(width, height) >= _MOST_PIXELS:
        raise UserError(
            f"resolution: {resolution:g} does not suit {finest.path.name} (band {finest.name}), which covers "
            f"{dataset.width * across:g} × {dataset.height * down:g} {_unit(dataset.crs)} in {_title(dataset.crs)} "
            f"with pixels of {across:g}. Give a pixel size in {_unit(dataset.crs)}, or leave it out."
        )
    return Grid(dataset.crs, transform @ Affine.scale(resolution / across, resolution / down), width, height)


def _require_overlap(band: _Band, finest: _Band, grid: Grid) -> None:
    bounds = moved_bounds(band.dataset.bounds, band.dataset.crs, grid.crs, str(band.path))
    if not overlap(bounds, grid.bounds):
        raise UserError(
            f"{band.path}: band {band.name} covers {shown(bounds)} and {finest.path.name} (band {finest.name}) "
            f"{shown(grid.bounds)}, both in {_title(grid.crs)}: they do not overlap. Are they of one scene?"
        )


def _warped(band: _Band, grid: Grid, resampling: str) -> WarpedVRT:
    has_alpha = ColorInterp.alpha in band.dataset.colorinterp
    return WarpedVRT(
        band.dataset,
        crs=grid.crs,
        transform=grid.transform,
        width=grid.width,
        height=grid.height,
        resampling=Resampling.nearest if _on_grid(band.dataset, grid) else Resampling[resampling],
        src_nodata=band.nodata,
        add_alpha=not has_alpha,
        tolerance=_EXACT,
    )


def _on_grid(dataset: Any, grid: Grid) -> bool:
    same = (dataset.crs, dataset.width, dataset.height) == (grid.crs, grid.width, grid.height)
    return same and dataset.transform.almost_equals(grid.transform, precision=_EXACT * grid.resolution)


def _description(bands: Sequence[_Band], grid: Grid, resampling: str, dtype: np.dtype[Any]) -> str:
    sizes = Counter(
        f"{math.hypot(band.dataset.transform.a, band.dataset.transform.d):g}"
        for band in bands
        if not _on_grid(band.dataset, grid)
    )
    others = ", ".join(f"{count} with pixels of {size}" for size, count in sizes.items())
    return (
        f"{grid.width} × {grid.height} pixels of {grid.resolution:g} {_unit(grid.crs)} in {_title(grid.crs)}, "
        f"{len(bands)} bands as {dtype}; brought to this grid by {resampling}: {others or 'none'}"
    )


def moved_bounds(bounds: Sequence[float], crs: Any, target: Any, what: str) -> tuple[float, float, float, float]:
    """Return bounds (left, bottom, right, top) in another CRS; `what` names them in a message.

    Raises
    ------
    UserError
        When nothing is known that leads from `crs` to `target`.
    """
    try:
        left, bottom, right, top = transform_bounds(crs, target, *bounds)
    except (CRSError, RasterioError, CPLE_BaseError) as error:
        title = _title(CRS.from_user_input(target))
        raise UserError(f"{what}: its CRS cannot be brought to {title} ({' '.join(str(error).split())}).") from error
    return left, bottom, right, top


def overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two bounds (left, bottom, right, top) share an area."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def shown(bounds: Sequence[float]) -> str:
    """Return bounds (left, bottom, right, top) for a message."""
    left, bottom, right, top = (f"{value:.10g}" for value in bounds)
    return f"x {left} to {right}, y {bottom} to {top}"


def _title(crs: CRS) -> str:
    code = crs.to_epsg()
    return f"EPSG:{code}" if code else str(crs.to_wkt()).split('"')[1]


def _unit(crs: CRS) -> str:
    return "degrees" if crs.is_geographic else str(crs.linear_units)
