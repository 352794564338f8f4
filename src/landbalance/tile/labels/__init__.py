"""Labels: read, checked, brought to a scene's grid, and given as a class for each pixel of a window."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landbalance.config import ClassInfo, VectorLabels
from landbalance.errors import UserError
from landbalance.raster import Grid
from landbalance.tile.blocks import Window
from landbalance.tile.labels.scene import SceneLabels, require_labels, scene_labels
from landbalance.tile.labels.values import FoundLabels, class_index, report_values, require_classes
from landbalance.tile.labels.vector import Shapes as Polygons
from landbalance.tile.labels.vector import read_shapes

__all__ = ["FoundLabels", "Polygons", "SceneLabels", "class_index", "report_values", "require_labels", "scene_labels"]


# Until tile_scenes handles one scene at a time.
def read_labels(
    path: Path, labels: VectorLabels, classes: Sequence[ClassInfo], grids: Mapping[str, Grid]
) -> dict[str, Polygons]:
    """Return the polygons of each scene."""
    found = {scene: read_shapes(path, labels, classes, scene, grid)
            for scene, grid in grids.items()}  # fmt: skip
    counts: Counter[str] = Counter()
    for item in found.values():
        counts.update(item.found.counts)
    first = next(iter(found.values())).found
    if not counts:
        raise UserError(f"{first.file}: the labels miss the scene. {first.place}.")
    require_classes(counts, classes, first.file)
    return found


def polygons_of(scene: str, frame: Mapping[str, Polygons], grid: Grid) -> Polygons:
    """Return the polygons of a scene."""
    return frame[scene]


def burn(polygons: Polygons, grid: Grid, window: Window) -> NDArray[np.uint8]:
    """Return the class of each pixel."""
    return polygons.burn(window)
