"""How the bands of a scene are read: warped to its grid, or straight from a file that lies on it.

A warped band (also one on the grid already, by nearest neighbour, which copies it) obeys masks, alpha bands, nodata
and the file's edges alike, and a damaged file raises an error: read straight, GDAL fills a truncated JPEG 2000 with
zeros. A GeoTIFF raises that error too. So one that lies on the grid and knows missing pixels by a value at most is
read straight, all its bands at once: where they are interleaved, band by band would decode each block as often as
there are bands.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import MaskFlags
from rasterio.errors import RasterioError
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from landbalance.raster.bands import OpenBand, read_part
from landbalance.raster.grid import Grid
from landbalance.raster.sources import damaged

BandPart = tuple[int, OpenBand, NDArray[Any], NDArray[np.bool_] | np.bool_]
"""Place of a band among the scene's, the band, its numbers in a window, and where there are any."""


class Part(Protocol):
    """Bands that are read together."""

    def read(self, window: Window, room: NDArray[Any]) -> Iterator[BandPart]:
        """Yield the bands of a window inside the grid; a damaged file is a `UserError`.

        Parameters
        ----------
        room : ndarray, shape (bands, height, width)
            Where the scene's values of the window will stand; numbers that suit may be read right into it.
        """


@dataclass(frozen=True)
class Warped:
    """A band on the grid by way of a warped virtual raster."""

    place: int
    band: OpenBand
    raster: WarpedVRT

    def read(self, window: Window, room: NDArray[Any]) -> Iterator[BandPart]:
        """Yield the band."""
        yield self.place, self.band, *read_part(self.band, self.raster, window)


@dataclass(frozen=True)
class Straight:
    """Bands of one file that lies on the grid, and their places among the scene's."""

    bands: dict[int, OpenBand]

    def read(self, window: Window, room: NDArray[Any]) -> Iterator[BandPart]:
        """Yield the bands."""
        first, wanted = next(iter(self.bands.values())), [band.file.number for band in self.bands.values()]
        are_values = first.dtype == room.dtype and all(band.file.conversion is None for band in self.bands.values())
        all_in_order = list(self.bands) == list(range(len(room)))
        try:
            numbers = first.whole.read(wanted, window=window, out=room if are_values and all_in_order else None)
        except RasterioError as error:
            names = ", ".join(band.name for band in self.bands.values())
            raise damaged(first.file.path, f"band {names}", error) from error
        for (place, band), of_band in zip(self.bands.items(), numbers, strict=True):
            there: NDArray[np.bool_] | np.bool_ = np.True_
            if band.nodata is not None and not np.isnan(band.nodata):
                there = of_band != of_band.dtype.type(band.nodata)
            yield place, band, of_band, there


def parts_of(bands: Sequence[OpenBand], grid: Grid, resampling: str, stack: ExitStack) -> list[Part]:
    """Return how to read the bands of a scene, each once; open for as long as `stack` is.

    Parameters
    ----------
    resampling : str
        How bands of other pixels reach the grid.
    """
    parts: list[Part] = []
    of_files: dict[str, dict[int, OpenBand]] = {}
    for place, band in enumerate(bands):
        if _is_plain(band, grid):
            of_files.setdefault(band.file.opened, {})[place] = band
        else:
            parts.append(Warped(place, band, band.warped(grid, resampling, stack)))
    return [*parts, *(Straight(of_file) for of_file in of_files.values())]


def _is_plain(band: OpenBand, grid: Grid) -> bool:
    """Return whether reading a band straight gives what reading it warped gives."""
    whole = band.whole
    masks = set(whole.mask_flag_enums[band.file.number - 1])
    return (
        whole.driver == "GTiff"
        and len(set(whole.dtypes)) == 1
        and masks <= {MaskFlags.all_valid, MaskFlags.nodata}
        and band.lies_on(grid)
    )
