"""Images that have a mask each into tiles: a raster of source classes beside every image, as LoveDA has it."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from landbalance.config import ColumnSplit, Dataset, Folders, ListSplit
from landbalance.cores import on_all_cores
from landbalance.errors import UserError
from landbalance.progress import tracked
from landbalance.tile.blocks import Window, tile_windows
from landbalance.tile.columns import splits_of_images
from landbalance.tile.cut import IMAGES, enough
from landbalance.tile.images import read_image, require_numbers
from landbalance.tile.labels.raster import Codes, codes_of, refuse_unknown, value_counts
from landbalance.tile.labels.values import report_values
from landbalance.tile.lists import SUFFIXES
from landbalance.tile.split import drawn_groups, taken
from landbalance.tile.statistics import merged, moments
from landbalance.tile.write import GrowingArray, label_counts, log_split, write_index, write_statistics
from landbalance.tiles import IGNORED, SPLITS, Shard

_log = logging.getLogger(__name__)

_LEAST = 64
"""Images that are worth a process to decode them."""


@dataclass(frozen=True)
class _Pair:
    """An image and its mask."""

    image: Path
    mask: Path


@dataclass(frozen=True)
class _Survey:
    """What the masks hold.

    Parameters
    ----------
    windows : list of Window
        All tiles of all images.
    images : ndarray of int, shape (tiles,)
        The number of the image that each is cut from.
    counts : ndarray of int, shape (tiles, classes)
        Labels of each.
    of_images : ndarray of int, shape (images, classes)
        Labels of each image.
    """

    windows: list[Window]
    images: NDArray[np.int64]
    counts: NDArray[np.int64]
    of_images: NDArray[np.int64]


def tile_masks(name: str, dataset: Dataset, source: Path, folder: Path) -> None:
    """Cut images and their masks into a tile store in `folder`, which is there and empty.

    All tiles of an image are in one split. Masks are read twice: before anything is written their values are known
    to be allowed, and the images drawn such that every class comes close to the wanted shares.

    Raises
    ------
    UserError
        When there are no images, one has no mask or one of another size, a mask holds a value that is in no class, or
        a file is damaged.
    """
    assert dataset.folders is not None
    root = source / dataset.folders.path
    pairs = list(_pairs(root, dataset.folders))
    work = _Work(dataset, codes_of(dataset.classes, dataset.folders.ignored, "folders.masks"))
    survey = _surveyed(name, pairs, work)
    splits = _splits(dataset, source, [PurePosixPath(pair.image.relative_to(root)) for pair in pairs], survey.of_images)
    wanted = enough(survey.counts, dataset) & (splits[survey.images] >= 0)
    if not wanted.any():
        raise UserError(
            f"{root}: none of the {len(wanted)} tiles is in a split and has labels enough. Correct `split`, or make "
            f"tiles.labelled ({dataset.tiles.labelled:g}) smaller."
        )
    wanted &= taken(
        survey.counts.argmax(axis=1), wanted & (splits[survey.images] == 0), dataset.tiles.per_class,
        dataset.tiles.balance, dataset.split.seed,
    )  # fmt: skip
    windows: dict[int, list[Window]] = {}
    for tile in np.flatnonzero(wanted).tolist():
        windows.setdefault(int(survey.images[tile]), []).append(survey.windows[tile])
    read = on_all_cores(work.read, [pairs[number] for number in windows], _LEAST)
    images = tracked(read, f"tile {name}: images", len(windows), "image")
    with _Writer(dataset, folder) as writer:
        for (number, of_image), (image, mask) in zip(windows.items(), images, strict=True):
            writer.append(pairs[number], image, mask, number, of_image, int(splits[number]))
    frame = pd.DataFrame(writer.rows)
    frame["source"] = [pairs[number].image.relative_to(source).as_posix() for number in frame["block"]]
    log_split(writer.counts, dataset)
    write_index(folder, frame, frame["tile"].to_numpy(), None)
    info = write_statistics(
        folder, dataset, [Shard(images=IMAGES, count=len(frame))], frame, writer.counts,
        merged(np.array(writer.valid), np.array(writer.moments)), dataset.resolution, 0.0,
    )  # fmt: skip
    _log.info("%s: %d tiles of %d pixels from %d images", name, info.tiles, info.tile_size, len(windows))


def _pairs(root: Path, folders: Folders) -> Iterator[_Pair]:
    """Yield the images in folders called `images` with their masks in folders called `masks`, sorted by path."""
    assert folders.images is not None
    assert folders.masks is not None
    if not root.is_dir():
        raise UserError(
            f"{root}: no such folder (folders.path). Correct it, or see that the dataset's `sources` bring it."
        )
    beside = [path for path in sorted(root.rglob(folders.images)) if (path.parent / folders.masks).is_dir()]
    if not beside:
        raise UserError(
            f"{root}: there is no folder {folders.images} with a folder {folders.masks} beside it at any depth "
            "(folders.images, folders.masks). Correct the names; masks are searched beside the images."
        )
    for folder in beside:
        masks = {
            path.stem: path for path in (folder.parent / folders.masks).iterdir() if path.suffix.lower() in SUFFIXES
        }
        images = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        if without := [path for path in images if path.stem not in masks]:
            raise UserError(
                f"{without[0]}: no mask of that name lies in {folder.parent / folders.masks} ({len(without)} of "
                f"{len(images)} images there have none). Add the masks, or remove the images."
            )
        yield from (_Pair(path, masks[path.stem]) for path in images)


@dataclass(frozen=True)
class _Work:
    """What to do with each image and mask; it goes to the processes that do it."""

    dataset: Dataset
    codes: Codes

    def survey(self, pair: _Pair) -> tuple[Counter[float], NDArray[np.int64], list[Window], NDArray[np.int64]]:
        """Return the values of a mask with their pixels, its labels of each class, its tiles, and their labels."""
        size, stride, classes = self.dataset.tiles.size, self.dataset.tiles.stride, len(self.dataset.classes)
        mask = _mask(pair)
        found = value_counts(mask.ravel())
        refuse_unknown(found, self.codes, self.dataset.classes, str(pair.mask), "folders.ignored")
        label = self.codes.looked_up(mask)
        windows = tile_windows(Window(0, 0, *mask.shape), size, stride or size)
        counts = np.stack([label_counts(label[_part(window)], classes) for window in windows])
        return found, label_counts(label, classes), windows, counts

    def read(self, pair: _Pair) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return an image and the class of each of its pixels."""
        assert self.dataset.folders is not None
        image = read_image(pair.image, self.dataset.folders.bands)
        require_numbers(pair.image, image)
        return image, self.codes.looked_up(_mask(pair))


