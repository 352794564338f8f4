"""Synthetic products with the agencies' names of folders and files and the structure of their metadata."""

import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.transform import from_origin

LEFT, TOP = 600_000.0, 5_700_000.0
SIDE = 240
"""Metres of ground that a product covers: 24 pixels of 10 m."""

SENTINEL2_BANDS = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12")
_SIZES = dict(zip(SENTINEL2_BANDS, (60, 10, 10, 10, 20, 20, 20, 10, 20, 60, 60, 20, 20), strict=True))


def write(path: Path, values: NDArray[Any], size: float, crs: str = "EPSG:32633", **options: Any) -> None:
    """Write a raster of one band whose pixels have the given size, from the products' corner on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = values.shape
    place = {"crs": crs, "transform": from_origin(LEFT, TOP, size, size), "count": 1, "dtype": values.dtype, **options}
    with rasterio.open(path, "w", height=height, width=width, **place) as file:
        file.write(values, 1)


def _jp2(path: Path, values: NDArray[Any], size: float) -> None:
    write(path, values, size, driver="JP2OpenJPEG", QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)


def sentinel2(
    folder: Path,
    level: str,
    baseline: str,
    numbers: Mapping[str, NDArray[np.uint16]],
    offsets: Mapping[str, int] | None = None,
    scl: NDArray[np.uint8] | None = None,
    quantification: int = 10_000,
    start: str = "2022-05-12T10:20:21.024Z",
) -> Path:
    """Write a Sentinel-2 product, and return its folder.

    Parameters
    ----------
    folder : Path
        Where it appears.
    level : str
        L1C or L2A.
    baseline : str
        Processing baseline, e.g. 04.00.
    numbers : mapping
        Numbers of each band in 10 m, 20 m and 60 m pixels as the band has them; of level 2A also coarser copies are
        written, as ESA does.
    offsets : mapping or None
        What the metadata say of each band; nothing when None, as before baseline 04.00.
    scl : ndarray or None
        Scene classification in 20 m pixels.
    """
    stamp = start[:19].replace("-", "").replace(":", "")
    name = f"S2B_MSI{level}_{stamp}_N{baseline.replace('.', '')}_R065_T33UUU_{stamp[:8]}T132015.SAFE"
    granule = f"GRANULE/{level}_T33UUU_A027061_{stamp}"
    listed = []
    for band, values in numbers.items():
        for size in sorted({_SIZES[band], *((20, 60) if level == "L2A" else ())}):
            if size < _SIZES[band]:
                continue
            step = size // _SIZES[band]
            place = f"IMG_DATA/T33UUU_{stamp}_{band}"
            if level == "L2A":
                place = f"IMG_DATA/R{size}m/T33UUU_{stamp}_{band}_{size}m"
            # A coarser copy is another number, so that a test sees which one was taken.
            _jp2(folder / name / granule / f"{place}.jp2", values[::step, ::step] + (step > 1), size)
            listed.append(f"{granule}/{place}")
    if scl is not None:
        for size, values in ((20, scl), (60, scl[::3, ::3])):
            place = f"IMG_DATA/R{size}m/T33UUU_{stamp}_SCL_{size}m"
            _jp2(folder / name / granule / f"{place}.jp2", values, size)
    text = _sentinel2_metadata(level, baseline, name, listed, offsets, quantification, start)
    (folder / name / f"MTD_MSI{level}.xml").write_text(text, encoding="utf-8")
    (folder / name / granule / "MTD_TL.xml").write_text("<n1:Level_Tile_ID/>", encoding="utf-8")
    (folder / name / "manifest.safe").write_text("<xfdu:XFDU/>", encoding="utf-8")
    return folder / name


def _sentinel2_metadata(
    level: str, baseline: str, name: str, listed: list[str], offsets: Mapping[str, int] | None, quantification: int,
    start: str,
) -> str:  # fmt: skip
    user, image = ("1C", "Product_Image_Characteristics") if level == "L1C" else ("2A", "Product_Image_Characteristics")
    tag = "RADIO_ADD_OFFSET" if level == "L1C" else "BOA_ADD_OFFSET"
    group = "Radiometric_Offset_List" if level == "L1C" else "BOA_ADD_OFFSET_VALUES_LIST"
    added = "".join(
        f'<{tag} band_id="{SENTINEL2_BANDS.index(band)}">{value}</{tag}>' for band, value in (offsets or {}).items()
    )
    numbers = f'<QUANTIFICATION_VALUE unit="none">{quantification}</QUANTIFICATION_VALUE>'
    if level == "L2A":
        numbers = (
            "<QUANTIFICATION_VALUES_LIST>"
            f'<BOA_QUANTIFICATION_VALUE unit="none">{quantification}</BOA_QUANTIFICATION_VALUE>'
            '<AOT_QUANTIFICATION_VALUE unit="none">1000.0</AOT_QUANTIFICATION_VALUE>'
            '<WVP_QUANTIFICATION_VALUE unit="cm">1000.0</WVP_QUANTIFICATION_VALUE></QUANTIFICATION_VALUES_LIST>'
        )
    files = "".join(f"<IMAGE_FILE>{escape(path)}</IMAGE_FILE>" for path in listed)
    return f"""<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<n1:Level-{user}_User_Product xmlns:n1="https://psd-14.sentinel2.eo.esa.int/PSD/User_Product_Level-{user}.xsd">
