"""Statistics of bands: moments tile by tile, merged when it is known which tiles train; percentiles."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.cores import cores
from landbalance.tiles import missing_pixels

PERCENTILES = (1, 2, 5, 25, 50, 75, 95, 98, 99)

_EXACT = 1 << 15
"""Pixels of 16 bits whose squared sum is a whole number that 63 bits hold."""

_AT_ONCE = 32
_SAMPLE, _SAMPLE_BYTES = 1 << 21, 1 << 26
"""Pixels of each band that percentiles are taken of, and their bytes in all bands, at most."""


def moments(image: NDArray[np.generic], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return mean and sum of squared deviations of each band over the valid pixels of a tile.

    Parameters
    ----------
    image : ndarray, shape (bands, height, width)
    valid : ndarray of bool, shape (height, width)

    Returns
    -------
    ndarray of float64, shape (2, bands)
        Zeros where no pixel is valid.
    """
    bands = len(image)
    pixels = image.reshape(bands, -1) if valid.all() else image[:, valid]
    if pixels.shape[1] == 0:
        return np.zeros((2, bands))
    if image.dtype.kind in "ui" and image.dtype.itemsize <= 2 and pixels.shape[1] <= _EXACT:
        return _of_short_integers(pixels)
    mean = pixels.mean(axis=1, dtype=np.float64)
    deviations = np.subtract(pixels, mean[:, None], dtype=np.float64)
    return np.stack([mean, np.vecdot(deviations, deviations)])


def _of_short_integers(pixels: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return what `moments` does, for integers of 16 bits and few pixels: exact, and in half the time."""
    count, values = pixels.shape[1], pixels.astype(np.float64)
    total, squares = values.sum(axis=1).astype(np.int64), np.vecdot(values, values).astype(np.int64)
    return np.stack([total / count, (count * squares - total * total) / count])


def merged(
    counts: NDArray[np.integer], of_tiles: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and (population) standard deviation of each band over all tiles.

    The squared deviations of the tiles add up with those of their means from the whole's, as in Chan, Golub and
    LeVeque (1983): exact to float64 rounding, and no pixel is read again.

    Parameters
    ----------
    counts : ndarray of int, shape (tiles,)
        Valid pixels of each tile; one at least above 0.
    of_tiles : ndarray of float64, shape (tiles, 2, bands)
        What `moments` returned for each.
    """
    total, weights = counts.sum(), counts[:, None].astype(np.float64)
    mean = (weights * of_tiles[:, 0]).sum(axis=0) / total
    squares = of_tiles[:, 1].sum(axis=0) + (weights * np.square(of_tiles[:, 0] - mean)).sum(axis=0)
    return mean, np.sqrt(squares / total)


def percentiles(
    ids: NDArray[np.int64], read: Callable[[NDArray[np.int64]], NDArray[np.generic]], missing: float | None
) -> dict[str, list[float]]:
    """Return the `PERCENTILES` of each band over the valid pixels of tiles, interpolated linearly.

    Of tiles with more than two million pixels (or 64 MiB), so many as hold these are drawn, evenly.

    Parameters
    ----------
    ids : ndarray of int
        The tiles, at least one of which has a valid pixel.
    read : callable
        Returns the images of some tiles, shape (n, bands, height, width).
    missing : float or None
        A pixel that has this value in all bands is not valid.
    """
    first = read(ids[:1])
    most = max(min(_SAMPLE * first.shape[1] // first.size, _SAMPLE_BYTES // first.nbytes), 1)
    if len(ids) > most:
        ids = ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]
    images: NDArray[Any] = np.concatenate([read(part) for part in np.array_split(ids, -(-len(ids) // _AT_ONCE))])
    valid = np.ones((len(ids), *images.shape[2:]), np.bool_)
    if missing is not None:
        valid = ~missing_pixels(images, missing)

    def of_band(band: int) -> list[float]:
        return _percentiles_of(images[:, band][valid])

    with ThreadPoolExecutor(cores()) as executor:
        bands = list(executor.map(of_band, range(images.shape[1])))
    return {str(q): [float(band[place]) for band in bands] for place, q in enumerate(PERCENTILES)}


def _percentiles_of(values: NDArray[Any]) -> list[float]:
    """Return the `PERCENTILES`; bytes and 16-bit numbers are counted, which takes a fraction of a sort's time."""
    if values.dtype.kind != "u" or values.dtype.itemsize > 2:
        found: list[float] = np.percentile(values, PERCENTILES).tolist()
        return found
    up_to = np.cumsum(np.bincount(values))
    places = (len(values) - 1) * (np.array(PERCENTILES) / 100)
    below = np.floor(places).astype(np.int64)
    low, high = (np.searchsorted(up_to, place, side="right") for place in (below, np.ceil(places).astype(np.int64)))
    return [_between(*pair) for pair in zip(low.tolist(), high.tolist(), (places - below).tolist(), strict=True)]


def _between(low: int, high: int, part: float) -> float:
    """Return the number at that part of the way, rounded as numpy does it."""
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part
