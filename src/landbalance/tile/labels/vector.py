"""Polygons with a class: read, checked, brought to a scene's CRS and burnt into its pixels."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyogrio
import shapely
from numpy.typing import NDArray
from rasterio.features import rasterize
from rasterio.transform import array_bounds

from landbalance.config import ClassInfo, PolygonLabels
from landbalance.errors import UserError
from landbalance.raster import Grid, moved_bounds, overlap, shown
from landbalance.tile.blocks import Window
from landbalance.tile.labels.values import EMPTY, FoundLabels, class_index, report_counts, source_value
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shapes:
    """Polygons on a scene, in its CRS, the largest first: `scene.SceneLabels` from a vector file.

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

        A pixel has the class of the polygon that holds its centre; of several, that of the smallest.
        """
        return np.append(self.classes, np.uint8(IGNORED))[self._places(window)]

    def objects(self, window: Window) -> NDArray[np.int64]:
        """Return the id of the polygon that gives each pixel of a window its class; -1 where there is none."""
        return np.append(self.numbers, np.int64(-1))[self._places(window)]

    def _places(self, window: Window) -> NDArray[np.int32]:
        """Return where in `geometries` each pixel's polygon stands; -1 where there is none."""
        transform = self.grid.window_transform(window.row, window.col)
        shape = (window.height, window.width)
        near = np.sort(self.tree.query(shapely.box(*array_bounds(*shape, transform))))
        if not len(near):
            return np.full(shape, -1, np.int32)
        pairs = zip(self.geometries[near], near.tolist(), strict=True)
        places: NDArray[np.int32] = rasterize(pairs, shape, fill=-1, transform=transform, dtype=np.int32)
        return places


def read_shapes(source: Path, labels: PolygonLabels, classes: Sequence[ClassInfo], scene: str, grid: Grid) -> Shapes:
    """Return the polygons of the listed classes on a scene.

    Parameters
    ----------
    source : Path
        The dataset's download folder.
    scene : str
        The scene's name, for messages.
    grid : Grid
        The scene's.

    Raises
    ------
    UserError
        When the file, layer, field or CRS is missing.
    """
    path = source / labels.path
    layer = _layer(path, labels.layer)
    info = pyogrio.read_info(path, layer=layer, force_total_bounds=True)
    _require_field(path, labels.field, info)
    if info["crs"] is None:
        raise UserError(
            f"{path}: has no CRS, so nothing says where the labels lie. Write it into the file, e.g. with "
            f"`ogr2ogr -a_srs EPSG:4326 new.gpkg {path.name}`."
        )
    around = moved_bounds(grid.bounds, grid.crs, info["crs"], str(path))
    frame = gpd.read_file(path, layer=layer, columns=[labels.field], bbox=around, fid_as_index=True)
    if frame.crs != grid.crs:
        _log.info("%s: labels reprojected from %s to %s", scene, frame.crs.to_string(), grid.crs.to_string())
        frame = frame.to_crs(grid.crs)
    near = [overlap(bounds, grid.bounds) for bounds in shapely.bounds(frame.geometry.to_numpy())]
    frame = frame[np.array(near, bool)]
    values = [source_value(value) for value in frame[labels.field]]
    found = FoundLabels(
        file=f"{path}, field {labels.field}",
        what="polygons",
        counts=Counter(EMPTY if value is None else value for value in values),
        place=_place(path, info, grid),
    )
    index = class_index(classes)
    listed = np.array([value in index for value in values], bool)
    if listed.any():
        report_counts(Counter(values), classes, f"{scene}, {found.file}", found.what)
    else:
        _log.warning("%s: no labels on this scene (%s)", scene, found.file)
    numbers = np.array([index[value] for value in values if value in index], np.uint8)
    return _sorted(found, grid, frame[listed], numbers)


def _layer(path: Path, wanted: str | None) -> str:
    if not path.exists():
        raise UserError(
            f"{path}: not found (labels.path). Correct the path, or see that the dataset's `sources` bring it."
        )
    try:
        layers = [str(name) for name, geometry in pyogrio.list_layers(path) if geometry is not None]
    except pyogrio.errors.DataSourceError as error:
        raise UserError(f"{path}: cannot be read as a vector file (labels.path): {error}") from error
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


def _place(path: Path, info: Mapping[str, Any], grid: Grid) -> str:
    """Return where the file's labels and the scene lie, as a sentence without its full stop."""
    if not info["features"] or info["total_bounds"] is None:
        return "The file holds no labels at all"
    bounds = moved_bounds(info["total_bounds"], info["crs"], grid.crs, str(path))
    return f"The labels cover {shown(bounds)}, the scene {shown(grid.bounds)}, both in {grid.crs.to_string()}"


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
        _log.warning("%s: %d geometries left out, being empty or without area", where, np.count_nonzero(empty))
    return repaired


def _areas(geometry: shapely.Geometry | None) -> shapely.Geometry:
    """Return the polygons that make up a geometry, repaired; an empty one when there are none."""
    if geometry is None:
        return shapely.Polygon()
    # Twice: a collection may hold multipolygons.
    parts = shapely.get_parts(shapely.get_parts(shapely.make_valid(geometry)))
    return shapely.union_all([part for part in parts if shapely.get_type_id(part) == 3])
