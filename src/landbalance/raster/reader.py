"""Scenes as one grid: bands of any pixel size, read window by window with a mask of valid pixels."""

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.warp import calculate_default_transform
from rasterio.windows import Window

from landbalance.config.scenes import Mask, Scene, Stretch
from landbalance.errors import UserError
from landbalance.raster.bands import OpenBand, open_bands, read_part
from landbalance.raster.grid import Grid, moved_bounds, overlap, shown, title, unit
from landbalance.raster.parts import parts_of
from landbalance.raster.products import band_files, mask_file
from landbalance.raster.sources import stretched

# Without a limit (in bytes here) GDAL keeps 5 % of the machine's memory; its own threads would print errors
# past our message.
GDAL = {"GDAL_CACHEMAX": 192 << 20, "GDAL_NUM_THREADS": "1"}
"""Settings of GDAL for reading in parts."""

_EXACT = 1e-6
_MOST_PIXELS = 1 << 31
"""Largest width or height of a raster that GDAL takes."""


class SceneReader:
    """An open scene; use it as a context manager, in the process that opened it.

    Attributes
    ----------
    grid : Grid
    bands : tuple of str
        Names of the bands, in the order of the scene.
    dtype : numpy.dtype
        One that holds the values of every band, or bytes where these are stretched.
    description : str
        The grid and what was resampled to it, for the log.
    """

    def __init__(
        self,
        bands: Sequence[OpenBand],
        mask: "_Mask | None",
        grid: Grid,
        resampling: str,
        stretch: Stretch | None,
        stack: ExitStack,
    ) -> None:
        self.grid = grid
        self.bands = tuple(band.name for band in bands)
        self._values: np.dtype[Any] = np.result_type(*(band.value_dtype for band in bands))
        self._stretch = stretch
        self.dtype = self._values if stretch is None else np.dtype(np.uint8)
        self.description = _description(bands, grid, resampling, self.dtype)
        if mask is not None:
            self.description += f"; pixels are missing {mask.title}"
        self._stack = stack
        self._mask = mask
        converted = any(band.file.conversion is not None for band in bands)
        self._zero_is_missing = converted and all(band.nodata is None for band in bands)
        self._parts = parts_of(bands, grid, resampling, stack)

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
            Pixels inside the raster that hold data in all bands and that the scene's mask spares. A pixel that is 0
            in all bands is missing too: Sentinel-2 files mean that and do not say so, and a tile store cannot tell it
            apart. Where numbers are converted, the files' own zeros count, unless a value of missing pixels is known.

        Raises
        ------
        UserError
            When a file is damaged.
        """
        images = np.zeros((len(self.bands), height, width), self._values)
        valid = np.zeros((height, width), np.bool_)
        top, left = max(row, 0), max(col, 0)
        bottom, right = min(row + height, self.grid.height), min(col + width, self.grid.width)
        if top >= bottom or left >= right:
            return images.astype(self.dtype), valid
        inside = (slice(top - row, bottom - row), slice(left - col, right - col))
        window, room = Window(left, top, right - left, bottom - top), images[:, *inside]
        valid[inside] = True
        has_data = np.full((bottom - top, right - left), not self._zero_is_missing)
        for part in self._parts:
            for place, band, numbers, there in part.read(window, room):
                if band.file.conversion is not None:
                    room[place] = band.file.conversion(numbers)
                elif not np.may_share_memory(numbers, room):
                    room[place] = numbers
                valid[inside] &= there
                if self._zero_is_missing:
                    has_data |= numbers != 0
                if np.issubdtype(numbers.dtype, np.floating):
                    valid[inside] &= np.isfinite(numbers)
        valid[inside] &= has_data
        if self._mask is not None:
            valid[inside] &= ~self._mask.missing(window)
        if not valid.all():
            images[:, ~valid] = 0
        valid &= _some_value(images)
        if self._stretch is None:
            return images, valid
        return np.where(valid, stretched(images, self._stretch), np.uint8(0)), valid


def _some_value(images: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which pixels are not 0 in all bands; shape (height, width)."""
    found: NDArray[np.bool_] = images[0] != 0
    for band in images[1:]:
        if found.all():  # mostly so after the first band
            break
        found |= band != 0
    return found


class _Mask:
    """A raster of codes, some of which mean that a pixel is missing: clouds, shadows."""

    def __init__(self, band: OpenBand, settings: Mask, grid: Grid, stack: ExitStack) -> None:
        if band.dtype.kind not in "ui":
            raise UserError(
                f"{band.file.path}: holds {band.dtype} values, but the codes of a mask are whole numbers. Correct "
                "mask.band of the scene."
            )
        self._band = band
        self._values, self._bits = settings.codes
        self._warped = band.warped(grid, "nearest", stack)
        bits = [bit for bit in range(self._bits.bit_length()) if self._bits >> bit & 1]
        meanings = [f"{what} {', '.join(map(str, codes))}" for what, codes in (("values", self._values), ("bits", bits))
                    if codes]  # fmt: skip
        self.title = f"by {settings.band}, {' or '.join(meanings)}"

    def missing(self, window: Window) -> NDArray[np.bool_]:
        """Return the pixels of a window, inside the grid, that the mask takes away; none where it says nothing."""
        codes, there = read_part(self._band, self._warped, window)
        found: NDArray[np.bool_] = there & (np.isin(codes, self._values) | (codes.astype(np.int64) & self._bits > 0))
        return found


