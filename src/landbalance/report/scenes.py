"""A scene and its map as pictures of the same extent, the mapped areas, and where the splits lie.

Memory does not grow with the scene: pictures are read at their own size, areas block by block.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import rasterio
import shapely
from affine import Affine
from numpy.typing import NDArray
from pyproj import Geod
from rasterio.enums import Resampling
from rasterio.errors import RasterioError
from rasterio.vrt import WarpedVRT

from landbalance.config import ClassInfo, Dataset
from landbalance.errors import UserError
from landbalance.raster import Grid, acquired, open_scene
from landbalance.tiles import POLYGONS, Split

NO_CLASS = 255
"""Class index of a pixel that the map gives no class."""
FULL = 250
"""Value of a layer's pixel that stands for 1: a step of 0.004, as the map stage writes it."""
_LAYER_STEP = 5
"""Layers are shown in steps of 0.02, which an eye cannot tell apart and a PNG packs into half the size."""
_STRETCH = (2, 98)
"""Percentiles of a band, over the picture, that become black and white."""
_METRES_PER_DEGREE = 111_320.0
_SLIVER, _SIMPLER = 0.05, 0.5
"""Of a pixel: by how much areas grow, and how far an outline may be from the true one."""
_NONE: Mapping[str, Path] = MappingProxyType({})


LAYERS = {
    "confidence": ("Confidence", "probability of the class that is shown; low: unsure"),
    "entropy": ("Entropy", "of the classes' probabilities, over its largest value; high: unsure"),
    "margin": ("Margin", "by how much the first class is more probable than the second; low: unsure"),
}


@dataclass(frozen=True)
class Layer:
    """How sure the map is, pixel by pixel, on the pictures' grid.

    Parameters
    ----------
    name, title, meaning : str
    values : ndarray of uint8, shape (height, width)
        From 0 to `FULL` for 0 to 1, in steps of 5; `NO_CLASS` where the map holds no class.
    """

    name: str
    title: str
    meaning: str
    values: NDArray[np.uint8]


@dataclass(frozen=True)
class SceneView:
    """What the report shows of one scene.

    Parameters
    ----------
    name, acquired : str
    grid : Grid
        The pictures' grid; both have its width and height.
    pixel_size : float
        Of the map, in units of the CRS.
    map_size : tuple of int
        Width and height of the map in pixels.
    bands : tuple of str
        Shown as red, green and blue.
    picture : ndarray of uint8, shape (height, width, 4)
        The stretched scene; alpha is 0 where there is no data.
    classes : ndarray of uint8, shape (height, width)
        Class indices; 255 where the map holds none.
    areas : tuple of float
        Square metres mapped as each class.
    nodata_share : float
        Share of the map's pixels without a class.
    outlines : dict of str to str
        SVG path around what each split holds, in pixels of the picture.
    outlined : str
        What that is: polygons, or areas.
    layers : tuple of Layer
        Uncertainty, as far as the map stage wrote it.
    """

    name: str
    acquired: str | None
    grid: Grid
    pixel_size: float
    map_size: tuple[int, int]
    bands: tuple[str, ...]
    picture: NDArray[np.uint8]
    classes: NDArray[np.uint8]
    areas: tuple[float, ...]
    nodata_share: float
    outlines: dict[Split, str]
    outlined: str
    layers: tuple[Layer, ...]

    @property
    def crs_name(self) -> str:
        """Return the EPSG code, or the name of a CRS that has none."""
        code = self.grid.crs.to_epsg()
        return f"EPSG:{code}" if code else str(self.grid.crs.to_wkt()).split('"')[1]

    @property
    def pixel_text(self) -> str:
        """Return the map's pixel size with its unit, e.g. ``10 m``."""
        crs = self.grid.crs
        unit = "°" if crs.is_geographic else "\u00a0m" if crs.linear_units_factor[1] == 1 else f" {crs.linear_units}"
        return f"{self.pixel_size:g}{unit}"

    @property
    def coarser(self) -> float:
        """Return how many pixels of the map lie along a side of a pixel of the pictures."""
        return self.grid.resolution / self.pixel_size

    @property
    def scale_bar(self) -> tuple[float, float]:
        """Return a round length in metres, and its share of the picture's width."""
        grid = self.grid
        width = grid.width * grid.resolution * _metres_per_unit(grid)
        power = 10 ** math.floor(math.log10(width / 4))
        length = next(step * power for step in (5, 2, 1) if step * power <= width / 4 * (1 + 1e-9))
        return length, length / width


