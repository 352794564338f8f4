"""Class maps as a population of pixels: how many there are of each class, where the k-th one lies, what a point has.

Any GeoTIFF with codes of classes will do; the names come from the tags that the map stage writes (`CLASS_<code>`).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.errors import RasterioError
from rasterio.windows import Window

from landbalance.errors import UserError
from landbalance.progress import Progress
from landbalance.raster import overlap
from landbalance.sample.points import Stratum

_ROWS = 512
_CODES = 1 << 16


@dataclass(frozen=True)
class Population:
    """All pixels of one or several maps that have a class.

    Parameters
    ----------
    paths : tuple of Path
        The maps; they share CRS and pixel size, and do not overlap.
    crs : rasterio.crs.CRS
    hectares : float
        Area of a pixel.
    names : dict of int to str
        Name of each class by its code, ascending; also of classes that no pixel has.
    pixels : dict of int to int
        Pixels of each class.
    """

    paths: tuple[Path, ...]
    crs: CRS
    hectares: float
    names: dict[int, str]
    pixels: dict[int, int]

    @property
    def strata(self) -> tuple[Stratum, ...]:
        """Return the classes that some pixel has, as strata."""
        return tuple(
            Stratum(code, self.names[code], count, count * self.hectares) for code, count in self.pixels.items()
        )

    def places(self, ranks: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.float64]]:
        """Return x and y of the centres of pixels, given their ranks among the pixels of their class.

        Parameters
        ----------
        ranks : dict of int to ndarray of int64
            For each class numbers from 0 on, ascending; pixels are counted map by map, row by row.

        Returns
        -------
        dict of int to ndarray of float64, shape (n, 2)
        """
        found: dict[int, list[NDArray[np.float64]]] = {code: [np.empty((0, 2))] for code in ranks}
        seen = dict.fromkeys(ranks, 0)
        for transform, row, codes in _strips(self.paths, "draw points"):
            for code, wanted in ranks.items():
                here = np.flatnonzero(codes == code)
                first, last = np.searchsorted(wanted, (seen[code], seen[code] + len(here)))
                flat = here[wanted[first:last] - seen[code]]
                down, across = np.divmod(flat, codes.shape[1])
                x, y = transform @ (across + 0.5, down + row + 0.5)
                found[code].append(np.stack([np.asarray(x), np.asarray(y)], axis=1))
                seen[code] += len(here)
        return {code: np.concatenate(parts) for code, parts in found.items()}

    def codes_at(self, places: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the code of the pixel at each x and y; -1 where no map has a class.

        Parameters
        ----------
        places : ndarray of float64, shape (n, 2)
            In the maps' CRS.
        """
        codes = np.full(len(places), -1, np.int64)
        for path in self.paths:
            with _opened(path) as raster:
                col, row = ~raster.transform @ (places[:, 0], places[:, 1])
                inside = np.flatnonzero((col >= 0) & (col < raster.width) & (row >= 0) & (row < raster.height))
                values = np.array([value[0] for value in raster.sample(places[inside])], np.int64)
                found = np.isin(values, list(self.pixels))
                codes[inside[found]] = values[found]
        return codes


