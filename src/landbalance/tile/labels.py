"""Polygons with a class: read, checked, brought to a scene's CRS and burnt into its pixels."""

import logging
import math
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
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Polygons:
    """Polygons in a scene's CRS, the largest first, each with the index of its class."""

    geometries: NDArray[np.object_]
    classes: NDArray[np.uint8]
    tree: shapely.STRtree


def read_labels(
    path: Path, labels: PolygonLabels, classes: Sequence[ClassInfo], grids: Mapping[str, Grid]
) -> gpd.GeoDataFrame:
    """Return the polygons of the listed classes around the scenes.

    Returns
    -------
    GeoDataFrame
        Columns ``label`` (index of the class) and ``geometry`` (valid, polygonal), in the file's CRS.

    Raises
    ------
    UserError
        When the file, layer, field or CRS is missing, or no polygon of a listed class lies on a scene.
    """
    layer = _layer(path, labels.layer)
    info = pyogrio.read_info(path, layer=layer, force_total_bounds=True)
    _require_field(path, labels.field, info)
    if info["crs"] is None:
        raise UserError(
            f"{path}: has no CRS, so nothing says where the labels lie. Write it into the file, e.g. with "
            f"`ogr2ogr -a_srs EPSG:4326 new.gpkg {path.name}`."
        )
    areas = [moved_bounds(grid.bounds, grid.crs, info["crs"], str(path)) for grid in grids.values()]
    sides = list(zip(*areas, strict=True))
    around = (min(sides[0]), min(sides[1]), max(sides[2]), max(sides[3]))
    frame = gpd.read_file(path, layer=layer, columns=[labels.field], bbox=around)
    near = [any(overlap(bounds, area) for area in areas) for bounds in shapely.bounds(frame.geometry.to_numpy())]
    frame = frame[np.array(near, bool)]
    if frame.empty:
        raise _labels_miss(path, info, grids)
    values = [source_value(value) for value in frame[labels.field]]
    index = class_index(classes)
    report_values(Counter(values), classes, f"{path}, field {labels.field}", "polygons")
    frame = gpd.GeoDataFrame(
        {"label": [index.get(value, IGNORED) for value in values]}, geometry=frame.geometry.to_numpy(), crs=frame.crs
    )
    return _polygonal(frame[frame["label"] != IGNORED], path)


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


def _labels_miss(path: Path, info: Mapping[str, Any], grids: Mapping[str, Grid]) -> UserError:
    scene, grid = next(iter(grids.items()))
    if not info["features"] or info["total_bounds"] is None:
        return UserError(f"{path}: holds no polygons (labels.path).")
    bounds = moved_bounds(info["total_bounds"], info["crs"], grid.crs, str(path))
    return UserError(
        f"{path}: the labels miss the scene {scene}. The labels cover {shown(bounds)}, the scene {shown(grid.bounds)}, "
        f"both in {grid.crs.to_string()}. Take labels of that place, or correct the CRS of one of the two."
    )


def source_value(value: Any) -> str | None:
    """Return a field's value as text to compare classes by; 10.0 is 10, and nothing (or NaN) is None."""
    if value is None or value != value:
        return None
    if isinstance(value, float | np.floating) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def class_index(classes: Sequence[ClassInfo]) -> dict[str | None, int]:
    """Return the index of the class that each source value becomes."""
    return {str(value): number for number, item in enumerate(classes) for value in item.values}


def report_values(counts: Mapping[str | None, int], classes: Sequence[ClassInfo], where: str, what: str) -> None:
    """Log what the source holds: how many of each class, what is ignored, what is missing.

    Raises
    ------
    UserError
        When no value is one of a class.
    """
    index = class_index(classes)
    found = _counted({value: count for value, count in counts.items() if value not in index})
    if not any(value in index for value in counts):
        raise UserError(
            f"{where}: none of the values is in the classes. Found: {found}; the classes list: "
            f"{', '.join(str(value) for item in classes for value in item.values)}. Correct `values` of the classes."
        )
    for item in classes:
        parts = _counted({str(value): counts.get(str(value), 0) for value in item.values})
        _log.info("class %s: %s from %s", item.name, what, parts)
    if found:
        _log.warning("%s: values in no class are left out: %s", where, found)
    for item in classes:
        for value in item.values:
            if str(value) not in counts:
                _log.warning("%s: no %s for %s, which class %s lists", where, what, value, item.name)