def read_scene(
    name: str,
    dataset: Dataset,
    source: Path,
    class_map: Path,
    index: Path,
    longest_side: int,
    layers: Mapping[str, Path] = _NONE,
) -> SceneView:
    """Return the pictures and areas of the scene called `name`.

    Parameters
    ----------
    source : Path
        The dataset's download folder.
    class_map : Path
        The scene's map, with its colour table.
    index : Path
        The tile store's ``index.parquet``; polygons that the split goes by lie beside it.
    longest_side : int
        Most pixels of a picture's width and height.
    layers : mapping of str to Path
        Rasters of uncertainty by name, in steps of 0.004.

    Raises
    ------
    UserError
        When a file is missing or damaged, or the map's colours are not those of the classes.
    """
    grid, bands, picture = _scene_picture(name, dataset, source, longest_side)
    try:
        with rasterio.Env(GDAL_CACHEMAX=256 << 20), rasterio.open(class_map) as opened:
            lookup = _class_lookup(opened, dataset.classes, class_map)
            counts, missing = _areas(opened, lookup, len(dataset.classes))
            size, pixel = (opened.width, opened.height), math.hypot(opened.transform.a, opened.transform.d)
            classes = lookup[_on_grid(opened, grid)]
    except RasterioError as error:
        raise UserError(f"{class_map}: cannot be read ({error}). Run the map stage again.") from error
    outlined, outlines = _outlines(index, name, grid) if dataset.cut_scenes else ("", {})
    return SceneView(
        name=name,
        acquired=acquired(dataset.scenes[name], source),
        grid=grid,
        pixel_size=pixel,
        map_size=size,
        bands=bands,
        picture=picture,
        classes=classes,
        areas=tuple(float(value) for value in counts),
        nodata_share=missing,
        outlines=outlines,
        outlined=outlined,
        layers=tuple(_layer(key, path, grid) for key, path in layers.items()),
    )


def _scene_picture(
    name: str, dataset: Dataset, source: Path, longest_side: int
) -> tuple[Grid, tuple[str, ...], NDArray[np.uint8]]:
    scene = dataset.scenes[name]
    shown = dataset.display or (dataset.bands[:3] if len(dataset.bands) >= 3 else dataset.bands[:1])
    scene = scene.model_copy(update={"bands": {band: scene.bands[band] for band in dict.fromkeys(shown)}})
    with open_scene(scene, source, dataset.resolution, dataset.resampling) as reader:
        full = reader.grid
    coarser = max(full.width, full.height) / longest_side
    resolution, resampling = dataset.resolution, str(dataset.resampling)
    if coarser > 1:
        resolution, resampling = full.resolution * coarser, "average"
    with open_scene(scene, source, resolution, resampling) as reader:
        images, valid = reader.read(0, 0, reader.grid.height, reader.grid.width)
        order = [reader.bands.index(band) for band in shown]
        return reader.grid, tuple(shown), stretched(images[order], valid)


