"""A raster of source classes: checked, brought to a scene's grid by nearest neighbour, and looked up."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.windows import Window as Part

from landbalance.config import ClassInfo, RasterLabels
from landbalance.errors import UserError
from landbalance.raster import GDAL, BandFile, Grid, OpenBand, moved_bounds, open_bands, read_part, shown, title
from landbalance.tile.blocks import Window
from landbalance.tile.labels.values import FoundLabels, counted, listed, report_counts
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)

_ROWS = 256


@dataclass(frozen=True)
class Codes:
    """What the values of a raster mean.

    Parameters
    ----------
    known : ndarray of float64, shape (n,)
        Values that are allowed, ascending.
    classes : ndarray of uint8, shape (n,)
        Index of the class that each becomes; 255 for one that stands for no class.
    """

    known: NDArray[np.float64]
    classes: NDArray[np.uint8]

    def unknown(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of `values` are not allowed."""
        return ~np.isin(values, self.known)

    def ignores(self, value: float) -> bool:
        """Return whether a value is allowed but stands for no class."""
        return bool(np.isin(value, self.known[self.classes == IGNORED]))

    def looked_up(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the index of the class of each of `values`, 255 where there is none."""
        return self._of_all[values] if _is_short(values) else self._found(values)

    @cached_property
    def _of_all(self) -> NDArray[np.uint8]:
        return self._found(np.arange(1 << 16))

    def _found(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        place = np.searchsorted(self.known, values).clip(max=len(self.known) - 1)
        return np.where(self.known[place] == values, self.classes[place], np.uint8(IGNORED))


def _is_short(values: NDArray[Any]) -> bool:
    """Return whether values are whole numbers of up to 16 bits, none below 0: there is a table for them."""
    return values.dtype.kind == "u" and values.itemsize <= 2


def codes_of(classes: Sequence[ClassInfo], ignored: Sequence[int], where: str) -> Codes:
    """Return what the values of a raster mean.

    Raises
    ------
    UserError
        When a class lists a text, which no raster holds.
    """
    table = dict.fromkeys(map(float, ignored), IGNORED)
    for number, item in enumerate(classes):
        for value in item.values:
            try:
                table[float(value)] = number
            except ValueError:
                raise UserError(
                    f"{where}: a raster holds numbers, but the class {item.name} lists {value}. Correct `values`, or "
                    "name the field of a vector file as labels.field."
                ) from None
    known = np.array(sorted(table), np.float64)
    return Codes(known, np.array([table[value] for value in known.tolist()], np.uint8))


def refuse_unknown(counts: Counter[float], codes: Codes, classes: Sequence[ClassInfo], where: str, key: str) -> None:
    """Stop when a raster holds values that are neither of a class nor ignored; `key` is the setting that lists those.

    Raises
    ------
    UserError
        It names the values and how often each occurs.
    """
    wrong = {f"{value:g}": count for value, count in counts.items() if codes.unknown(np.array(value))}
    if wrong:
        ignored = ", ".join(f"{value:g}" for value in codes.known[codes.classes == IGNORED]) or "none"
        raise UserError(
            f"{where}: holds values that are in no class, with the pixels of each: {counted(wrong)}. Allowed: "
            f"{listed(classes)} (of the classes), {ignored} ({key}). Add them to the `values` of a class or to {key}."
        )


def value_counts(values: NDArray[Any]) -> Counter[float]:
    """Return how often each value occurs; NaN is none."""
    if _is_short(values):
        counts = np.bincount(values)
        found = np.flatnonzero(counts)
        return Counter(dict(zip(found.astype(float).tolist(), counts[found].tolist(), strict=True)))
    if values.dtype.kind == "f":
        values = values[~np.isnan(values)]
    found, number = np.unique(values, return_counts=True)
    return Counter(dict(zip(found.astype(float).tolist(), number.tolist(), strict=True)))


@dataclass(frozen=True)
class ClassRaster:
    """A raster of source classes on a scene: `scene.SceneLabels` from a raster.

    It is opened anew for each window, so that threads and processes may share it.
    """

    found: FoundLabels
    grid: Grid
    path: Path
    labels: RasterLabels
    codes: Codes

    def burn(self, window: Window) -> NDArray[np.uint8]:
        """Return the class of each pixel of a window, shape (height, width); 255 where there is none."""
        with ExitStack() as stack:
            band = _opened(self.path, self.labels, self.codes, stack)
            warped = band.warped(self.grid, "nearest", stack)
            values, there = read_part(band, warped, Part(window.col, window.row, window.width, window.height))
        burnt: NDArray[np.uint8] = np.where(there, self.codes.looked_up(values), np.uint8(IGNORED))
        return burnt

    def objects(self, window: Window) -> NDArray[np.int64]:
        """Return -1 for each pixel: a raster has no objects."""
        return np.full((window.height, window.width), -1, np.int64)


def read_class_raster(
    path: Path, labels: RasterLabels, classes: Sequence[ClassInfo], scene: str, grid: Grid
) -> ClassRaster:
    """Return a class raster on a scene, all of whose values there are known.

    Parameters
    ----------
    path : Path
    scene : str
        The scene's name, for messages.
    grid : Grid
        The scene's.

    Raises
    ------
    UserError
        When the file is damaged or without CRS, or holds a value that is in no class and not ignored.
    """
    codes = codes_of(classes, labels.ignored, str(path))
    counts: Counter[float] = Counter()
    with ExitStack() as stack:
        band = _opened(path, labels, codes, stack)
        bounds = moved_bounds(band.bounds, band.crs, grid.crs, str(path))
        if band.crs != grid.crs:
            _log.info("%s: labels reprojected from %s to %s", scene, title(band.crs), title(grid.crs))
        warped = band.warped(grid, "nearest", stack)
        for row in range(0, grid.height, _ROWS):
            values, there = read_part(band, warped, Part(0, row, grid.width, min(_ROWS, grid.height - row)))
            counts.update(value_counts(values[there]))
    refuse_unknown(counts, codes, classes, str(path), "labels.ignored")
    found = FoundLabels(
        file=str(path),
        what="pixels",
        counts={f"{value:.17g}": count for value, count in sorted(counts.items())},
        place=f"The labels cover {shown(bounds)}, the scene {shown(grid.bounds)}, both in {title(grid.crs)}",
    )
    of_classes = {value: count for value, count in found.counts.items() if not codes.ignores(float(value))}
    if of_classes:
        report_counts(of_classes, classes, f"{scene}, {path}", found.what)
    else:
        _log.warning("%s: no labels on this scene (%s)", scene, path)
    return ClassRaster(found, grid, path, labels, codes)


def _opened(path: Path, labels: RasterLabels, codes: Codes, stack: ExitStack) -> OpenBand:
    stack.enter_context(rasterio.Env(**GDAL))
    band = open_bands([BandFile("labels", path, str(path), labels.band)], labels.crs, None, stack)[0]
    if band.nodata is not None and not codes.unknown(np.array(band.nodata)):
        # A class lists the file's value for missing pixels, or it is to be ignored: both say more than the file.
        return replace(band, nodata=None)
    return band
