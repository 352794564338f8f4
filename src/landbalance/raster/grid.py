"""Where the pixels of a scene lie, and bounds in the CRS of another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from affine import Affine
from rasterio._err import CPLE_BaseError
from rasterio.coords import BoundingBox
from rasterio.crs import CRS
from rasterio.errors import CRSError, RasterioError
from rasterio.warp import transform_bounds

from landbalance.errors import UserError


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
        return bounds_of(self.transform, self.width, self.height)

    @property
    def resolution(self) -> float:
        """Return the width of a pixel in units of the CRS."""
        return math.hypot(self.transform.a, self.transform.d)

    def window_transform(self, row: int, col: int) -> Affine:
        """Return the transform of a window whose first pixel is (`row`, `col`)."""
        return self.transform @ Affine.translation(col, row)


def bounds_of(transform: Affine, width: int, height: int) -> BoundingBox:
    """Return the bounds of a raster of any orientation: rotated, or with its first row in the south."""
    corners = [transform @ corner for corner in ((0, 0), (width, 0), (0, height), (width, height))]
    x, y = zip(*corners, strict=True)
    return BoundingBox(min(x), min(y), max(x), max(y))


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
        there = title(CRS.from_user_input(target))
        raise UserError(f"{what}: its CRS cannot be brought to {there} ({' '.join(str(error).split())}).") from error
    return left, bottom, right, top


def overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two bounds (left, bottom, right, top) share an area."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def shown(bounds: Sequence[float]) -> str:
    """Return bounds (left, bottom, right, top) for a message."""
    left, bottom, right, top = (f"{value:.10g}" for value in bounds)
    return f"x {left} to {right}, y {bottom} to {top}"


def title(crs: CRS) -> str:
    """Return a CRS's EPSG code, or its name where it has none."""
    code = crs.to_epsg()
    return f"EPSG:{code}" if code else str(crs.to_wkt()).split('"')[1]


def unit(crs: CRS) -> str:
    """Return the unit of a CRS's coordinates."""
    return "degrees" if crs.is_geographic else str(crs.linear_units)