def open_population(paths: Sequence[Path]) -> Population:
    """Return the pixels of `paths`, counted.

    Raises
    ------
    UserError
        When a map is missing or damaged, is no class map, has pixels of unequal area, or overlaps another.
    """
    with ExitStack() as stack:
        rasters = [stack.enter_context(_opened(path)) for path in paths]
        _require_alike(paths, rasters)
        crs, hectares = rasters[0].crs, _hectares(paths[0], rasters[0])
        names: dict[int, str] = {}
        for path, raster in zip(paths, rasters, strict=True):
            for code, name in _names(raster).items():
                if names.setdefault(code, name) != name:
                    raise UserError(f"{path}: its class {code} is {name}, in {paths[0]} it is {names[code]}.")
        nodata = [raster.nodata for raster in rasters]
    counts = np.zeros(_CODES, np.int64)
    for _, _, codes in _strips(paths, "count classes"):
        counts += np.bincount(codes[codes >= 0], minlength=_CODES)
    pixels = {int(code): int(counts[code]) for code in np.flatnonzero(counts)}
    if not pixels:
        raise UserError(f"{paths[0]}: no pixel has a class; all are nodata ({nodata[0]}).")
    if names and (strange := sorted(set(pixels) - set(names))):
        raise UserError(
            f"{paths[0]}: {pixels[strange[0]]} pixels have the code {strange[0]}, which has no name in the map's tags; "
            f"there are: {', '.join(f'{code} {name}' for code, name in names.items())}. Set the map's nodata value."
        )
    names = names or {code: f"class {code}" for code in pixels}
    return Population(tuple(paths), crs, hectares, dict(sorted(names.items())), pixels)


def _opened(path: Path) -> Any:
    try:
        return rasterio.open(path)
    except RasterioError as error:
        raise UserError(
            f"{path}: no map, or it cannot be read ({error}). Run the map stage, or correct the path."
        ) from error


def _require_alike(paths: Sequence[Path], rasters: Sequence[Any]) -> None:
    first = rasters[0]
    for path, raster in zip(paths, rasters, strict=True):
        if raster.count != 1 or raster.dtypes[0] not in ("uint8", "uint16"):
            raise UserError(
                f"{path}: has {raster.count} band(s) of {raster.dtypes[0]}; a class map has one of uint8 or uint16."
            )
        if raster.crs != first.crs or not np.allclose(raster.res, first.res, rtol=1e-6):
            raise UserError(
                f"{path}: its CRS ({raster.crs}) and pixels {raster.res} are not those of {paths[0]} ({first.crs}, "
                f"{first.res}), so its pixels do not count alike. Bring the maps to one grid, or take one at a time."
            )
    for number, raster in enumerate(rasters):
        for other in range(number):
            if overlap(raster.bounds, rasters[other].bounds):
                raise UserError(
                    f"{paths[number]} and {paths[other]} overlap, so pixels would count twice. Lay them together "
                    "first (`landbalance mosaic EXPERIMENT`)."
                )


def _hectares(path: Path, raster: Any) -> float:
    """Return the area of a pixel, which must be the same everywhere."""
    if raster.crs is None or not raster.crs.is_projected:
        raise UserError(
            f"{path}: its CRS ({raster.crs}) is not in metres or feet, so its pixels are not of one area. Bring the "
            "map to an equal-area CRS (or UTM) by nearest neighbour."
        )
    return float(abs(raster.transform.determinant) * raster.crs.linear_units_factor[1] ** 2 / 10_000)


def _names(raster: Any) -> dict[int, str]:
    tags = {key.removeprefix("CLASS_"): name for key, name in raster.tags(1).items() if key.startswith("CLASS_")}
    return {int(code): name for code, name in tags.items() if code.isdigit()}


def _strips(paths: Sequence[Path], title: str) -> Iterator[tuple[Any, int, NDArray[np.int32]]]:
    """Yield transform, first row and codes of strips of the maps, from top to bottom; -1 where there is no class."""
    with ExitStack() as stack:
        rasters = [stack.enter_context(_opened(path)) for path in paths]
        progress = stack.enter_context(Progress(title, sum(raster.height for raster in rasters), "row"))
        for path, raster in zip(paths, rasters, strict=True):
            for row in range(0, raster.height, _ROWS):
                rows = min(_ROWS, raster.height - row)
                try:
                    codes = raster.read(1, window=Window(0, row, raster.width, rows)).astype(np.int32)
                except RasterioError as error:
                    raise UserError(f"{path}: cannot be read: damaged or cut off ({error}). Map again.") from error
                if raster.nodata is not None:
                    codes[codes == raster.nodata] = -1
                yield raster.transform, row, codes
                progress.advance(rows)