def _surveyed(name: str, pairs: Sequence[_Pair], work: _Work) -> _Survey:
    """Return what the masks hold, having reported it."""
    total: Counter[float] = Counter()
    windows: list[Window] = []
    images, counts, of_images = [], [], []
    surveyed = tracked(on_all_cores(work.survey, pairs, _LEAST), f"tile {name}: masks", len(pairs), "mask")
    for number, (found, of_image, of_windows, of_tiles) in enumerate(surveyed):
        total.update(found)
        of_images.append(of_image)
        windows += of_windows
        images += [number] * len(of_windows)
        counts.append(of_tiles)
    values = {f"{value:.17g}": count for value, count in sorted(total.items()) if not work.codes.ignores(value)}
    report_values(values, work.dataset.classes, "folders.masks", "pixels")
    return _Survey(windows, np.array(images), np.concatenate(counts), np.stack(of_images))


def _splits(
    dataset: Dataset, source: Path, images: Sequence[PurePosixPath], counts: NDArray[np.int64]
) -> NDArray[np.int8]:
    """Return the split of each image; -1 where it is in none, or its mask holds no class."""
    labelled = counts.any(axis=1)
    if left_out := np.count_nonzero(~labelled):
        _log.info("%d images left out: their masks hold no class", left_out)
    if isinstance(dataset.split, ColumnSplit | ListSplit):
        return np.where(labelled, splits_of_images(dataset.split, source, images), np.int8(-1))
    splits = np.full(len(images), -1, np.int8)
    splits[labelled] = drawn_groups(counts[labelled], dataset, "image")
    return splits


