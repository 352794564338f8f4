"""Bands opened: what GDAL reads, of which type, in which CRS, with which value for missing pixels."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.coords import BoundingBox
from rasterio.crs import CRS
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import CRSError, RasterioError
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from landbalance.errors import UserError
from landbalance.raster.grid import Grid, bounds_of
from landbalance.raster.sources import BandFile, damaged

_EXACT = 1e-6
"""Error allowed to the warper's approximation of coordinates, in pixels; it refuses 0."""


@dataclass(frozen=True)
class OpenBand:
    """A band's file, opened.

    Parameters
    ----------
    file : BandFile
    whole : rasterio dataset
        The file, with all its bands; opened once for all of them.
    dtype : numpy.dtype
        Of the file's numbers.
    crs : rasterio.crs.CRS
    nodata : float or None
        Value of missing pixels.
    """

    file: BandFile
    whole: Any
    dtype: np.dtype[Any]
    crs: CRS
    nodata: float | None

    @property
    def name(self) -> str:
        """Return the band's name in the scene."""
        return self.file.name

    @property
    def value_dtype(self) -> np.dtype[Any]:
        """Return the type of the band's values."""
        return self.dtype if self.file.conversion is None else np.dtype(np.uint16)

    @property
    def transform(self) -> Affine:
        """Return the file's own transform."""
        transform: Affine = self.whole.transform
        return transform

    @property
    def bounds(self) -> BoundingBox:
        """Return left, bottom, right and top in units of the CRS."""
        return bounds_of(self.transform, self.whole.width, self.whole.height)

    def lies_on(self, grid: Grid) -> bool:
        """Return whether the file's pixels are those of `grid`."""
        same = (self.crs, self.whole.width, self.whole.height) == (grid.crs, grid.width, grid.height)
        return same and self.transform.almost_equals(grid.transform, precision=_EXACT * grid.resolution)

    def warped(self, grid: Grid, resampling: str, stack: ExitStack) -> WarpedVRT:
        """Return the band on `grid`, with an alpha band last that is above 0 where there is data.

        It is open for as long as `stack` is.
        """
        alone = self._alone(stack)
        return stack.enter_context(
            WarpedVRT(
                alone,
                src_crs=self.crs,
                crs=grid.crs,
                transform=grid.transform,
                width=grid.width,
                height=grid.height,
                resampling=Resampling.nearest if self.lies_on(grid) else Resampling[resampling],
                src_nodata=self.nodata,
                add_alpha=ColorInterp.alpha not in alone.colorinterp,
                tolerance=_EXACT,
            )
        )

    def _alone(self, stack: ExitStack) -> Any:
        """Return a raster of this band, and of the alpha band: another band's nodata would hide its pixels."""
        if self.whole.count == 1:
            return self.whole
        alpha = [index for index, kind in enumerate(self.whole.colorinterp, 1) if kind == ColorInterp.alpha]
        wanted = ",".join(str(index) for index in [self.file.number, *alpha])
        try:
            return stack.enter_context(rasterio.open(f"vrt://{Path(self.file.opened).absolute()}?bands={wanted}"))
        except (RasterioError, TypeError) as error:
            raise damaged(self.file.path, f"band {self.name}", error) from error


def open_bands(files: Sequence[BandFile], crs: str | None, nodata: float | None, stack: ExitStack) -> list[OpenBand]:
    """Return bands, opened for as long as `stack` is.

    Parameters
    ----------
    crs : str or None
        CRS of a file that has none.
    nodata : float or None
        Value of missing pixels of a file that has none.

    Raises
    ------
    UserError
        When a file is damaged, has no such band, no CRS, or holds no plain numbers.
    """
    opened: dict[str, Any] = {}
    for file in files:
        if file.opened not in opened:
            try:
                opened[file.opened] = stack.enter_context(rasterio.open(file.opened))
            except (RasterioError, TypeError) as error:
                raise damaged(file.path, f"band {file.name}", error) from error
    return [_band(file, opened[file.opened], crs, nodata) for file in files]


def _band(file: BandFile, whole: Any, crs: str | None, nodata: float | None) -> OpenBand:
    path, number, what = file.path, file.number, f"band {file.name}"
    if not 1 <= number <= whole.count:
        raise UserError(
            f"{path}: has {whole.count} bands, but {file.name} asks for number {number}. Correct it in the scene."
        )
    try:
        dtype = np.dtype(whole.dtypes[number - 1])
    except TypeError as error:
        raise damaged(path, what, error) from error
    if dtype.kind not in "uif":
        raise UserError(f"{path}: {what} holds {dtype} values; integers or floats are wanted.")
    own_nodata = whole.nodatavals[number - 1] if file.nodata is None else file.nodata
    return OpenBand(
        file, whole, dtype, known_crs(path, whole.crs, crs, what), _nodata(path, what, dtype, own_nodata, nodata)
    )


def read_part(band: OpenBand, warped: WarpedVRT, part: Window) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the numbers of a part of a warped band, and where there are any.

    Raises
    ------
    UserError
        When the file is damaged.
    """
    try:
        return warped.read(1, window=part), warped.read(warped.count, window=part) > 0
    except RasterioError as error:
        raise damaged(band.file.path, f"band {band.name}", error) from error


def known_crs(path: Path, own: Any, configured: str | None, what: str) -> CRS:
    """Return the CRS of a file: its own word counts, then the configuration's.

    Raises
    ------
    UserError
        When there is neither, or the configured one is none.
    """
    if own is not None:
        return own if isinstance(own, CRS) else CRS.from_user_input(own)
    if configured is None:
        raise UserError(
            f"{path}: has no CRS ({what}), so nothing says where it lies. Give it as `crs` beside the file's path, "
            "e.g. crs: EPSG:32633, if you know it."
        )
    try:
        return CRS.from_user_input(configured)
    except CRSError as error:
        raise UserError(
            f"crs: found {configured}, which is no CRS ({' '.join(str(error).split())}). Write e.g. EPSG:32633."
        ) from error


def _nodata(path: Path, what: str, dtype: np.dtype[Any], own: float | None, configured: float | None) -> float | None:
    """Return the value of missing pixels: the file's own word counts, then the scene's."""
    nodata = own if own is not None else configured
    if nodata is None or dtype.kind == "f" or _holds(dtype, nodata):
        return nodata
    if own is None:
        raise UserError(f"{path}: nodata {nodata:g} is no value of {dtype} ({what}). Correct `nodata` of the scene.")
    return None


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Return whether an integer type holds `value`."""
    limits = np.iinfo(dtype)
    return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max
