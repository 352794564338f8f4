"""Polygons and points with a class: read, checked, brought to a scene's CRS and burnt into its pixels."""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyogrio
import shapely
from numpy.typing import NDArray
from pyogrio.errors import DataLayerError, DataSourceError
from rasterio.crs import CRS
from rasterio.features import rasterize
from shapely.errors import ShapelyError

from landbalance.config import ClassInfo, VectorLabels
from landbalance.errors import UserError
from landbalance.raster import Grid, bounds_of, known_crs, moved_bounds, overlap, shown, title
from landbalance.tile.blocks import Window
from landbalance.tile.labels.values import EMPTY, FoundLabels, class_index, report_counts, source_value
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shapes:
    """Polygons on a scene, in its CRS, the largest first: `scene.SceneLabels` from a vector file.

    Points are there as the circles around them.

    Parameters
    ----------
    found : FoundLabels
    grid : Grid
        The scene's.
    geometries : ndarray of polygons, shape (n,)
    classes : ndarray of uint8, shape (n,)
        Index of each one's class.
    numbers : ndarray of int64, shape (n,)
        Each one's id in the file.
    tree : shapely.STRtree
        Of `geometries`.
    """

    found: FoundLabels
    grid: Grid
    geometries: NDArray[np.object_]
    classes: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    tree: shapely.STRtree

    def burn(self, window: Window) -> NDArray[np.uint8]:
        """Return the class of each pixel of a window, shape (height, width); 255 where there is none.

        A pixel has the class of the polygon that holds its centre; of several, that of the smallest. The pixel that
        a point lies in has the point's class, however small its circle.
        """
        return np.append(self.classes, np.uint8(IGNORED))[self._places(window)]

    def objects(self, window: Window) -> NDArray[np.int64]:
        """Return the id of the polygon that gives each pixel of a window its class; -1 where there is none."""
        return np.append(self.numbers, np.int64(-1))[self._places(window)]

    def _places(self, window: Window) -> NDArray[np.int32]:
        """Return where in `geometries` each pixel's polygon stands; -1 where there is none."""
        transform = self.grid.window_transform(window.row, window.col)
        shape = (window.height, window.width)
        near = np.sort(self.tree.query(shapely.box(*bounds_of(transform, window.width, window.height))))
        if not len(near):
            return np.full(shape, -1, np.int32)
        pairs = zip(self.geometries[near], near.tolist(), strict=True)
        places: NDArray[np.int32] = rasterize(pairs, shape, fill=-1, transform=transform, dtype=np.int32)
        return places


def read_shapes(path: Path, labels: VectorLabels, classes: Sequence[ClassInfo], scene: str, grid: Grid) -> Shapes:
    """Return the polygons, or the circles around points, of the listed classes on a scene.

    Parameters
    ----------
    path : Path
        The vector file.
    scene : str
        The scene's name, for messages.
    grid : Grid
        The scene's.

    Raises
    ------
    UserError
        When the file is damaged, or its layer, field or CRS is missing.
    """
    layer = layer_of(path, labels.layer)
    with _reading(path):
        info = pyogrio.read_info(path, layer=layer, force_total_bounds=True)
    _require_field(path, labels.field, info)
    crs = known_crs(path, info["crs"], labels.crs, "labels")
    place = _place(path, info, crs, grid)
    frame = _near(path, layer, labels, crs, grid)
    if crs != grid.crs:
        _log.info("%s: labels reprojected from %s to %s", scene, title(crs), title(grid.crs))
    values = [source_value(value) for value in frame[labels.field]]
    found = FoundLabels(
        file=f"{path}, field {labels.field}",
        what="polygons" if labels.radius is None else "points",
        counts=Counter(EMPTY if value is None else value for value in values),
        place=place,
    )
    index = class_index(classes)
    listed = np.array([value in index for value in values], bool)
    if listed.any():
        report_counts(found.counts, classes, f"{scene}, {found.file}", found.what)
    else:
        _log.warning("%s: no labels on this scene (%s)", scene, found.file)
    numbers = np.array([index[value] for value in values if value in index], np.uint8)
    return _sorted(found, grid, frame[listed], numbers)


def _near(path: Path, layer: str, labels: VectorLabels, crs: CRS, grid: Grid) -> gpd.GeoDataFrame:
    """Return the features around a scene in its CRS, with their ids in the file as the index; points as circles."""
    room = labels.radius or 0.0
    left, bottom, right, top = grid.bounds
    area = (left - room, bottom - room, right + room, top + room)
    around = moved_bounds(area, grid.crs, crs, str(path))
    with _reading(path):
        frame = gpd.read_file(path, layer=layer, columns=[labels.field], bbox=around, fid_as_index=True)
    frame = frame.sort_index()  # a spatial index gives another order
    frame = frame.set_crs(crs.to_wkt(), allow_override=True)
    if crs != grid.crs:
        frame = frame.to_crs(grid.crs.to_wkt())
    geometries = np.array(frame.geometry, dtype=object)
    if labels.radius is not None:
        flat = np.isin(shapely.get_dimensions(geometries), (0, 1)) & ~shapely.is_empty(geometries)
        geometries[flat] = [_widened(geometry, labels.radius, grid) for geometry in geometries[flat]]
        frame = frame.set_geometry(geometries, crs=frame.crs)
    return frame[np.array([overlap(bounds, grid.bounds) for bounds in shapely.bounds(geometries)], bool)]


