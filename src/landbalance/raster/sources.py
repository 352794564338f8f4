"""Where the bands of a scene stand: in files of their own, in a stack, or in a product as an agency delivers it."""

import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from landbalance.config.scenes import Stretch
from landbalance.errors import UserError

REFLECTANCE = 10_000
"""What a product's bands hold: reflectance times this, whatever the product's own numbers mean."""

_MOST_METADATA = 32 << 20
"""Bytes of metadata that are read at most: an archive may hold a file that swells."""


@dataclass(frozen=True)
class Conversion:
    """How the numbers of files become values: ``scale * number + offset``, whole numbers from 1 to 65535.

    0 stays free for missing pixels: so a reflectance of nothing or below counts as 0.0001.
    """

    scale: float
    offset: float

    def __call__(self, numbers: NDArray[Any]) -> NDArray[np.uint16]:
        """Return the values of `numbers`, those of NaN being of no matter."""
        return self._of_all[numbers] if numbers.dtype == np.uint16 else self._values(numbers)

    @cached_property
    def _of_all(self) -> NDArray[np.uint16]:
        """Return the values of all numbers of 16 bits: to look them up takes a quarter of the time."""
        return self._values(np.arange(1 << 16))

    def _values(self, numbers: NDArray[Any]) -> NDArray[np.uint16]:
        values = np.rint(numbers * np.float64(self.scale) + np.float64(self.offset))
        whole: NDArray[np.uint16] = np.nan_to_num(values.clip(1, 65535)).astype(np.uint16)
        return whole


def stretched(values: NDArray[Any], stretch: Stretch) -> NDArray[np.uint8]:
    """Return values as bytes: from `stretch`'s first number to its second become its third to its fourth.

    What lies beyond becomes the third or fourth, and nothing 0, which marks missing pixels.
    """
    first, last, low, high = stretch
    becomes = np.rint((values - np.float32(first)) * np.float32((high - low) / (last - first)) + np.float32(low))
    whole: NDArray[np.uint8] = np.clip(becomes, max(low, 1), high).astype(np.uint8)
    return whole


@dataclass(frozen=True)
class BandFile:
    """A band and the file that holds it.

    Parameters
    ----------
    name : str
        The band's name in the scene.
    path : Path
        For messages; of a file in an archive the archive's path and the file's own.
    opened : str
        What GDAL opens.
    number : int
        Number of the band in the file, from 1.
    nodata : float or None
        Value of missing pixels that the product knows of.
    conversion : Conversion or None
        None where the file's numbers are the values.
    """

    name: str
    path: Path
    opened: str
    number: int = 1
    nodata: float | None = None
    conversion: Conversion | None = None


@dataclass(frozen=True)
class Product:
    """A product of an agency.

    Parameters
    ----------
    title : str
        Its kind, for messages.
    acquired : str
        When it was taken.
    bands : mapping of str to BandFile
        By the agency's names.
    quality : mapping of str to BandFile
        Rasters of codes, for masks.
    """

    title: str
    acquired: str
    bands: Mapping[str, BandFile]
    quality: Mapping[str, BandFile] = field(default_factory=dict)


@dataclass(frozen=True)
class ProductFiles:
    """The files of a product: below a folder, or in a zip or tar archive."""

    path: Path
    names: list[str]
    """Paths inside the product, with slashes."""

    @classmethod
    def of(cls, path: Path) -> "ProductFiles":
        """Return the files at `path`.

        Raises
        ------
        UserError
            When there is nothing, or no folder or archive.
        """
        if path.is_dir():
            return cls(path, sorted(item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file()))
        if not path.exists():
            raise UserError(
                f"{path}: not found (the scene's product). Correct its path, or see that the dataset's `sources` bring "
                "it; an archive that is unpacked is there as its folder."
            )
        try:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    return cls(path, sorted(archive.namelist()))
            with tarfile.open(path, "r:") as tar:
                return cls(path, sorted(item.name.removeprefix("./") for item in tar if item.isfile()))
        except (zipfile.BadZipFile, tarfile.TarError, OSError) as error:
            raise UserError(
                f"{path}: no whole zip or tar archive ({error}). A product is a folder, a .zip or a .tar; unpack "
                "others first."
            ) from error

    def text(self, name: str) -> bytes:
        """Return what stands in a file of metadata.

        Raises
        ------
        UserError
            When it cannot be read, or is larger than any metadata are.
        """
        try:
            with ExitStack() as stack:
                text = self._file(name, stack).read(_MOST_METADATA + 1)
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, OSError, RuntimeError) as error:
            raise UserError(f"{self.path / name}: cannot be read ({error}). Replace the product.") from error
        if len(text) > _MOST_METADATA:
            raise UserError(
                f"{self.path / name}: larger than {_MOST_METADATA >> 20} MiB, which metadata of a product never are. "
                "Replace the product."
            )
        return text

    def _file(self, name: str, stack: ExitStack) -> IO[bytes]:
        if self.path.is_dir():
            return stack.enter_context((self.path / name).open("rb"))
        if zipfile.is_zipfile(self.path):
            return stack.enter_context(stack.enter_context(zipfile.ZipFile(self.path)).open(name))
        tar = stack.enter_context(tarfile.open(self.path, "r:"))  # noqa: SIM115, the stack closes it
        found = tar.extractfile(next(item for item in tar if item.name.removeprefix("./") == name))
        assert found is not None, "names are those of files"
        return found

    def opened(self, name: str) -> str:
        """Return what GDAL opens to read a file."""
        if self.path.is_dir():
            return str((self.path / name).absolute())
        kind = "vsizip" if zipfile.is_zipfile(self.path) else "vsitar"
        return f"/{kind}/{self.path.absolute()}/{name}"


def require_file(path: Path, what: str) -> None:
    """Stop when there is no such file; `what` says what it was to be."""
    if not path.is_file():
        raise UserError(
            f"{path}: not found ({what}). Correct its path in the scene, or see that the dataset's `sources` (and "
            "their `members`) bring it."
        )


def damaged(path: Path, what: str, error: Exception) -> UserError:
    """Return what to say of a raster that GDAL cannot read; `what` says what it was to be."""
    cause = error.__cause__ or error
    return UserError(
        f"{path}: cannot be read ({what}): the file is damaged, cut off or no raster "
        f"({' '.join(str(cause).split())}). Replace {path.resolve()} by a whole copy; if the download "
        "stage fetched it, delete the dataset's download folder and run that stage again."
    )
