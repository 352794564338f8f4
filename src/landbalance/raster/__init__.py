"""Scenes as one grid, whatever files they come from; and where their pixels lie.

`reader` reads windows, `bands` opens what it reads, `products` finds the files: also in the products of agencies
(`sentinel2`, `landsat`), whose numbers become reflectance there, for the tile stage and the map stage alike.
"""

from landbalance.raster.bands import OpenBand, known_crs, open_bands, read_part
from landbalance.raster.grid import Grid, bounds_of, moved_bounds, overlap, shown, title
from landbalance.raster.products import acquired, is_product, mask_file, product_above, scene_paths
from landbalance.raster.reader import GDAL, SceneReader, open_scene
from landbalance.raster.sources import BandFile

__all__ = [
    "GDAL",
    "BandFile",
    "Grid",
    "OpenBand",
    "SceneReader",
    "acquired",
    "bounds_of",
    "is_product",
    "known_crs",
    "mask_file",
    "moved_bounds",
    "open_bands",
    "open_scene",
    "overlap",
    "product_above",
    "read_part",
    "scene_paths",
    "shown",
    "title",
]
