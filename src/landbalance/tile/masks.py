"""Images that have a mask each into tiles: a raster of source classes beside every image, as LoveDA has it."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.config import Dataset, Folders
from landbalance.errors import UserError
from landbalance.progress import tracked
from landbalance.tile.blocks import Window, tile_windows
from landbalance.tile.folders import SUFFIXES, read_image
from landbalance.tile.labels.raster import Codes, codes_of, refuse_unknown, value_counts
from landbalance.tile.labels.values import report_values
from landbalance.tile.split import SPLITS, draw_blocks
from landbalance.tile.write import Store, label_counts, log_split, write_index, write_statistics
from landbalance.tiles import IGNORED

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Pair:
    """An image and its mask."""

    image: Path
    mask: Path


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
    folders = dataset.folders
    assert folders is not None
    pairs = list(_pairs(source / folders.path, folders))
    codes = codes_of(dataset.classes, folders.ignored, "folders.masks")
    counts = _counts(name, pairs, codes, dataset)
    labelled = [pair for pair, of_classes in zip(pairs, counts, strict=True) if of_classes.any()]
    if left_out := len(pairs) - len(labelled):
        _log.info("%d images left out: their masks hold no class", left_out)
    split = dataset.split
    shares = (split.train, split.validation, split.test)
    splits = draw_blocks(counts[counts.any(axis=1)], shares, split.seed)
    first = read_image(labelled[0].image, folders)
    store = Store(
        folder, (len(first), dataset.tiles.size, dataset.tiles.size), first.dtype, (dataset.tiles.size,) * 2,
        len(dataset.classes),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    images = tracked(labelled, f"tile {name}: writing", len(labelled), "image")
    for number, (pair, part) in enumerate(zip(images, splits.tolist(), strict=True)):
        image, mask = read_image(pair.image, folders), codes.looked_up(_mask(pair))
        _require_fit(pair, image, mask, first.dtype)
        place = {"source": pair.image.relative_to(source).as_posix(), "block": number, "split": SPLITS[part]}
        rows += [{"tile": store.tiles - 1, **place, **row} for row in _append_tiles(store, dataset, image, mask, part)]
    store.flush()
    log_split(store, dataset)
    write_index(folder, rows, None)
    info = write_statistics(store, dataset, None, 0.0)
    _log.info("%s: %d tiles of %d pixels from %d images", name, info.tiles, info.tile_size, len(labelled))


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


def _rasters(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _counts(name: str, pairs: list[_Pair], codes: Codes, dataset: Dataset) -> NDArray[np.int64]:
    """Return the pixels of each class in each mask, shape (images, classes), having reported what there is."""
    counts = np.zeros((len(pairs), len(dataset.classes)), np.int64)
    total: Counter[float] = Counter()
    for number, pair in enumerate(tracked(pairs, f"tile {name}: reading masks", len(pairs), "mask")):
        mask = _mask(pair)
        found = value_counts(mask.ravel())
        refuse_unknown(found, codes, dataset.classes, str(pair.mask), "folders.ignored")
        total.update(found)
        counts[number] = label_counts(codes.looked_up(mask), len(dataset.classes))
    values = {f"{value:.17g}": count for value, count in sorted(total.items())}
    classes = {value: count for value, count in values.items() if not codes.ignores(float(value))}
    report_values(classes, dataset.classes, "folders.masks", "pixels")
    return counts


def _mask(pair: _Pair) -> NDArray[Any]:
    """Return the values of a mask, shape (height, width)."""
    mask = read_image(pair.mask, None)
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


def _append_tiles(
    store: Store, dataset: Dataset, image: NDArray[Any], mask: NDArray[np.uint8], split: int
) -> Iterator[dict[str, Any]]:
    """Add the tiles of an image that have labels enough, and yield where each lies."""
    size, stride, class_count = dataset.tiles.size, dataset.tiles.stride, len(dataset.classes)
    seen = np.zeros(mask.shape, np.bool_)
    for window in tile_windows(Window(0, 0, *mask.shape), size, stride or size):
        part = (slice(window.row, window.row + window.height), slice(window.col, window.col + window.width))
        label = np.full((size, size), IGNORED, np.uint8)
        label[: window.height, : window.width] = mask[part]
        if SPLITS[split] != "train":
            # Where tiles overlap, a pixel is judged once: in the first that has it.
            label[: window.height, : window.width][seen[part]] = IGNORED
        counts = label_counts(label, class_count)
        if counts.sum() < max(1, dataset.tiles.labelled * size**2):
            continue
        pixels = np.zeros((len(image), size, size), image.dtype)
        pixels[:, : window.height, : window.width] = image[:, *part]
        inside = np.zeros((size, size), np.bool_)
        inside[: window.height, : window.width] = True
        fresh = label_counts(mask[part][~seen[part]], class_count)
        seen[part] = True
        store.append(pixels, label, split, inside, fresh)
        yield {
            "row": window.row,
            "col": window.col,
            "height": window.height,
            "width": window.width,
            "label": int(counts.argmax()),
            "labelled": int(counts.sum()),
        }