def open_scene(
    scene: Scene, source: Path, resolution: float | None, resampling: str, stretch: Stretch | None = None
) -> SceneReader:
    """Return `scene`, whose files lie below `source`, opened on one grid.

    The grid is that of the band with the smallest pixels (the first of equals), from its upper left
    corner on in square pixels of `resolution`; the last row and column may reach beyond it.

    Parameters
    ----------
    resolution : float or None
        Pixel size in units of the CRS; that of the finest band when None.
    resampling : str
        How other bands reach the grid: nearest, bilinear, cubic or average.
    stretch : list of 4 numbers or None
        How values become bytes, see `sources.stretched`; None to leave them as they are.

    Raises
    ------
    UserError
        When a file is missing, damaged, has no such band, no CRS, or lies elsewhere than the others;
        when `resolution` does not suit the scene.
    """
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**GDAL))
        bands = open_bands(band_files(scene, source), scene.crs, scene.nodata, stack)
        finest = _finest(bands)
        grid = _grid(finest, resolution)
        file, mask = mask_file(scene, source), None
        if file is not None and scene.mask is not None:
            # Its own word for missing pixels does not count: the code is looked at.
            codes = replace(open_bands([file], scene.crs, None, stack)[0], nodata=None)
            mask = _Mask(codes, scene.mask, grid, stack)
        for band in bands if mask is None else [*bands, codes]:
            _require_overlap(band, finest, grid)
        return SceneReader(bands, mask, grid, resampling, stretch, stack.pop_all())


def _finest(bands: Sequence[OpenBand]) -> OpenBand:
    """Return the band with the smallest pixels, measured in the CRS of the first one."""
    return min(bands, key=lambda band: _pixel_area(band, bands[0].crs))


def _pixel_area(band: OpenBand, crs: CRS) -> float:
    transform, dataset = band.transform, band.whole
    if band.crs != crs:
        transform, _, _ = calculate_default_transform(band.crs, crs, dataset.width, dataset.height, *band.bounds)
    # Rounded, so that equal pixels stay equal and the first of them counts.
    return float(f"{abs(transform.determinant):.9g}")


def _grid(finest: OpenBand, resolution: float | None) -> Grid:
    dataset, transform, crs = finest.whole, finest.transform, finest.crs
    across, down = math.hypot(transform.a, transform.d), math.hypot(transform.b, transform.e)
    if resolution is None:
        return Grid(crs, transform, dataset.width, dataset.height)
    width, height = (
        math.ceil(pixels * size / resolution - _EXACT)
        for pixels, size in ((dataset.width, across), (dataset.height, down))
    )
    if resolution > max(dataset.width * across, dataset.height * down) or max(width, height) >= _MOST_PIXELS:
        raise UserError(
            f"resolution: {resolution:g} does not suit {finest.file.path.name} (band {finest.name}), which covers "
            f"{dataset.width * across:g} × {dataset.height * down:g} {unit(crs)} in {title(crs)} "
            f"with pixels of {across:g}. Give a pixel size in {unit(crs)}, or leave it out."
        )
    return Grid(crs, transform @ Affine.scale(resolution / across, resolution / down), width, height)


def _require_overlap(band: OpenBand, finest: OpenBand, grid: Grid) -> None:
    bounds = moved_bounds(band.bounds, band.crs, grid.crs, str(band.file.path))
    if not overlap(bounds, grid.bounds):
        raise UserError(
            f"{band.file.path}: band {band.name} covers {shown(bounds)} and {finest.file.path.name} (band "
            f"{finest.name}) {shown(grid.bounds)}, both in {title(grid.crs)}: they do not overlap. Are they of one "
            "scene?"
        )


def _description(bands: Sequence[OpenBand], grid: Grid, resampling: str, dtype: np.dtype[Any]) -> str:
    sizes = Counter(f"{math.hypot(band.transform.a, band.transform.d):g}" for band in bands if not band.lies_on(grid))
    others = ", ".join(f"{count} with pixels of {size}" for size, count in sizes.items())
    return (
        f"{grid.width} × {grid.height} pixels of {grid.resolution:g} {unit(grid.crs)} in {title(grid.crs)}, "
        f"{len(bands)} bands as {dtype}; brought to this grid by {resampling}: {others or 'none'}"
    )