def _widened(geometry: shapely.Geometry, radius: float, grid: Grid) -> shapely.Geometry:
    """Return what lies within `radius` of a point or line; of a point also the pixel that holds it."""
    parts = shapely.get_parts(geometry)
    points = shapely.get_coordinates(parts[shapely.get_type_id(parts) == 0])
    pixels = [(math.floor(col), math.floor(row)) for col, row in (~grid.transform @ (x, y) for x, y in points)]
    squares = [
        shapely.Polygon([grid.transform @ corner for corner in ((c, r), (c + 1, r), (c + 1, r + 1), (c, r + 1))])
        for c, r in pixels
    ]
    return shapely.union_all([shapely.buffer(geometry, radius), *squares])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Make errors of reading a damaged file a `UserError`."""
    try:
        yield
    except (DataLayerError, DataSourceError, ShapelyError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read as a vector file (labels.path): it is damaged, cut off or none "
            f"({' '.join(str(error).split())}). Replace it."
        ) from error


def layer_of(path: Path, wanted: str | None) -> str:
    """Return the layer of a vector file that is wanted, or its only one with geometries.

    Raises
    ------
    UserError
        When the file is damaged, has no such layer, or several while none is wanted.
    """
    with _reading(path):
        layers = [str(name) for name, geometry in pyogrio.list_layers(path) if geometry is not None]
    if wanted is None and len(layers) == 1:
        return layers[0]
    if not layers:
        raise UserError(f"{path}: has no layer with geometries (labels.path).")
    if wanted not in layers:
        found = f"has no layer {wanted}" if wanted else "has several layers"
        raise UserError(f"{path}: {found}; name one as labels.layer: {', '.join(layers)}.")
    return wanted


def _require_field(path: Path, field: str, info: Mapping[str, Any]) -> None:
    if field not in info["fields"]:
        raise UserError(
            f"{path}: has no field {field} (labels.field); there are: {', '.join(info['fields']) or 'none'}."
        )


def _place(path: Path, info: Mapping[str, Any], crs: CRS, grid: Grid) -> str:
    """Return where the file's labels and the scene lie, as a sentence without its full stop."""
    if not info["features"] or info["total_bounds"] is None:
        return "The file holds no labels at all"
    bounds = moved_bounds(info["total_bounds"], crs, grid.crs, str(path))
    return f"The labels cover {shown(bounds)}, the scene {shown(grid.bounds)}, both in {title(grid.crs)}"


def _sorted(found: FoundLabels, grid: Grid, frame: gpd.GeoDataFrame, classes: NDArray[np.uint8]) -> Shapes:
    """Return the geometries of `frame` that have an area, the largest first."""
    geometries = _polygonal(frame.geometry.to_numpy(), found.file)
    there = ~shapely.is_empty(geometries)
    order = np.argsort(-shapely.area(geometries[there]), kind="stable")
    geometries = geometries[there][order]
    numbers = frame.index.to_numpy(np.int64)[there][order]
    return Shapes(found, grid, geometries, classes[there][order], numbers, shapely.STRtree(geometries))


def _polygonal(geometries: NDArray[np.object_], where: str) -> NDArray[np.object_]:
    """Return valid polygons, empty ones where there was no area; log how many were repaired or emptied."""
    whole = shapely.is_valid(geometries) & np.isin(shapely.get_type_id(geometries), (3, 6))
    repaired = np.array(geometries, dtype=object)
    for index in np.flatnonzero(~whole):
        repaired[index] = _areas(geometries[index])
    empty = shapely.is_empty(repaired)
    if mended := np.count_nonzero(~whole & ~empty):
        _log.warning("%s: %d invalid polygons repaired", where, mended)
    if empty.any():
        _log.warning(
            "%s: %d geometries left out, being empty or without area (labels.radius widens points and lines)",
            where, np.count_nonzero(empty),
        )  # fmt: skip
    return repaired


def _areas(geometry: shapely.Geometry | None) -> shapely.Geometry:
    """Return the polygons that make up a geometry, repaired; an empty one when there are none."""
    if geometry is None:
        return shapely.Polygon()
    # Twice: a collection may hold multipolygons.
    parts = shapely.get_parts(shapely.get_parts(shapely.make_valid(geometry)))
    return shapely.union_all([part for part in parts if shapely.get_type_id(part) == 3])
