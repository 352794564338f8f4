"""A map lies on the scene's own grid, whatever grid that is."""

from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine

GRIDS = {
    "south up": Affine(10, 0, 300_000, 0, 10, 5_900_000),
    "rotated": Affine.translation(300_000, 5_900_000) @ Affine.rotation(30) @ Affine.scale(10, -10),
    "oblong": Affine(10, 0, 300_000, 0, -25, 5_900_000),
    "degrees": Affine(0.0001, 0, 15, 0, -0.0001, 52),
}


@pytest.mark.parametrize("kind", GRIDS)
def test_a_map_has_the_grid_of_its_scene(scenery: Any, scene_of: Any, kind: str) -> None:
    """C03: size, transform and CRS are the scene's; every code stands in its place."""
    right = np.random.default_rng(0).integers(0, 3, (23, 37), np.uint8)
    scenery.write(scene_of(right))
    with rasterio.open(scenery.source / "scene.tif", "r+") as raster:
        raster.transform, raster.crs = GRIDS[kind], "EPSG:4326" if kind == "degrees" else "EPSG:32633"
    scenery.use_nearest(resolution=None)
    scenery.dataset = scenery.dataset.model_copy(
        update={"scenes": {"scene": scenery.dataset.scenes["scene"].model_copy(update={"acquired": "2022-05-12"})}}
    )
    assert np.array_equal(scenery.run(window=16, overlap=4, polygons=True, stac=True), right)
    with rasterio.open(scenery.target) as raster:
        assert raster.transform.almost_equals(GRIDS[kind], 1e-9)
        assert raster.crs.to_epsg() == (4326 if kind == "degrees" else 32633)
