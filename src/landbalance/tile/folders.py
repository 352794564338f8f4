"""Images in a folder per class into tiles."""

import logging
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError

from landbalance.config import Dataset, Folders
from landbalance.errors import UserError
from landbalance.progress import tracked
from landbalance.tile.labels import class_index, report_values
from landbalance.tile.split import SPLITS, draw_samples
from landbalance.tile.write import Store, label_counts, log_split, write_index, write_statistics

_log = logging.getLogger(__name__)

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff"})
"""Of files that are taken for images, in lower case."""


def tile_folders(name: str, dataset: Dataset, source: Path, folder: Path) -> None:
    """Gather the images of a dataset in a tile store in `folder`, which is there and empty.

    Raises
    ------
    UserError
        When there are no images of the classes, or one is damaged or unlike the others.
    """
    folders, split = dataset.folders, dataset.split
    assert folders is not None
    if folders.masks is not None:
        from landbalance.tile.masks import tile_masks  # which reads images by this module

        tile_masks(name, dataset, source, folder)
        return
    root = source / folders.path
    found = _images(root)
    report_values({value: len(paths) for value, paths in found.items()}, dataset.classes, str(root), "images")
    index = class_index(dataset.classes)
    labelled = [(path, index[value]) for value, paths in found.items() if value in index for path in paths]
    if not labelled:
        raise UserError(f"{root}: the folders of the classes hold no images ({', '.join(sorted(SUFFIXES))}).")
    splits = draw_samples(
        np.array([label for _, label in labelled]), (split.train, split.validation, split.test), split.seed
    )
    first = read_image(labelled[0][0], folders)
    if first.shape[1] != first.shape[2]:
        raise UserError(f"{labelled[0][0]}: {_size(first)} pixels; images must be as high as wide.")
    store = Store(folder, first.shape, first.dtype, (), len(dataset.classes))
    everywhere = np.ones(first.shape[1:], np.bool_)
    rows: list[dict[str, Any]] = []
    for (path, label), number in zip(
        tracked(labelled, f"tile {name}", len(labelled), "image"), splits.tolist(), strict=True
    ):
        image = read_image(path, folders)
        _require_alike(path, image, labelled[0][0], first)
        answer = np.array(label, np.uint8)
        store.append(image, answer, number, everywhere, label_counts(answer, len(dataset.classes)))
        rows.append(
            {
                "tile": len(rows),
                "source": path.relative_to(source).as_posix(),
                "height": image.shape[1],
                "width": image.shape[2],
                "split": SPLITS[number],
                "label": label,
                "labelled": everywhere.size,
            }
        )
    store.flush()
    log_split(store, dataset)
    write_index(folder, rows, None)
    info = write_statistics(store, dataset, None, 0.0)
    _log.info("%s: %d images of %s pixels", name, info.tiles, _size(first))


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
    others = Counter(path.suffix.lower() or "(none)" for path in root.glob("*/*") if path.is_file())
    left_out = {suffix: count for suffix, count in others.items() if suffix not in SUFFIXES}
    if left_out:
        _log.warning("%s: files left out, by suffix: %s", root, left_out)
    return found


def read_image(path: Path, folders: Folders | None) -> NDArray[Any]:
    """Return an image as (bands, height, width), with the bands that `folders` names where it is given."""
    try:
        # The option makes errors of what libjpeg only warns of, such as damage inside a JPEG.
        with rasterio.Env(GDAL_ERROR_ON_LIBJPEG_WARNING=True), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path) as file:
                # By way of float64, which forces GDAL to read block by block: read in one go, a PNG that
                # ends too soon gives noise and no error.
                image: NDArray[Any] = file.read(out_dtype=np.float64).astype(file.dtypes[0])
    except RasterioError as error:
        cause = " ".join(str(error.__cause__ or error).split())
        raise UserError(f"{path}: cannot be read: damaged, cut off or no image ({cause}). Replace it.") from error
    if folders is not None and len(image) != len(folders.bands):
        raise UserError(
            f"{path}: has {len(image)} bands; folders.bands names {len(folders.bands)}: {', '.join(folders.bands)}."
        )
    return image


def _require_alike(path: Path, image: NDArray[Any], first_path: Path, first: NDArray[Any]) -> None:
    if image.shape != first.shape or image.dtype != first.dtype:
        raise UserError(
            f"{path}: {_size(image)} pixels of {image.dtype}; {first_path} and the images before have "
            f"{_size(first)} of {first.dtype}, and all must be alike. Resize or remove it."
        )


def _size(image: NDArray[Any]) -> str:
    return f"{image.shape[2]} × {image.shape[1]}"
