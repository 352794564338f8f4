"""The files that a scene's tiles are made of, and whether they are what they were."""

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rasterio
from rasterio.errors import RasterioError

from landbalance.config import Dataset, RasterLabels
from landbalance.config.scenes import band_file
from landbalance.files import files_in, read_json
from landbalance.raster import scene_paths


def file_states(dataset: Dataset, source: Path, scene: str) -> list[list[Any]]:
    """Return path, bytes and checksum of the files that a scene is made of, as the download stage noted them.

    Of a file that it did not note, put there by hand, the time of change stands for the checksum.

    Parameters
    ----------
    source : Path
        The folder that the download stage filled.
    """
    manifest, states = source / "manifest.json", []
    parts = read_json(manifest)["sources"] if manifest.is_file() else []
    noted = [[record["path"], record["bytes"], record["sha256"]] for part in parts for record in part["files"]]
    for path in _named(dataset, source, scene):
        # However the configuration spells it: ./S2//B02.tif, X.SAFE/.
        name = posixpath.normpath(os.path.relpath(path, source))
        of_file = [state for state in noted if _belongs(state[0], name)]
        if not any(state[0] == name or state[0].startswith(f"{name}/") for state in of_file):
            of_file += _on_disk(path, name)
        states += of_file
    return [list(state) for state in sorted({tuple(state) for state in states}, key=str)]


def _named(dataset: Dataset, source: Path, scene: str) -> Iterator[Path]:
    """Yield the files and folders that a scene's settings name, and those that such a raster refers to."""
    settings, labels = dataset.scenes[scene], dataset.labels
    rasters = [] if settings.product is not None else scene_paths(settings, source)
    if settings.product is not None:
        yield source / settings.product
    if settings.mask is not None and (file := source / band_file(settings.mask.band)[0]).exists():
        rasters.append(file)  # else it is one of the product's own
    if labels is not None and (name := settings.labels or labels.path) is not None:
        if isinstance(labels, RasterLabels):
            rasters.append(source / name)
        else:
            yield source / name
    yield from _with_references(rasters)


def _with_references(rasters: list[Path]) -> list[Path]:
    """Return files and all that they refer to, as a VRT does, in turn."""
    found = [Path(os.path.abspath(path)) for path in rasters]
    for path in found:  # it grows
        try:
            with rasterio.open(path) as raster:
                others = [Path(os.path.abspath(name)) for name in raster.files]
        except RasterioError:
            continue  # said when it is read
        found += [other for other in dict.fromkeys(others) if other not in found and other.is_file()]
    return found


def _belongs(path: str, named: str) -> bool:
    """Return whether a file is the one named, lies below it, or beside it (b.tif.aux.xml, b.prj)."""
    return path == named or path.startswith((f"{named}/", f"{_stem(named)}."))


def _stem(named: str) -> str:
    folder, name = posixpath.split(named)
    return posixpath.join(folder, name.partition(".")[0])


def _on_disk(path: Path, name: str) -> list[list[Any]]:
    """Return path, bytes and time of change of what lies at `path` or beside it; `name` is the path to note."""
    if path.is_dir():
        found = {f"{name}/{item.relative_to(path).as_posix()}": item for item in files_in(path)}
    else:
        folder = posixpath.dirname(name)
        beside = path.parent.iterdir() if path.parent.is_dir() else []
        found = {posixpath.join(folder, item.name): item for item in beside if item.is_file()}
    states = {key: item.stat() for key, item in found.items() if _belongs(key, name)}
    return [[key, state.st_size, state.st_mtime_ns] for key, state in states.items()]