def _counted(counts: Mapping[str | None, int]) -> str:
    return ", ".join(f"{'(empty)' if value is None else value} ({count})" for value, count in sorted(
        counts.items(), key=lambda item: (-item[1], str(item[0]))
    ))  # fmt: skip


def _polygonal(frame: gpd.GeoDataFrame, path: Path) -> gpd.GeoDataFrame:
    """Return `frame` with valid polygons only, and log how many were repaired or left out."""
    geometries = frame.geometry.to_numpy()
    whole = shapely.is_valid(geometries)
    polygons = np.isin(shapely.get_type_id(geometries), (3, 6))
    repaired = np.array(geometries, dtype=object)
    for index in np.flatnonzero(~(whole & polygons)):
        repaired[index] = _areas(geometries[index])
    empty = shapely.is_empty(repaired) | shapely.is_missing(repaired)
    mended = np.count_nonzero(~(whole & polygons) & ~empty)
    if mended:
        _log.warning("%s: %d invalid polygons repaired", path, mended)
    if empty.any():
        _log.warning("%s: %d geometries left out, being empty or without area", path, np.count_nonzero(empty))
    return gpd.GeoDataFrame({"label": frame["label"].to_numpy()[~empty]}, geometry=repaired[~empty], crs=frame.crs)


def _areas(geometry: shapely.Geometry | None) -> shapely.Geometry:
    """Return the polygons that make up a geometry, repaired; an empty one when there are none."""
    if geometry is None:
        return shapely.Polygon()
    # Twice: a collection may hold multipolygons.
    parts = shapely.get_parts(shapely.get_parts(shapely.make_valid(geometry)))
    return shapely.union_all([part for part in parts if shapely.get_type_id(part) == 3])


def polygons_of(scene: str, frame: gpd.GeoDataFrame, grid: Grid) -> Polygons:
    """Return the polygons on a scene in its CRS, the largest first."""
    moved = frame if frame.crs == grid.crs else frame.to_crs(grid.crs)
    geometries = moved.geometry.to_numpy()
    near = np.array([overlap(bounds, grid.bounds) for bounds in shapely.bounds(geometries)], bool)
    order = np.argsort(-shapely.area(geometries[near]), kind="stable")
    geometries, classes = geometries[near][order], moved["label"].to_numpy(np.uint8)[near][order]
    if frame.crs != grid.crs:
        _log.info("%s: labels reprojected from %s to %s", scene, frame.crs.to_string(), grid.crs.to_string())
    if not len(geometries):
        _log.warning("%s: no labels on this scene", scene)
    return Polygons(geometries, classes, shapely.STRtree(geometries))


def burn(polygons: Polygons, grid: Grid, window: Window) -> NDArray[np.uint8]:
    """Return the class of each pixel of a window, shape (height, width); 255 where there is none.

    A pixel has the class of the polygon that holds its centre; of several, that of the smallest.
    """
    transform = grid.window_transform(window.row, window.col)
    shape = (window.height, window.width)
    near = np.sort(polygons.tree.query(shapely.box(*array_bounds(*shape, transform))))
    if not len(near):
        return np.full(shape, IGNORED, np.uint8)
    pairs = zip(polygons.geometries[near], polygons.classes[near].tolist(), strict=True)
    burnt: NDArray[np.uint8] = rasterize(pairs, shape, fill=IGNORED, transform=transform, dtype=np.uint8)
    return burnt
