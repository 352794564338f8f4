"""Which files hold a scene's bands and its mask, and when it was taken: also out of an agency's product."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import rasterio
from rasterio.errors import RasterioError

from landbalance.config.scenes import Scene, band_file
from landbalance.errors import UserError
from landbalance.raster import landsat, sentinel2
from landbalance.raster.sources import BandFile, Conversion, Product, ProductFiles, damaged, require_file

_PARENTS = 5
"""How far above a band of a product its metadata lie."""


def band_files(scene: Scene, source: Path) -> list[BandFile]:
    """Return the file of each band of a scene, in its order.

    Parameters
    ----------
    source : Path
        Folder that the scene's paths begin at.

    Raises
    ------
    UserError
        When a file or band is missing, or the product cannot be read.
    """
    if scene.product is not None:
        return _of_product(scene, open_product(source / scene.product))
    if scene.stack is not None:
        files = _of_stack(scene, source / scene.stack)
    else:
        places = {name: _separate(reference, source, f"band {name}") for name, reference in scene.bands.items()}
        files = [replace(file, name=name) for name, file in places.items()]
    if not scene.converted:
        return files
    conversion = Conversion(1.0 if scene.scale is None else scene.scale, scene.offset or 0.0)
    return [replace(file, conversion=conversion) for file in files]


def mask_file(scene: Scene, source: Path) -> BandFile | None:
    """Return the raster whose codes say which pixels are missing; None where the scene has no mask."""
    if scene.mask is None:
        return None
    name = scene.mask.band
    quality = open_product(source / scene.product).quality if scene.product is not None else {}
    if name in quality:
        return quality[name]
    own = f"; the product's own masks: {', '.join(quality) or 'none'}" if scene.product is not None else ""
    return _separate(name, source, f"mask.band of the scene{own}")


def acquired(scene: Scene, source: Path) -> str | None:
    """Return when a scene was taken: by the configuration, else by its product's metadata."""
    if scene.acquired is not None or scene.product is None:
        return scene.acquired
    return open_product(source / scene.product).acquired


def scene_paths(scene: Scene, source: Path) -> list[Path]:
    """Return the files of a scene, or its product."""
    whole = scene.product or scene.stack
    if whole is not None:
        return [source / whole]
    return list(dict.fromkeys(source / band_file(reference)[0] for reference in scene.bands.values()))


def open_product(path: Path) -> Product:
    """Return the product in a folder or archive.

    Raises
    ------
    UserError
        When it is none that is known, or its metadata are damaged.
    """
    files = ProductFiles.of(path)
    if found := _metadata(files):
        name, read = found
        return read(files, name)
    raise UserError(
        f"{path}: holds no metadata of a product (MTD_MSIL1C.xml or MTD_MSIL2A.xml of Sentinel-2, …_MTL.json, .xml or "
        ".txt of Landsat). Name the product's own folder or archive, or list the scene's files as `bands`."
    )


def is_product(path: Path) -> bool:
    """Return whether a folder or archive is a product, as far as a look at the names of its files tells."""
    archive = path.is_file() and path.suffix.lower() in (".zip", ".tar")
    return (archive or path.is_dir()) and _metadata(ProductFiles.of(path)) is not None


def product_above(path: Path) -> Path | None:
    """Return the product that a file or folder is a part of; None where it is not."""
    for folder in list(path.absolute().parents)[:_PARENTS]:
        names = [item.name for item in folder.iterdir()] if folder.is_dir() else []
        if any(sentinel2.METADATA.search(name) for name in names):
            return folder
    return None


def _metadata(files: ProductFiles) -> tuple[str, Callable[[ProductFiles, str], Product]] | None:
    """Return the metadata's file and what reads it; None where there are none."""
    for pattern, read in ((sentinel2.METADATA, sentinel2.sentinel2), (landsat.METADATA, landsat.landsat)):
        if names := [name for name in files.names if pattern.search(name)]:
            return min(names, key=lambda name: (name.count("/"), name)), read
    return None


def _of_product(scene: Scene, product: Product) -> list[BandFile]:
    wrong = [reference for reference in scene.bands.values() if reference not in product.bands]
    if wrong:
        raise UserError(
            f"{scene.product}: {product.title} has no band {', '.join(wrong)} there; it has: "
            f"{', '.join(product.bands) or 'none'}. Correct the scene's `bands`."
        )
    return [replace(product.bands[reference], name=name) for name, reference in scene.bands.items()]


def _of_stack(scene: Scene, path: Path) -> list[BandFile]:
    require_file(path, "the scene's stack")
    try:
        with rasterio.open(path) as raster:
            described = list(raster.descriptions)
    except RasterioError as error:
        raise damaged(path, "the scene's stack", error) from error
    found = []
    for name, reference in scene.bands.items():
        if not reference.isdigit() and described.count(reference) != 1:
            there = ", ".join(text or "(no name)" for text in described)
            raise UserError(
                f"{path}: {described.count(reference) or 'none'} of its bands is described as {reference} (band "
                f"{name}); they are: {there}. Correct the scene's `bands`, or give the band's number as a text."
            )
        number = int(reference) if reference.isdigit() else described.index(reference) + 1
        found.append(BandFile(name, path, str(path), number))
    return found


def _separate(reference: str, source: Path, what: str) -> BandFile:
    file, number = band_file(reference)
    require_file(source / file, what)
    return BandFile(reference, source / file, str(source / file), number)