<n1:General_Info><Product_Info>
<PRODUCT_START_TIME>{start}</PRODUCT_START_TIME><PRODUCT_STOP_TIME>{start}</PRODUCT_STOP_TIME>
<PRODUCT_URI>{name}</PRODUCT_URI><PROCESSING_LEVEL>Level-{user}</PROCESSING_LEVEL>
<PROCESSING_BASELINE>{baseline}</PROCESSING_BASELINE>
<Datatake><SPACECRAFT_NAME>Sentinel-2B</SPACECRAFT_NAME></Datatake>
<Product_Organisation><Granule_List><Granule imageFormat="JPEG2000">{files}</Granule></Granule_List>
</Product_Organisation></Product_Info>
<{image}>
<Special_Values><SPECIAL_VALUE_TEXT>NODATA</SPECIAL_VALUE_TEXT><SPECIAL_VALUE_INDEX>0</SPECIAL_VALUE_INDEX>
</Special_Values>{numbers}{f"<{group}>{added}</{group}>" if added else ""}
</{image}></n1:General_Info></n1:Level-{user}_User_Product>
"""


def zipped(product: Path) -> Path:
    """Return the product in a zip archive, as ESA delivers it."""
    path = product.with_name(f"{product.name}.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(product.rglob("*")):
            archive.write(file, file.relative_to(product.parent))
    return path


def tarred(product: Path) -> Path:
    """Return the product in a tar archive, as USGS delivers it: the files at the top."""
    path = product.with_name(f"{product.name}.tar")
    with tarfile.open(path, "w") as archive:
        for file in sorted(product.iterdir()):
            archive.add(file, file.name)
    return path


def landsat(
    folder: Path,
    level: str,
    numbers: Mapping[str, NDArray[np.uint16]],
    qa_pixel: NDArray[np.uint16] | None = None,
    metadata: tuple[str, ...] = ("json", "xml", "txt"),
    sun_elevation: float = 52.5,
) -> Path:
    """Write a Landsat 9 Collection 2 product, and return its folder.

    Parameters
    ----------
    level : str
        L1TP or L2SP.
    numbers : mapping
        Of each band, in 30 m pixels (B8 in 15 m): B2, B10 of level 1, SR_B2, ST_B10 of level 2.
    qa_pixel : ndarray or None
        Codes of QA_PIXEL.
    metadata : tuple of str
        The forms in which the metadata are there.
    """
    identity = f"LC09_{level}_193024_20220512_20220514_02_T1"
    path = folder / identity
    contents = {"ORIGIN": "Image courtesy of the U.S. Geological Survey", "LANDSAT_PRODUCT_ID": identity,
                "PROCESSING_LEVEL": level, "COLLECTION_NUMBER": "02", "COLLECTION_CATEGORY": "T1"}  # fmt: skip
    for band, values in numbers.items():
        number = band.removeprefix("SR_").removeprefix("B")
        contents[f"FILE_NAME_BAND_{number}"] = f"{identity}_{band}.TIF"
        write(path / f"{identity}_{band}.TIF", values, 15 if band == "B8" else 30, driver="GTiff", nodata=0)
    if qa_pixel is not None:
        contents["FILE_NAME_QUALITY_L1_PIXEL"] = f"{identity}_QA_PIXEL.TIF"
        write(path / f"{identity}_QA_PIXEL.TIF", qa_pixel, 30, driver="GTiff", nodata=1)
    contents["FILE_NAME_METADATA_ODL"] = f"{identity}_MTL.txt"
    level1 = {}
    for number in range(1, 12):
        level1[f"RADIANCE_MULT_BAND_{number}"] = "3.8000E-04" if number >= 10 else "1.2541E-02"
        level1[f"RADIANCE_ADD_BAND_{number}"] = "0.10000" if number >= 10 else "-62.70602"
        if number < 10:
            level1[f"REFLECTANCE_MULT_BAND_{number}"] = "2.0000E-05"
            level1[f"REFLECTANCE_ADD_BAND_{number}"] = "-0.100000"
    groups: dict[str, dict[str, str]] = {
        "PRODUCT_CONTENTS": contents,
        "IMAGE_ATTRIBUTES": {
            "SPACECRAFT_ID": "LANDSAT_9", "SENSOR_ID": "OLI_TIRS", "DATE_ACQUIRED": "2022-05-12",
            "SCENE_CENTER_TIME": "10:02:11.1234560Z", "SUN_ELEVATION": f"{sun_elevation:.8f}",
        },
    }  # fmt: skip
    if level.startswith("L2"):
        groups["LEVEL2_SURFACE_REFLECTANCE_PARAMETERS"] = {
            key: value
            for number in range(1, 8)
            for key, value in (
                (f"REFLECTANCE_MULT_BAND_{number}", "2.75e-05"), (f"REFLECTANCE_ADD_BAND_{number}", "-0.2"),
            )
        }  # fmt: skip
        groups["LEVEL2_SURFACE_TEMPERATURE_PARAMETERS"] = {
            "TEMPERATURE_MULT_BAND_ST_B10": "0.00341802", "TEMPERATURE_ADD_BAND_ST_B10": "149.0",
        }  # fmt: skip
    groups["LEVEL1_RADIOMETRIC_RESCALING"] = level1
    for form in metadata:
        (path / f"{identity}_MTL.{form}").write_text(_landsat_metadata(groups, form), encoding="utf-8")
    return path


def _landsat_metadata(groups: dict[str, dict[str, str]], form: str) -> str:
    if form == "json":
        return json.dumps({"LANDSAT_METADATA_FILE": groups}, indent=2)
    if form == "xml":
        parts = (
            f"<{name}>{''.join(f'<{key}>{escape(value)}</{key}>' for key, value in group.items())}</{name}>"
            for name, group in groups.items()
        )
        return f'<?xml version="1.0" encoding="UTF-8"?><LANDSAT_METADATA_FILE>{"".join(parts)}</LANDSAT_METADATA_FILE>'
    lines = ["GROUP = LANDSAT_METADATA_FILE"]
    for name, group in groups.items():
        quoted = (
            f"    {key} = {value}" if value[:1] in "0123456789-" else f'    {key} = "{value}"'
            for key, value in group.items()
        )
        lines += [f"  GROUP = {name}", *quoted, f"  END_GROUP = {name}"]
    return "\n".join([*lines, "END_GROUP = LANDSAT_METADATA_FILE", "END", ""])
