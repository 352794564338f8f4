"""Splits of images that are published as lists of names, or by the folders that the images lie in."""

import logging
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from landbalance.config import ListSplit
from landbalance.errors import UserError
from landbalance.tiles import SPLITS

_log = logging.getLogger(__name__)

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff"})
"""Of files that are taken for images, in lower case."""


def splits_by_lists(split: ListSplit, source: Path, images: Sequence[PurePosixPath]) -> NDArray[np.int8]:
    """Return the split of each image (an index into `SPLITS`); -1 for one in no list.

    Parameters
    ----------
    images : sequence of PurePosixPath
        Paths below `folders.path`.

    Raises
    ------
    UserError
        When a list cannot be read or names none of the images, or an image is in two splits.
    """
    found = np.full(len(images), -1, np.int8)
    for number, entries in enumerate((split.train, split.validation, split.test)):
        for entry in entries:
            hits = _hits(entry, f"split.{SPLITS[number]}", source, images)
            if twice := np.flatnonzero(hits & (found >= 0) & (found != number)).tolist():
                raise UserError(
                    f"split: {images[twice[0]]} is in {SPLITS[found[twice[0]]]} and, by {entry}, in {SPLITS[number]} "
                    f"({len(twice)} images are in two splits). Correct the lists."
                )
            found[hits] = number
    if left_out := np.count_nonzero(found < 0):
        _log.warning("split: %d of %d images are in no list and left out", left_out, len(images))
    return found


def _hits(entry: str, key: str, source: Path, images: Sequence[PurePosixPath]) -> NDArray[np.bool_]:
    """Return which images a list or pattern means."""
    if entry.endswith(".txt"):
        path = source / entry
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read ({key}): {error}. See that the `sources` bring it.") from error
        # The same split is published for a data set's pictures and its GeoTIFFs.
        names = {_without_suffix(PurePosixPath(line.strip())).as_posix() for line in lines if line.strip()}
        hits = [image.stem in names or image.with_suffix("").as_posix() in names for image in images]
    else:
        hits = [fnmatchcase(image.as_posix(), entry) for image in images]
    if not any(hits):
        raise UserError(
            f"{key}: {entry} means none of the {len(images)} images, which are called "
            f"{', '.join(map(str, images[:3]))} …. Correct it."
        )
    return np.array(hits)


def _without_suffix(name: PurePosixPath) -> PurePosixPath:
    """Return an image's name without its suffix, if it has one: airport_1.0 is whole."""
    return name.with_suffix("") if name.suffix.lower() in SUFFIXES else name
