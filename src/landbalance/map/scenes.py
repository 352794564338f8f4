"""Scenes as a person names them for a bundle: a product, a stack with band names inside, a folder, name=file pairs."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rasterio
from rasterio.errors import RasterioError

from landbalance.config.scenes import Mask, Scene, band_file
from landbalance.errors import UserError
from landbalance.raster import acquired, is_product, mask_file, product_above

_log = logging.getLogger(__name__)

_MEND = "Name the files by hand: B02=file.tif,B03=stack.tif:2, …"
_RASTERS = (".tif", ".tiff", ".jp2", ".vrt", ".img")


@dataclass(frozen=True)
class NamedScene:
    """A scene to map; its files are absolute."""

    name: str
    scene: Scene


def named_scene(text: str, bands: Sequence[str], reflectance: bool = False, mask: Mask | None = None) -> NamedScene:
    """Return the scene that `text` names, with the bands that a model wants.

    Parameters
    ----------
    text : str
        ``stack.tif``, whose bands' descriptions are their names; ``folder``, in which each band has a file with its
        name as a word of the file's name; ``B02=blue.tif,B03=stack.tif:2``; or, with `reflectance`, a Sentinel-2 or
        Landsat product, whole.
    bands : sequence of str
        Names of the model's bands.
    reflectance : bool
        Whether the model was trained on products, whose metadata say what their numbers mean: then so are products
        read. Another model was trained on the numbers as they stand in the files.
    mask : Mask or None
        Which pixels are missing. Its band is the product's own, one that the scene has as it has the others, or a file.

    Raises
    ------
    UserError
        When a file or band is missing, or a band has several.
    """
    path = Path(text)
    if reflectance and is_product(path):
        return _product(path, bands, mask)
    wanted = [*bands, mask.band] if mask is not None else bands
    if path.is_dir():
        _refuse_part(path, reflectance)
        found, name = _in_folder(path, wanted), path.resolve().name
    elif path.is_file():
        found, name = _in_stack(path, wanted), path.stem
    elif "=" in text:
        found, name = _in_pairs(text), ""
        if reflectance:
            _log.warning("%s: the model was trained on reflectance × 10,000; the files must hold the same", text)
        name = Path(next(iter(found.values()))).stem
    else:
        raise UserError(f"{text}: no such file or folder. A scene is a file, a folder, or B02=file,B03=file:2, …")
    if missing := [band for band in bands if band not in found]:
        have = ", ".join(found) or "none of them"
        raise UserError(
            f"{text}: the model needs the bands {', '.join(missing)}, which are not there (found: {have}). {_MEND}"
        )
    chosen = {band: found[band] for band in bands}
    if mask is not None:
        mask = mask.at(found[mask.band]) if mask.band in found else _in_file(mask, text)
    return NamedScene(name, Scene(bands=chosen, mask=mask, acquired=_acquired([name, *chosen.values()])))


def _in_file(mask: Mask, scene: str) -> Mask:
    """Return a mask whose band is a file, with the file's whole path."""
    file, number = band_file(mask.band)
    if not Path(file).is_file():
        raise UserError(
            f"mask.band: {mask.band} is neither a band of {scene} nor a file. Name the raster of codes, e.g. "
            "clouds.tif or masks.tif:2."
        )
    return mask.at(f"{Path(file).absolute()}:{number}")


def _product(path: Path, bands: Sequence[str], mask: Mask | None) -> NamedScene:
    if mask is not None and Path(band_file(mask.band)[0]).is_file():
        mask = _in_file(mask, str(path))
    scene = Scene(product=str(path.absolute()), bands={band: band for band in bands}, mask=mask)
    mask_file(scene, Path())  # stops where there is none
    name = re.sub(r"(\.SAFE|\.zip|\.tar)+$", "", path.resolve().name)
    return NamedScene(name, scene.model_copy(update={"acquired": acquired(scene, Path())}))


def _refuse_part(folder: Path, reflectance: bool) -> None:
    """Stop where bands would be read without the product's metadata, which the model counts on."""
    whole = product_above(folder / "file")
    if reflectance and whole is not None:
        raise UserError(
            f"{folder}: is a part of the product {whole}, whose metadata say what its numbers mean; the model was "
            f"trained by such. Name {whole} instead."
        )


def _acquired(names: Sequence[str]) -> str | None:
    """Return the time that a file's name tells, as Sentinel-2 writes it: T33UUU_20170216T102101_B02."""
    for name in names:
        if match := re.search(r"(?<!\d)(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(?!\d)", Path(name).name):
            year, month, day, hour, minute, second = match.groups()
            return f"{year}-{month}-{day} {hour}:{minute}:{second} UTC"
    return None


def _in_stack(path: Path, bands: Sequence[str]) -> dict[str, str]:
    try:
        with rasterio.open(path) as raster:
            described, count = raster.descriptions, raster.count
    except RasterioError as error:
        raise UserError(f"{path}: cannot be read as a raster ({' '.join(str(error).split())}).") from error
    if not any(described):
        raise UserError(
            f"{path}: its {count} bands have no names (descriptions), so nothing says which is which; the model needs "
            f"{', '.join(bands)}. {_MEND}"
        )
    if repeated := sorted({name for name in described if name in bands and described.count(name) > 1}):
        raise UserError(f"{path}: several bands are called {', '.join(repeated)}. {_MEND}")
    return {name: f"{path.absolute()}:{number}" for number, name in enumerate(described, 1) if name}


def _in_folder(folder: Path, bands: Sequence[str]) -> dict[str, str]:
    """Return the file of each band: the one that has the band's name among the words of its own."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _RASTERS)
    found = {}
    for band in bands:
        wanted = band.lower()
        named = [path for path in files if wanted in re.split(r"[^a-z0-9]+", path.stem.lower())]
        if len(named) > 1:
            shown = ", ".join(str(path.relative_to(folder)) for path in named[:4])
            raise UserError(f"{folder}: several files could be band {band}: {shown}. {_MEND}")
        if named:
            found[band] = str(named[0].absolute())
    return found


def _in_pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, file = (part.strip() for part in pair.partition("="))
        if not (name and equals and file):
            raise UserError(f"{text}: found {pair or 'nothing'} where name=file is wanted. {_MEND}")
        if name in found:
            raise UserError(f"{text}: band {name} is given twice.")
        found[name] = str(Path(file).absolute())
    return found
