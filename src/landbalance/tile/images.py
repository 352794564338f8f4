"""Images as they come in folders: read, checked and described. Light, for the processes that decode."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError

from landbalance.errors import UserError
from landbalance.tile.statistics import moments


@dataclass(frozen=True)
class ExpectedImage:
    """What all images have: the number of bands that the configuration names, else what the first one has."""

    path: Path
    bands: Sequence[str]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def decoded_images(expected: ExpectedImage, paths: Sequence[Path]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return some images, which all have to be as expected, and their `statistics.moments`."""
    images = np.empty((len(paths), *expected.shape), expected.dtype)
    of_images = np.empty((len(paths), 2, expected.shape[0]))
    everywhere = np.ones(expected.shape[1:], np.bool_)
    with _strict_gdal():
        for place, path in enumerate(paths):
            image = _read(path, expected.bands)
            if image.shape != expected.shape or image.dtype != expected.dtype:
                raise UserError(
                    f"{path}: {size_of(image)} pixels of {image.dtype}; {expected.path} and the images before have "
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


def size_of(image: NDArray[Any]) -> str:
    """Return width × height, for messages."""
    return f"{image.shape[2]} × {image.shape[1]}"
