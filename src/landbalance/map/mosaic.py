"""Several maps as one: each brought to the first one's CRS and pixel size, earlier ones on top."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from rasterio.enums import Resampling
from rasterio.errors import RasterioError
from rasterio.vrt import WarpedVRT
from rasterio.warp import transform_bounds

from landbalance import __version__
from landbalance.config.data import ClassInfo
from landbalance.errors import UserError
from landbalance.files import write_text
from landbalance.map.filtering import Codes
from landbalance.map.geotiff import Layer, Legend, code_layer, write_layers
from landbalance.map.style import style
from landbalance.raster import Grid

_log = logging.getLogger(__name__)

_ROWS = 512


def mosaic(maps: Sequence[Path], classes: Sequence[ClassInfo], nodata: int, target: Path) -> None:
    """Lay class maps together.

    Parameters
    ----------
    maps : sequence of Path
        Maps with the same codes. Where two have a class, the first one's is shown.
    classes : sequence of ClassInfo
        What the codes mean.
    nodata : int
        Code of pixels that no map covers.
    target : Path
        The mosaic; its QGIS style appears beside it.

    Raises
    ------
    UserError
        When a map is missing or damaged.
    """
    legend = Legend(classes, nodata)
    with ExitStack() as stack:
        sources = [_opened(path, stack) for path in maps]
        grid = _common_grid(sources)
        warped = [
            stack.enter_context(
                WarpedVRT(
                    source,
                    crs=grid.crs,
                    transform=grid.transform,
                    width=grid.width,
                    height=grid.height,
                    resampling=Resampling.nearest,
                    nodata=nodata,
                )
            )
            for source in sources
        ]
        names = ", ".join(path.stem for path in maps)
        tags = {
            "TIFFTAG_SOFTWARE": f"landbalance {__version__}",
            "TIFFTAG_IMAGEDESCRIPTION": f"Land cover of {names}",
            "LANDBALANCE_SCENES": names,
        }
        layer: Layer[Codes] = code_layer(target, lambda piece: piece.codes, legend)
        write_layers([layer], _pieces(warped, grid, nodata), grid, tags)
    write_text(target.with_suffix(".qml"), style(legend))
    _log.info("%s: %d × %d pixels from %s", target, grid.width, grid.height, names)


def _opened(path: Path, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(rasterio.open(path))
    except RasterioError as error:
        raise UserError(f"{path}: missing or no raster ({error}). Map its scene again.") from error


def _common_grid(sources: Sequence[Any]) -> Grid:
    """Return the grid of the first map, grown by whole pixels to hold all of them."""
    first = sources[0]
    away = ~first.transform
    columns, rows = [0.0, float(first.width)], [0.0, float(first.height)]
    for other in sources[1:]:
        left, bottom, right, top = transform_bounds(other.crs, first.crs, *other.bounds)
        for corner in ((left, top), (right, bottom), (left, bottom), (right, top)):
            column, row = away @ corner
            columns.append(column)
            rows.append(row)
    # A corner that lies on the grid within rounding adds no pixel.
    left, top = (int(np.floor(min(values) + 1e-6)) for values in (columns, rows))
    right, bottom = (int(np.ceil(max(values) - 1e-6)) for values in (columns, rows))
    return Grid(first.crs, first.transform @ Affine.translation(left, top), right - left, bottom - top)


def _pieces(warped: Sequence[Any], grid: Grid, nodata: int) -> Iterator[Codes]:
    for row in range(0, grid.height, _ROWS):
        window = ((row, min(row + _ROWS, grid.height)), (0, grid.width))
        codes = np.full((window[0][1] - row, grid.width), nodata, np.uint8)
        for source in warped:
            np.copyto(codes, source.read(1, window=window), where=codes == nodata)
        yield Codes(row, 0, codes)
