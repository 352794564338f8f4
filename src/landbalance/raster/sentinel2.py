"""Sentinel-2 products, level 1C and 2A, as ESA delivers them (folders called .SAFE).

Product specification: S2-PDGS-TAS-DI-PSD, versions 14 and 15. Since processing baseline 04.00 all numbers are
raised by 1000; the metadata say so by offsets (RADIO_ADD_OFFSET, BOA_ADD_OFFSET) that older products lack.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from xml.etree import ElementTree

from landbalance.errors import UserError
from landbalance.raster.metadata import number, parsed
from landbalance.raster.sources import REFLECTANCE, BandFile, Conversion, Product, ProductFiles

METADATA = re.compile(r"(^|/)MTD_MSIL(1C|2A)\.xml$")
_BAND = re.compile(r"/IMG_DATA/(?:R\d\dm/)?[^/]*_(B\d\d|B8A|SCL)(?:_(\d\d)m)?\.jp2$")
_NAMES = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12")
"""By the numbers that the metadata give the bands."""


def sentinel2(files: ProductFiles, metadata: str) -> Product:
    """Return the product that the file `metadata` describes.

    Of a band that is there in several pixel sizes the finest is taken.

    Raises
    ------
    UserError
        When the metadata are damaged or lack what is needed.
    """
    path = files.path / metadata
    root = parsed(files.text(metadata), str(path))
    level = "L1C" if metadata.endswith("1C.xml") else "L2A"
    quantification = _number(root, "QUANTIFICATION_VALUE" if level == "L1C" else "BOA_QUANTIFICATION_VALUE", str(path))
    offsets = dict(_offsets(root, "RADIO_ADD_OFFSET" if level == "L1C" else "BOA_ADD_OFFSET", str(path)))
    scale = REFLECTANCE / quantification
    bands, quality = {}, {}
    for name, inner in _images(files, str(PurePosixPath(metadata).parent)).items():
        place = (name, files.path / inner, files.opened(inner), 1)
        if name == "SCL":
            quality[name] = BandFile(*place)
        else:
            bands[name] = BandFile(*place, 0.0, Conversion(scale, scale * offsets.get(name, 0.0)))
    start = _text(root, "PRODUCT_START_TIME", str(path))
    spacecraft = next(iter(_texts(root, "SPACECRAFT_NAME")), "Sentinel-2")
    acquired = f"{start[:10]} {start[11:16]} UTC, {spacecraft}, level {level.removeprefix('L')}"
    return Product(f"Sentinel-2 {level}", acquired, dict(sorted(bands.items())), quality)


def _images(files: ProductFiles, folder: str) -> dict[str, str]:
    """Return the file of each band with the smallest pixels."""
    finest: dict[str, tuple[int, str]] = {}
    inside = "" if folder == "." else f"{folder}/"
    for name in files.names:
        if not (name.startswith(inside) and (match := _BAND.search(name))):
            continue
        band, size = match[1], int(match[2] or 0)
        if band in finest and finest[band][0] == size:
            raise UserError(
                f"{files.path}: has several files of band {band} ({finest[band][1]}, {name}): a product of several "
                "tiles, or several products. Take them one by one."
            )
        if band not in finest or size < finest[band][0]:
            finest[band] = (size, name)
    return {band: name for band, (_, name) in finest.items()}


def _elements(root: ElementTree.Element, tag: str) -> Iterator[ElementTree.Element]:
    """Yield the elements called so, in whatever namespace."""
    return (item for item in root.iter() if item.tag.rsplit("}", 1)[-1] == tag)


def _texts(root: ElementTree.Element, tag: str) -> list[str]:
    return [(item.text or "").strip() for item in _elements(root, tag)]


def _text(root: ElementTree.Element, tag: str, where: str) -> str:
    if not (found := _texts(root, tag)):
        raise UserError(f"{where}: {tag} is missing; the product's metadata are cut off. Replace the product.")
    return found[0]


def _number(root: ElementTree.Element, tag: str, where: str) -> float:
    return number(_text(root, tag, where), tag, where)


def _offsets(root: ElementTree.Element, tag: str, where: str) -> Iterator[tuple[str, float]]:
    """Yield each band's name and what its numbers must be lowered or raised by."""
    for item in _elements(root, tag):
        band = item.get("band_id", "")
        if not (band.isdigit() and int(band) < len(_NAMES)):
            raise UserError(f"{where}: {tag} is about a band {band!r}, which there is not. Replace the product.")
        yield _NAMES[int(band)], number(item.text, tag, where)
