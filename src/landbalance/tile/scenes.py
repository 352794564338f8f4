"""Which scenes there are and where they lie among each other, before any is cut."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.raster import Grid, open_scene
from landbalance.tile.blocks import Placement, place_scenes


def read_grids(dataset: Dataset, source: Path, scenes: Iterable[str]) -> tuple[dict[str, Grid], dict[str, UserError]]:
    """Return the grids of the scenes that can be read, and of the others what is wrong with them."""
    grids: dict[str, Grid] = {}
    failed: dict[str, UserError] = {}
    for scene in scenes:
        try:
            with open_scene(dataset.scenes[scene], source, dataset.resolution, dataset.resampling) as reader:
                grids[scene] = reader.grid
        except UserError as error:
            failed[scene] = error
    return grids, failed


def placements_of(dataset: Dataset, grids: Mapping[str, Grid]) -> dict[str, Placement]:
    """Return where the scenes lie among the squares of ground that no tile leaves.

    A split by whole scenes does not ask that scenes on the same ground line up; each has squares of its own then.

    Raises
    ------
    UserError
        When the scenes' pixels differ in size, or pixels on the same ground do not line up.
    """
    sizes = {f"{grid.resolution:.9g}": scene for scene, grid in grids.items()}
    if len(sizes) > 1:
        found = ", ".join(f"{scene} {size}" for size, scene in sizes.items())
        raise UserError(f"scenes: their pixels differ in size ({found}). Set the dataset's `resolution`.")
    if by_scene(dataset):
        return {scene: Placement(number, 0, 0) for number, scene in enumerate(grids)}
    buffer: Any = getattr(dataset.split, "buffer", 0)
    return place_scenes(grids, buffer)


def by_scene(dataset: Dataset) -> bool:
    """Return whether a scene is in one split as a whole."""
    split = dataset.split
    return split.by == "scene" or (split.by == "column" and split.file is not None)
