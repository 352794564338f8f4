"""Labels of one scene, whatever file they come from, and the check that some scene has any."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from landbalance.config import Dataset, RasterLabels
from landbalance.errors import UserError
from landbalance.raster import Grid
from landbalance.tile.blocks import Window
from landbalance.tile.labels.raster import read_class_raster
from landbalance.tile.labels.values import FoundLabels, report_missing, require_classes
from landbalance.tile.labels.vector import read_shapes


class SceneLabels(Protocol):
    """Labels of one scene. It may be pickled, and used by several threads at once."""

    @property
    def found(self) -> FoundLabels:
        """Return what the labels hold."""

    def burn(self, window: Window) -> NDArray[np.uint8]:
        """Return the index of each pixel's class, shape (height, width); 255 where there is none.

        Parameters
        ----------
        window : Window
            Of the scene's grid.
        """

    def objects(self, window: Window) -> NDArray[np.int64]:
        """Return the number of the polygon or point that each labelled pixel belongs to, shape (height, width).

        It is the feature's id in its file, hence the same in every run and for every scene with that file; -1 where
        there is no label, and everywhere if the labels are a raster.
        """


def scene_labels(dataset: Dataset, source: Path, scene: str, grid: Grid) -> SceneLabels:
    """Return the labels of a scene. A scene without any is a warning: see `require_labels`.

    Parameters
    ----------
    dataset : Dataset
    source : Path
        The folder that the download stage filled.
    scene : str
        The scene's name.
    grid : Grid
        The scene's grid, on which labels are asked for.

    Raises
    ------
    UserError
        When the file is missing, or cannot be read or used: no such layer or field, no CRS.
    """
    labels = dataset.labels
    file = dataset.scenes[scene].labels or (labels.path if labels is not None else None)
    assert labels is not None and file is not None, "scenes have labels"
    if not (source / file).exists():
        raise UserError(
            f"{source / file}: not found (labels.path). Correct the path, or see that the dataset's `sources` bring it."
        )
    if isinstance(labels, RasterLabels):
        return read_class_raster(source / file, labels, dataset.classes, scene, grid)
    return read_shapes(source / file, labels, dataset.classes, scene, grid)


def require_labels(name: str, dataset: Dataset, found: Mapping[str, FoundLabels]) -> None:
    """Warn of values that no scene has, and stop when no scene has a label of a class.

    Parameters
    ----------
    name : str
        The dataset's name, for messages.
    found : mapping of str to FoundLabels
        What each scene's labels hold.

    Raises
    ------
    UserError
        It says where the labels and the scenes lie, or which values there are instead.
    """
    counts: Counter[str] = Counter()
    for item in found.values():
        counts.update(item.counts)
    first = next(iter(found.values()))
    if not counts:
        scene = next(iter(found))
        raise UserError(
            f"{first.file}: the labels miss {_scenes(found)}. {first.place} ({scene}). Take labels of that place, or "
            "correct the CRS of one of the two."
        )
    where = ", ".join(dict.fromkeys(item.file for item in found.values()))
    require_classes(counts, dataset.classes, where)
    report_missing(counts, dataset.classes, f"{name}, {where}", first.what)


def _scenes(found: Mapping[str, FoundLabels]) -> str:
    return f"the scene {next(iter(found))}" if len(found) == 1 else f"all {len(found)} scenes"