def stretched(images: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return `images` as RGBA: each band from its 2nd percentile (black) to its 98th (white).

    Parameters
    ----------
    images : ndarray, shape (bands, height, width)
        Three bands, or one that is shown in grey.
    valid : ndarray of bool, shape (height, width)
        Percentiles are taken over these pixels; the others become transparent.

    Returns
    -------
    ndarray of uint8, shape (height, width, 4)
    """
    result = np.zeros((*valid.shape, 4), np.uint8)
    result[..., 3] = 255 * valid
    if not valid.any():
        return result
    for channel in range(3):
        values = images[min(channel, len(images) - 1)].astype(np.float32)
        low, high = np.percentile(values[valid], _STRETCH)
        scaled = (values - low) / max(float(high - low), 1e-12)
        result[..., channel] = np.where(valid, np.clip(scaled, 0, 1) * 255 + 0.5, 0)
    return result


def _class_lookup(opened: Any, classes: list[ClassInfo], path: Path) -> NDArray[np.uint8]:
    """Return the class index of each code of the map (shape (256,)), told by the map's colour table."""
    try:
        table = opened.colormap(1)
    except ValueError as error:
        raise UserError(f"{path}: has no colour table. Run the map stage again.") from error
    lookup = np.full(256, NO_CLASS, np.uint8)
    for number, info in enumerate(classes):
        colour = tuple(int(info.colour[at : at + 2], 16) for at in (1, 3, 5))
        codes = [code for code, value in table.items() if value[:3] == colour and code != opened.nodata]
        if not codes:
            raise UserError(
                f"{path}: its colour table lacks {info.colour} of class {info.name}: the map was made with other "
                f"classes. Run the map stage again."
            )
        # Unused codes may be black in a table; a class's own code stands at its index where both fit.
        lookup[number if number in codes else codes[0]] = number
    return lookup


def _areas(opened: Any, lookup: NDArray[np.uint8], classes: int) -> tuple[NDArray[np.float64], float]:
    """Return the square metres of each class, and the share of pixels that hold none."""
    row_area = pixel_areas(Grid(opened.crs, opened.transform, opened.width, opened.height))
    areas, missing = np.zeros(classes), 0
    for _, window in opened.block_windows(1):
        block = lookup[opened.read(1, window=window)]
        rows = row_area[window.row_off : window.row_off + window.height]
        weights = np.broadcast_to(rows[:, None], block.shape).ravel()
        areas += np.bincount(block.ravel(), weights, minlength=256)[:classes]
        missing += int(np.count_nonzero(block == NO_CLASS))
    return areas, missing / (opened.width * opened.height)


def pixel_areas(grid: Grid) -> NDArray[np.float64]:
    """Return the area in square metres of a pixel in each row; shape (height,).

    In a projected CRS that is the pixel's area on the map plane; in degrees it is measured on the
    ellipsoid, row by row.
    """
    if not grid.crs.is_geographic:
        return np.full(grid.height, abs(grid.transform.determinant) * grid.crs.linear_units_factor[1] ** 2)
    geod = Geod(ellps="WGS84")
    middle = grid.width / 2
    areas = []
    for row in range(grid.height):
        corners = [(middle, row), (middle + 1, row), (middle + 1, row + 1), (middle, row + 1)]
        longitudes, latitudes = zip(*(grid.transform @ corner for corner in corners), strict=True)
        areas.append(abs(geod.polygon_area_perimeter(longitudes, latitudes)[0]))
    return np.array(areas)


def _metres_per_unit(grid: Grid) -> float:
    if not grid.crs.is_geographic:
        return float(grid.crs.linear_units_factor[1])
    latitude = (grid.bounds.bottom + grid.bounds.top) / 2
    return _METRES_PER_DEGREE * math.cos(math.radians(latitude))


def _on_grid(opened: Any, grid: Grid) -> NDArray[np.uint8]:
    """Return the map's codes on the pictures' grid; where many pixels become one, the commonest."""
    return _warped(opened, grid, Resampling.mode)


def _warped(opened: Any, grid: Grid, coarsening: Resampling) -> NDArray[np.uint8]:
    finer = math.hypot(opened.transform.a, opened.transform.d) < grid.resolution * (1 - 1e-6)
    nodata = opened.nodata if opened.nodata is not None else NO_CLASS
    with WarpedVRT(
        opened,
        crs=grid.crs,
        transform=grid.transform,
        width=grid.width,
        height=grid.height,
        resampling=coarsening if finer else Resampling.nearest,
        src_nodata=nodata,
        nodata=nodata,
    ) as warped:
        values: NDArray[np.uint8] = warped.read(1)
    return values


def _layer(name: str, path: Path, grid: Grid) -> Layer:
    """Return a raster of uncertainty on the pictures' grid, means where many pixels become one."""
    title, meaning = LAYERS[name]
    try:
        with rasterio.open(path) as opened:
            values = _warped(opened, grid, Resampling.average)
    except RasterioError as error:
        raise UserError(f"{path}: cannot be read ({error}). Run the map stage again.") from error
    coarse = np.where(values == NO_CLASS, NO_CLASS, (values + _LAYER_STEP // 2) // _LAYER_STEP * _LAYER_STEP)
    return Layer(name, title, meaning, coarse.astype(np.uint8))


def _read(path: Path, columns: list[str], scene: str, grid: Grid) -> Any:
    """Return what a GeoParquet file has of a scene, its shapes in pixels of the grid."""
    import geopandas as gpd

    frame = gpd.read_parquet(path, columns=columns, filters=[("scene", "==", scene)])
    to_pixels: Affine = ~grid.transform
    matrix = [to_pixels.a, to_pixels.b, to_pixels.d, to_pixels.e, to_pixels.c, to_pixels.f]
    return frame.set_geometry(frame.geometry.to_crs(grid.crs).affine_transform(matrix))


def _outlines(index: Path, scene: str, grid: Grid) -> tuple[str, dict[Split, str]]:
    """Return what the splits hold, polygons or areas, and SVG paths around that of each.

    No point of a path is farther than about half a pixel from the true outline.
    """
    if not index.is_file():
        raise UserError(f"{index}: not found. Run the tile stage first.")
    tiles, beside = _read(index, ["scene", "split", "block", "geometry"], scene, grid), index.with_name(POLYGONS)
    polygons = _read(beside, ["scene", "split", "geometry"], scene, grid) if beside.is_file() else None
    outlines: dict[Split, str] = {}
    for split in get_args(Split):
        own = tiles[tiles["split"] == split]
        if len(own):
            shapes = _ground(own) if polygons is None else _judged(polygons[polygons["split"] == split], own)
            inside = shapely.clip_by_rect(shapes, 0, 0, grid.width, grid.height)
            parts = shapely.get_parts(shapely.get_parts(shapely.simplify(inside, _SIMPLER)))
            if path := " ".join(_path(ring) for part in parts if part.area for ring in _rings(part)):
                outlines[split] = path
    return "areas" if polygons is None else "polygons", outlines


def _ground(tiles: Any) -> NDArray[np.object_]:
    """Return the ground of a split as one shape: the rectangles around the tiles of each of its blocks."""
    left, top, right, bottom = shapely.bounds(tiles.geometry.to_numpy()).T
    sides = tiles[["block"]].assign(left=left, top=top, right=right, bottom=bottom).groupby("block")
    sides = sides.agg({"left": "min", "top": "min", "right": "max", "bottom": "max"}).to_numpy()
    # Grown by a sliver, so that neighbours join although their corners were rounded.
    boxes = shapely.box(*(sides + np.array([-1, -1, 1, 1]) * _SLIVER).T)
    return np.array([shapely.union_all(boxes)], object)


def _judged(polygons: Any, tiles: Any) -> NDArray[np.object_]:
    """Return the polygons that the tiles reach: others lost their labels to tiles of another split."""
    shapes: NDArray[np.object_] = polygons.geometry.to_numpy().astype(object)
    _, found = shapely.STRtree(shapes).query(tiles.geometry.to_numpy(), predicate="intersects")
    reached: NDArray[np.object_] = shapes[np.unique(found)]
    return reached


def _rings(polygon: Any) -> list[Any]:
    return [polygon.exterior, *polygon.interiors]


def _path(ring: Any) -> str:
    points = [f"{x:.1f},{y:.1f}" for x, y in ring.coords[:-1]]
    return f"M{' '.join(points)}Z"
