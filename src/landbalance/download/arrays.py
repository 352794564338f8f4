"""Arrays in MATLAB files, as hyperspectral benchmark scenes come, made into GeoTIFFs."""

import logging
import struct
import zlib
from pathlib import Path

import numpy as np

from landbalance.config.data import Array
from landbalance.download.unpack import size_limit
from landbalance.errors import UserError
from landbalance.files import digest

_log = logging.getLogger(__name__)

NOWHERE = (
    'PROJCS["place not known: laid at 0 N, 0 E",'
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],'
    'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
    'PARAMETER["latitude_of_origin",0],PARAMETER["central_meridian",0],PARAMETER["scale_factor",1],'
    'PARAMETER["false_easting",0],PARAMETER["false_northing",0],UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'
)
"""A CRS in metres for scenes of which only the pixels' size is known: all that counts distances works as usual."""

_DAMAGED = (ValueError, TypeError, KeyError, IndexError, OSError, EOFError, OverflowError, struct.error, zlib.error)


def write_raster(file: Path, array: Array, target: Path, key: str) -> tuple[int, str]:
    """Write a variable of a MATLAB file (before version 7.3) as a GeoTIFF; return its bytes and its SHA-256.

    A variable of two dimensions (rows, columns) becomes a band, one of three (rows, columns, bands) as many bands,
    called B001, B002, …. Its upper left corner is put at 0° N, 0° E. Numbers keep their type.

    Parameters
    ----------
    array : Array
        The variable, and the width of its pixels in metres.
    target : Path
        Where the GeoTIFF goes; it must not be there.
    key : str
        Where the source stands in the configuration, for messages.

    Raises
    ------
    UserError
        When the file is none, is damaged, or has no such array.
    """
    import rasterio
    from rasterio.transform import from_origin

    values = _loaded(file, array.variable, key)
    values = values[..., None] if values.ndim == 2 else values
    rows, columns, bands = values.shape
    with rasterio.open(
        target, "w", driver="GTiff", height=rows, width=columns, count=bands, dtype=values.dtype, crs=NOWHERE,
        transform=from_origin(0, 0, array.pixel, array.pixel), compress="deflate", interleave="band",
    ) as raster:  # fmt: skip
        raster.write(np.ascontiguousarray(np.moveaxis(values, 2, 0)))
        if bands > 1:
            raster.descriptions = [f"B{band:03d}" for band in range(1, bands + 1)]
    _log.info("%s: made of %s, %d bands of %d × %d pixels", target.name, array.variable, bands, rows, columns)
    return target.stat().st_size, digest(target)


def _loaded(file: Path, variable: str, key: str) -> np.ndarray:
    import scipy.io
    from scipy.io.matlab import MatReadError

    try:
        found = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file, appendmat=False)}
    except NotImplementedError as error:
        raise UserError(
            f"{key}: the file is MATLAB's of version 7.3, which cannot be read. Save it with `save -v7`."
        ) from error
    except (*_DAMAGED, MatReadError) as error:
        raise _damaged(key, error) from error
    if variable not in found:
        raise UserError(f"{key}.array.variable: found {variable}; the file holds {', '.join(found) or 'nothing'}.")
    shape, _ = found[variable]
    if len(shape) not in (2, 3) or 0 in shape:
        dimensions = " × ".join(map(str, shape))
        raise UserError(
            f"{key}.array.variable: {variable} is {dimensions}; wanted are rows × columns, or rows × columns × bands."
        )
    if 8 * int(np.prod(shape, dtype=object)) > size_limit(file.stat().st_size):
        raise UserError(f"{key}: {variable} would swell to more than {size_limit(file.stat().st_size):,} bytes.")
    try:
        values = scipy.io.loadmat(file, appendmat=False, variable_names=[variable])[variable]
    except (*_DAMAGED, MatReadError) as error:
        raise _damaged(key, error) from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "uif":
        raise UserError(f"{key}.array.variable: {variable} holds no plain numbers.")
    native: np.ndarray = values.astype(values.dtype.newbyteorder("="), copy=False)
    return native


def _damaged(key: str, error: Exception) -> UserError:
    return UserError(f"{key}: the file is no MATLAB file, or damaged ({' '.join(str(error).split())}). Fetch it anew.")
