"""Images in a folder per class into tiles."""

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import ColumnSplit, Dataset, ListSplit
from landbalance.cores import on_all_cores
from landbalance.errors import UserError
from landbalance.progress import Progress
from landbalance.tile.columns import splits_of_images
from landbalance.tile.cut import IMAGES
from landbalance.tile.images import ExpectedImage, decoded_images, read_image, size_of
from landbalance.tile.labels import class_index, report_values
from landbalance.tile.lists import SUFFIXES
from landbalance.tile.split import draw_samples, taken
from landbalance.tile.statistics import merged
from landbalance.tile.write import GrowingArray, log_split, write_index, write_statistics
from landbalance.tiles import SPLITS, Shard

_log = logging.getLogger(__name__)

_AT_ONCE, _BYTES_AT_ONCE = 256, 16 << 20
"""How many images, of how many bytes, a process decodes at most before it hands them back; it is one at least."""


def tile_folders(name: str, dataset: Dataset, source: Path, folder: Path) -> None:
    """Gather the images of a dataset in a tile store in `folder`, which is there and empty.

    Raises
    ------
    UserError
        When there are no images of the classes, or one is damaged or unlike the others.
    """
    assert dataset.folders is not None
    root = source / dataset.folders.path
    found = _images(root)
    report_values({value: len(paths) for value, paths in found.items()}, dataset.classes, str(root), "images")
    index = class_index(dataset.classes)
    labelled = [(path, index[value]) for value, paths in found.items() if value in index for path in paths]
    if not labelled:
        raise UserError(f"{root}: the folders of the classes hold no images ({', '.join(sorted(SUFFIXES))}).")
    classes = np.array([label for _, label in labelled], np.uint8)
    splits = _splits(dataset, source, root, [path for path, _ in labelled], classes)
    kept = (splits >= 0) & taken(
        classes, splits == 0, dataset.tiles.per_class, dataset.tiles.balance, dataset.split.seed
    )
    if not kept.any():
        raise UserError(
            f"split: none of the {len(labelled)} images of the classes in {root} is in a split. Correct the table, or "
            "the values under split.train, split.validation and split.test."
        )
    paths = [path for (path, _), wanted in zip(labelled, kept, strict=True) if wanted]
    classes, splits = classes[kept], splits[kept]
    first = read_image(paths[0], dataset.folders.bands)
    if first.shape[1] != first.shape[2]:
        raise UserError(f"{paths[0]}: {size_of(first)} pixels; images must be as high as wide.")
    if dataset.folders.stretch is not None and first.dtype != np.uint8:
        raise UserError(
            f"{paths[0]}: holds {first.dtype}, but folders.stretch says that the images are bytes (uint8). Leave it "
            "out: scenes are then mapped in the numbers that they hold."
        )
    expected = ExpectedImage(paths[0], dataset.folders.bands, first.shape, first.dtype)
    of_tiles = []
    with GrowingArray(folder / IMAGES, first.shape, first.dtype) as images:
        for chunk, of_chunk in _decoded(f"tile {name}", paths, expected):
            images.append(chunk)
            of_tiles.append(of_chunk)
    np.save(folder / "labels.npy", classes, allow_pickle=False)
    frame = pd.DataFrame(
        {
            "tile": np.arange(len(paths)),
            "source": [str(path).removeprefix(f"{source}/") for path in paths],
            "height": first.shape[1],
            "width": first.shape[2],
            "split": np.array(SPLITS, object)[splits],
            "label": classes.astype(np.int64),
            "labelled": first[0].size,
        }
    )
    counts = np.stack([np.bincount(classes[splits == k], minlength=len(dataset.classes)) for k in range(len(SPLITS))])
    log_split(counts, dataset)
    write_index(folder, frame, frame["tile"].to_numpy(), None)
    training = np.concatenate(of_tiles)[splits == SPLITS.index("train")]
    info = write_statistics(
        folder, dataset, [Shard(images=IMAGES, count=len(paths))], frame, counts,
        merged(np.full(len(training), first[0].size), training), dataset.resolution, 0.0,
    )  # fmt: skip
    _log.info("%s: %d images of %s pixels", name, info.tiles, size_of(first))


def _splits(
    dataset: Dataset, source: Path, root: Path, images: Sequence[Path], classes: NDArray[np.uint8]
) -> NDArray[np.int8]:
    """Return the split of each image; -1 where it is in none."""
    if isinstance(dataset.split, ColumnSplit | ListSplit):
        return splits_of_images(dataset.split, source, [PurePosixPath(path.relative_to(root)) for path in images])
    return draw_samples(classes, dataset.split.wanted, dataset.split.seed)


def _images(root: Path) -> Mapping[str, list[Path]]:
    """Return the images in each folder below `root`, sorted by name."""
    if not root.is_dir():
        raise UserError(
            f"{root}: no such folder (folders.path). Correct it, or see that the dataset's `sources` bring it."
        )
    found: dict[str, list[Path]] = {}
    left_out: Counter[str] = Counter()
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        names = sorted(os.listdir(folder))
        suffixes = [os.path.splitext(name)[1].lower() for name in names]
        found[folder.name] = [folder / name for name, suffix in zip(names, suffixes, strict=True) if suffix in SUFFIXES]
        _require_utf8(found[folder.name])
        others = [(name, suffix) for name, suffix in zip(names, suffixes, strict=True) if suffix not in SUFFIXES]
        left_out.update(suffix or "(none)" for name, suffix in others if (folder / name).is_file())
    if not found:
        raise UserError(f"{root}: holds no folders; a folder per class is wanted (folders.path).")
    if left_out:
        _log.warning("%s: files left out, by suffix: %s", root, dict(left_out))
    return found


def _require_utf8(paths: Sequence[Path]) -> None:
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            shown = os.fsencode(path).decode(errors="backslashreplace")
            raise UserError(f"{shown}: its name is no UTF-8, so no table can list it. Rename it.") from error


def _decoded(
    title: str, paths: Sequence[Path], expected: ExpectedImage
) -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
    """Yield the images in order, some at once, with their `statistics.moments`."""
    nbytes = math.prod(expected.shape) * expected.dtype.itemsize
    at_once = max(min(_AT_ONCE, _BYTES_AT_ONCE // nbytes), 1)
    chunks = [paths[start : start + at_once] for start in range(0, len(paths), at_once)]
    with Progress(title, len(paths), "image") as progress:
        for images, of_images in on_all_cores(partial(decoded_images, expected), chunks, 8):
            yield images, of_images
            progress.advance(len(images))
