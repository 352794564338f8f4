"""Splits that somebody has made: named by a field of the labels, or by a table of scenes or images."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import ColumnSplit, Dataset, ListSplit
from landbalance.errors import UserError
from landbalance.tile.labels.values import source_value
from landbalance.tile.labels.vector import layer_of
from landbalance.tile.lists import splits_by_lists
from landbalance.tiles import SPLITS

_log = logging.getLogger(__name__)


def splits_of_scenes(dataset: Dataset, split: ColumnSplit, source: Path) -> dict[str, int]:
    """Return the split of each scene (an index into `SPLITS`; -1 for none) that the table names.

    Raises
    ------
    UserError
        When the table cannot be read or lacks a scene.
    """
    rows = _table(split, source)
    if lacking := [scene for scene in dataset.scenes if scene not in rows]:
        raise UserError(f"{source / str(split.file)}: has no row for the scene {', '.join(lacking)} (split.file).")
    return {scene: rows[scene] for scene in dataset.scenes}


def splits_of_images(split: ColumnSplit | ListSplit, source: Path, images: Sequence[PurePosixPath]) -> NDArray[np.int8]:
    """Return the split of each image; -1 for one that the table or lists do not name, or of another split.

    Parameters
    ----------
    images : sequence of PurePosixPath
        Paths below `folders.path`.

    Raises
    ------
    UserError
        When the table or a list cannot be read or names none of the images.
    """
    if isinstance(split, ListSplit):
        return splits_by_lists(split, source, images)
    rows = _table(split, source)
    names = [(path.as_posix(), path.with_suffix("").as_posix(), path.name, path.stem) for path in images]
    found = [next((rows[name] for name in ways if name in rows), None) for ways in names]
    if not any(number is not None for number in found):
        raise UserError(
            f"{source / str(split.file)}: names none of the {len(images)} images (split.key); it has rows for "
            f"{', '.join(list(rows)[:3])} …, and images are called {', '.join(map(str, images[:3]))} …."
        )
    if lacking := sum(number is None for number in found):
        _log.warning("%s: %d images stand in no row and are left out", split.file, lacking)
    return np.array([-1 if number is None else number for number in found], np.int8)


def splits_of_polygons(dataset: Dataset, split: ColumnSplit, source: Path) -> dict[int, int]:
    """Return the split of each polygon or point, by its id in the file.

    Raises
    ------
    UserError
        When the labels have no such field, or it names no split.
    """
    import geopandas as gpd
    import pyogrio

    assert dataset.labels is not None and dataset.labels.path is not None
    path = source / dataset.labels.path
    layer = layer_of(path, getattr(dataset.labels, "layer", None))
    fields = list(pyogrio.read_info(path, layer=layer)["fields"])
    if split.column not in fields:
        raise UserError(f"{path}: has no field {split.column} (split.column); there are: {', '.join(fields)}.")
    frame = gpd.read_file(path, layer=layer, columns=[split.column], ignore_geometry=True, fid_as_index=True)
    values = [source_value(value) for value in frame[split.column]]
    return dict(zip(frame.index.tolist(), _numbers(values, split, f"{path}, field {split.column}"), strict=True))


def _table(split: ColumnSplit, source: Path) -> dict[str, int]:
    """Return the split of each row of the table, by its key."""
    assert split.file is not None
    path = source / split.file
    if not path.is_file():
        raise UserError(f"{path}: not found (split.file). Correct it, or see that the dataset's `sources` bring it.")
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=str)
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as a table (split.file): {error}") from error
    key = split.key or str(frame.columns[0])
    if lacking := [name for name in (key, split.column) if name not in frame]:
        raise UserError(f"{path}: has no column {', '.join(lacking)}; there are: {', '.join(map(str, frame.columns))}.")
    keys = [str(value) for value in frame[key]]
    if repeated := [name for name, count in Counter(keys).items() if count > 1]:
        raise UserError(f"{path}: {repeated[0]} stands in two rows of {key}, so its split is not clear.")
    values = [source_value(value) for value in frame[split.column]]
    return dict(zip(keys, _numbers(values, split, f"{path}, column {split.column}"), strict=True))


def _numbers(values: Sequence[str | None], split: ColumnSplit, where: str) -> list[int]:
    """Return the number of the split that each value means; -1 where it means none."""
    known = {
        str(value): number
        for number, listed in enumerate((split.train, split.validation, split.test))
        for value in listed
    }
    others = Counter(value or "(empty)" for value in values if value not in known)
    if sum(others.values()) == len(values):
        raise UserError(
            f"{where}: no value means a split. Found: {', '.join(list(others)[:9])}; known: {', '.join(known)}. List "
            f"its values under split.train, split.validation and split.test."
        )
    for value, count in others.items():
        _log.warning("%s: %d rows with %s are in no split", where, count, value)
    counts = Counter(SPLITS[known[value]] for value in values if value in known)
    _log.info("%s: %s", where, ", ".join(f"{name} {counts[name]}" for name in SPLITS))
    return [-1 if value is None else known.get(value, -1) for value in values]