def _part(window: Window) -> tuple[slice, slice]:
    return slice(window.row, window.row + window.height), slice(window.col, window.col + window.width)


def _mask(pair: _Pair) -> NDArray[Any]:
    """Return the values of a mask, shape (height, width)."""
    mask = read_image(pair.mask)
    if len(mask) != 1:
        raise UserError(
            f"{pair.mask}: has {len(mask)} bands; a mask has one, which holds the classes. Bring colours to numbers."
        )
    values: NDArray[Any] = mask[0]
    return values


def _require_fit(pair: _Pair, image: NDArray[Any], mask: NDArray[np.uint8], dtype: np.dtype[Any]) -> None:
    if image.shape[1:] != mask.shape:
        raise UserError(
            f"{pair.mask}: {mask.shape[1]} × {mask.shape[0]} pixels; its image {pair.image} has {image.shape[2]} × "
            f"{image.shape[1]}. Replace the wrong one."
        )
    if image.dtype != dtype:
        raise UserError(f"{pair.image}: holds {image.dtype}; the images before hold {dtype}, and all must be alike.")


class _Writer:
    """Tiles being written: images and labels to files, the rest kept."""

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        self.valid: list[int] = []
        self.moments: list[NDArray[np.float64]] = []
        self.counts = np.zeros((len(SPLITS), len(dataset.classes)), np.int64)
        self._dataset, self._folder = dataset, folder
        self._files = ExitStack()
        self._dtype: np.dtype[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def append(
        self,
        pair: _Pair,
        image: NDArray[Any],
        mask: NDArray[np.uint8],
        number: int,
        windows: Sequence[Window],
        split: int,
    ) -> None:
        """Add tiles of an image; outside of training, where tiles overlap, the first that has a pixel judges it."""
        size, classes = self._dataset.tiles.size, len(self._dataset.classes)
        if self._dtype is None:
            self._dtype = image.dtype
            shape = (size, size)
            self._images = self._files.enter_context(
                GrowingArray(self._folder / IMAGES, (len(image), *shape), image.dtype)
            )
            self._labels = self._files.enter_context(GrowingArray(self._folder / "labels.npy", shape, np.uint8))
        _require_fit(pair, image, mask, self._dtype)
        seen = np.zeros(mask.shape, np.bool_)
        for window in windows:
            part, inside = _part(window), (slice(window.height), slice(window.width))
            label = np.full((size, size), IGNORED, np.uint8)
            label[inside] = mask[part]
            if SPLITS[split] != "train":
                label[inside][seen[part]] = IGNORED
            counts = label_counts(label, classes)
            if not enough(counts, self._dataset):
                continue
            pixels = np.zeros((1, len(image), size, size), image.dtype)
            pixels[0][:, *inside] = image[:, *part]
            self._images.append(pixels)
            self._labels.append(label[None])
            self.counts[split] += label_counts(mask[part][~seen[part]], classes)
            seen[part] = True
            if SPLITS[split] == "train":
                self.valid.append(window.height * window.width)
                self.moments.append(moments(image[:, *part], np.ones((window.height, window.width), np.bool_)))
            self.rows.append(
                {
                    "tile": len(self.rows),
                    "row": window.row,
                    "col": window.col,
                    "height": window.height,
                    "width": window.width,
                    "block": number,
                    "split": SPLITS[split],
                    "label": int(counts.argmax()),
                    "labelled": int(counts.sum()),
                }
            )
