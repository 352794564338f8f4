"""Landsat Collection 2 products, levels 1 and 2, as USGS delivers them.

Formulas: Landsat 8-9 Collection 2 Level 2 Science Product Guide (LSDS-1619), Landsat 8 Data Users Handbook
(LSDS-1574), section 5. Reflectance at the top of the atmosphere is divided by the sine of the sun's elevation.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from landbalance.errors import UserError
from landbalance.raster.metadata import number, parsed
from landbalance.raster.sources import REFLECTANCE, BandFile, Conversion, Product, ProductFiles

METADATA = re.compile(r"_MTL\.(json|xml|txt)$")
_KELVIN = 100
_RADIANCE = 1000
_BAND = re.compile(r"FILE_NAME_BAND_(\w+)$")


def landsat(files: ProductFiles, metadata: str) -> Product:
    """Return the product that the file `metadata` describes.

    Reflective bands hold reflectance × 10,000, a surface temperature kelvin × 100, a thermal band of level 1
    radiance (W m⁻² sr⁻¹ µm⁻¹) × 1000.

    Raises
    ------
    UserError
        When the metadata are damaged, or not of Collection 2.
    """
    where = str(files.path / metadata)
    sections = _sections(files.text(metadata), metadata, where)
    contents, image = sections.get("PRODUCT_CONTENTS", {}), sections.get("IMAGE_ATTRIBUTES", {})
    if str(contents.get("COLLECTION_NUMBER", "")).lstrip("0") != "2":
        raise UserError(f"{where}: not of Landsat Collection 2, as is needed. Order the scene anew from USGS.")
    identity = str(contents.get("LANDSAT_PRODUCT_ID", ""))
    level = str(contents.get("PROCESSING_LEVEL", ""))[:2]
    rescaling = _rescaling(sections, level, where)
    folder = metadata[: metadata.rfind("/") + 1]
    there = {name for name in files.names if name.startswith(folder)}
    bands, quality = {}, {}
    for key, value in contents.items():
        inner, name = f"{folder}{value}", str(value).removeprefix(f"{identity}_").rsplit(".", 1)[0]
        if not key.startswith("FILE_NAME_") or inner not in there:
            continue
        place = (name, files.path / inner, files.opened(inner), 1)
        if (match := _BAND.match(key)) and match[1] in rescaling:
            bands[name] = BandFile(*place, 0.0, rescaling[match[1]])
        elif "QUALITY" in key and inner.upper().endswith(".TIF"):
            quality[name] = BandFile(*place)
    spacecraft = str(image.get("SPACECRAFT_ID", "LANDSAT")).replace("_", " ").title()
    acquired = f"{image.get('DATE_ACQUIRED')} {str(image.get('SCENE_CENTER_TIME', ''))[:5]} UTC, {spacecraft}"
    title = f"Landsat Collection 2 {level}"
    return Product(title, f"{acquired}, level {level.removeprefix('L')}", bands, quality)


def _rescaling(sections: Mapping[str, Mapping[str, Any]], level: str, where: str) -> dict[str, Conversion]:
    """Return how the numbers of each band become values, by the band's name in the metadata."""
    if level == "L2":
        reflectance = _factors(sections, "LEVEL2_SURFACE_REFLECTANCE_PARAMETERS", "REFLECTANCE", REFLECTANCE, where)
        kelvin = _factors(sections, "LEVEL2_SURFACE_TEMPERATURE_PARAMETERS", "TEMPERATURE", _KELVIN, where)
        return reflectance | kelvin
    elevation = sections.get("IMAGE_ATTRIBUTES", {}).get("SUN_ELEVATION")
    sine = math.sin(math.radians(number(elevation, "SUN_ELEVATION", where)))
    if sine <= 0:
        raise UserError(f"{where}: the sun stood below the horizon (SUN_ELEVATION {elevation}): no reflectance.")
    radiance = _factors(sections, "LEVEL1_RADIOMETRIC_RESCALING", "RADIANCE", _RADIANCE, where)
    reflectance = _factors(sections, "LEVEL1_RADIOMETRIC_RESCALING", "REFLECTANCE", REFLECTANCE / sine, where)
    return radiance | reflectance


def _factors(
    sections: Mapping[str, Mapping[str, Any]], section: str, quantity: str, unit: float, where: str
) -> dict[str, Conversion]:
    found = {}
    for key, value in sections.get(section, {}).items():
        if match := re.match(rf"{quantity}_MULT_BAND_(\w+)$", key):
            add = f"{quantity}_ADD_BAND_{match[1]}"
            scale, offset = number(value, key, where), number(sections[section].get(add), add, where)
            found[match[1]] = Conversion(unit * scale, unit * offset)
    return found


def _sections(text: bytes, name: str, where: str) -> dict[str, dict[str, Any]]:
    """Return the groups of the metadata, from any of their three forms."""
    if name.endswith(".xml"):
        root = parsed(text, where)
        return {group.tag: {item.tag: (item.text or "").strip() for item in group} for group in root}
    try:
        if name.endswith(".json"):
            whole = json.loads(text)
            return {key: dict(group) for key, group in whole["LANDSAT_METADATA_FILE"].items()}
        return _groups(text.decode("utf-8"))
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{where}: the product's metadata are damaged ({error!r}). Replace the product.") from error


def _groups(text: str) -> dict[str, dict[str, Any]]:
    """Return the groups of a text in the object description language."""
    groups: dict[str, dict[str, Any]] = {}
    group: dict[str, Any] = {}
    for line in text.splitlines():
        key, equals, value = (part.strip() for part in line.partition("="))
        if key == "GROUP":
            group = groups.setdefault(value, {})
        elif equals and key != "END_GROUP":
            group[key] = value.strip('"')
    return groups
