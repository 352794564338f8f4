"""Images in a folder per class into tiles."""

import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError

from landbalance.config import ColumnSplit, Dataset, ListSplit
from landbalance.cores import on_all_cores
from landbalance.errors import UserError
from landbalance.progress import Progress
from landbalance.tile.columns import splits_of_images
from landbalance.tile.cut import IMAGES
from landbalance.tile.labels import class_index, report_values
from landbalance.tile.lists import SUFFIXES
from landbalance.tile.split import draw_samples, taken
from landbalance.tile.statistics import merged, moments
from landbalance.tile.write import GrowingArray, log_split, write_index, write_statistics
from landbalance.tiles import SPLITS, Shard

_log = logging.getLogger(__name__)

_AT_ONCE, _BYTES_AT_ONCE = 256, 16 << 20
"""How many images, of how many bytes, a process decodes at most before it hands them back; it is one at least."""


@dataclass(frozen=True)
class _Expected:
    """What all images have: the number of bands that the configuration names, else what the first one has."""

    path: Path
    bands: Sequence[str]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


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
    splits = _splits(dataset, source, [PurePosixPath(path.relative_to(root)) for path, _ in labelled], classes)
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
        raise UserError(f"{paths[0]}: {_size(first)} pixels; images must be as high as wide.")
    if dataset.folders.stretch is not None and first.dtype != np.uint8:
        raise UserError(
            f"{paths[0]}: holds {first.dtype}, but folders.stretch says that the images are bytes (uint8). Leave it "
            "out: scenes are then mapped in the numbers that they hold."
        )
    expected = _Expected(paths[0], dataset.folders.bands, first.shape, first.dtype)
    of_tiles = []
    with GrowingArray(folder / IMAGES, first.shape, first.dtype) as images:
        for chunk, of_chunk in _decoded(f"tile {name}", paths, expected):
            images.append(chunk)
            of_tiles.append(of_chunk)
    np.save(folder / "labels.npy", classes, allow_pickle=False)
    frame = pd.DataFrame(
        {
            "tile": np.arange(len(paths)),
            "source": [path.relative_to(source).as_posix() for path in paths],
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
    _log.info("%s: %d images of %s pixels", name, info.tiles, _size(first))


def _splits(
    dataset: Dataset, source: Path, images: Sequence[PurePosixPath], classes: NDArray[np.uint8]
) -> NDArray[np.int8]:
    """Return the split of each image; -1 where it is in none."""
    if isinstance(dataset.split, ColumnSplit | ListSplit):
        return splits_of_images(dataset.split, source, images)
    return draw_samples(classes, dataset.split.wanted, dataset.split.seed)


def _images(root: Path) -> Mapping[str, list[Path]]:
    """Return the images in each folder below `root`, sorted by name."""
    if not root.is_dir():
        raise UserError(
            f"{root}: no such folder (folders.path). Correct it, or see that the dataset's `sources` bring it."
        )
    found = {
        folder.name: sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        for folder in sorted(root.iterdir())
        if folder.is_dir()
    }
    if not found:
        raise UserError(f"{root}: holds no folders; a folder per class is wanted (folders.path).")
    for path in (path for paths in found.values() for path in paths):
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            shown = os.fsencode(path).decode(errors="backslashreplace")
            raise UserError(f"{shown}: its name is no UTF-8, so no table can list it. Rename it.") from error
    others = Counter(path.suffix.lower() or "(none)" for path in root.glob("*/*") if path.is_file())
    left_out = {suffix: count for suffix, count in others.items() if suffix not in SUFFIXES}
    if left_out:
        _log.warning("%s: files left out, by suffix: %s", root, left_out)
    return found


def _decoded(
    title: str, paths: Sequence[Path], expected: _Expected
) -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
    """Yield the images in order, some at once, with their `statistics.moments`."""
    nbytes = math.prod(expected.shape) * expected.dtype.itemsize
    at_once = max(min(_AT_ONCE, _BYTES_AT_ONCE // nbytes), 1)
    chunks = [paths[start : start + at_once] for start in range(0, len(paths), at_once)]
    with Progress(title, len(paths), "image") as progress:
        for images, of_images in on_all_cores(partial(_decode, expected), chunks, 8):
            yield images, of_images
            progress.advance(len(images))


def _decode(expected: _Expected, paths: Sequence[Path]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    images = np.empty((len(paths), *expected.shape), expected.dtype)
    of_images = np.empty((len(paths), 2, expected.shape[0]))
    everywhere = np.ones(expected.shape[1:], np.bool_)
    with _strict_gdal():
        for place, path in enumerate(paths):
            image = _read(path, expected.bands)
            if image.shape != expected.shape or image.dtype != expected.dtype:
                raise UserError(
                    f"{path}: {_size(image)} pixels of {image.dtype}; {expected.path} and the images before have "
                    f"{expected.shape[2]} × {expected.shape[1]} of {expected.dtype}, and all must be alike. Resize or "
                    "remove it."
                )
            require_numbers(path, image)
            images[place], of_images[place] = image, moments(image, everywhere)
    return images, of_images


def read_image(path: Path, bands: Sequence[str] | None = None) -> NDArray[Any]:
    """Return an image as (bands, height, width); it must have as many bands as `bands` names."""
    with _strict_gdal():
        return _read(path, bands)


def require_numbers(path: Path, image: NDArray[Any]) -> None:
    """Stop when an image holds NaN or infinity: no pixel of an image in a folder is missing.

    Raises
    ------
    UserError
        It names the file and counts them.
    """
    if image.dtype.kind == "f" and (others := np.count_nonzero(~np.isfinite(image))):
        raise UserError(
            f"{path}: {others} of its {image.size} values are NaN or infinite; images in folders have no missing "
            "pixels. Fill them or remove the image."
        )


@contextmanager
def _strict_gdal() -> Iterator[None]:
    """Let GDAL make errors of what libjpeg only warns of, such as damage inside a JPEG, and look for no other files."""
    with (
        rasterio.Env(GDAL_ERROR_ON_LIBJPEG_WARNING=True, GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def _read(path: Path, bands: Sequence[str] | None) -> NDArray[Any]:
    jpeg = path.suffix.lower() in (".jpg", ".jpeg")
    try:
        with rasterio.open(path, driver="JPEG" if jpeg else None) as file:
            # By way of float64, which forces GDAL to read block by block: read in one go, a PNG that
            # ends too soon gives noise and no error.
            image: NDArray[Any] = file.read() if jpeg else file.read(out_dtype=np.float64).astype(file.dtypes[0])
    except RasterioError as error:
        cause = " ".join(str(error.__cause__ or error).split())
        raise UserError(f"{path}: cannot be read: damaged, cut off or no image ({cause}). Replace it.") from error
    if bands is not None and len(image) != len(bands):
        raise UserError(f"{path}: has {len(image)} bands; folders.bands names {len(bands)}: {', '.join(bands)}.")
    return image


def _size(image: NDArray[Any]) -> str:
    return f"{image.shape[2]} × {image.shape[1]}"
