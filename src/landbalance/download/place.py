"""Put the file of a source into the dataset's folder: unpacked, moved or linked."""

import logging
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from landbalance.config import Source
from landbalance.config.data import Array
from landbalance.download.archives import is_archive
from landbalance.download.arrays import write_raster
from landbalance.download.cache import share
from landbalance.download.fetch import Fetched, checked
from landbalance.download.manifest import (
    MANIFEST,
    FileRecord,
    SourceRecord,
    linked_records,
    read_error,
    source_record,
)
from landbalance.download.unpack import unpack
from landbalance.errors import UserError

_log = logging.getLogger(__name__)


def place_fetched(source: Source, fetched: Fetched, folder: Path, key: str) -> SourceRecord:
    """Unpack a fetched file into `folder`, or put it there; it also stays where it lies.

    Raises
    ------
    UserError
        When it is no sound archive, or its name is taken.
    """
    name, file = target_name(source, key), fetched.place.file
    if source.array is not None:
        records = [_as_raster(source.array, file, name, folder, key)]
    elif source.unpack and is_archive(file, name):
        records = _unpacked(source, file, name, folder, key)
    else:
        _refuse_members(source, f"{name} is not unpacked", key)
        share(fetched.place, _new(folder, name, key))
        records = [FileRecord(name, fetched.bytes, fetched.sha256)]
    return source_record(source, fetched.sha256, fetched.bytes, records)


def require_path(source: Source, target: Path, key: str) -> None:
    """Refuse a local source that is not there, or that `target`, the dataset's folder, would replace.

    Raises
    ------
    UserError
        With what is wrong.
    """
    path = _local(source)
    if not os.path.exists(path):  # Path.exists raises where a folder above may not be entered
        raise UserError(f"{key}.path: {source.path} is not found or out of reach ({path}). Correct the path.")
    place, goal = path.resolve(), target.resolve()
    if place.is_relative_to(goal):
        raise UserError(
            f"{key}.path: {path} lies in {target}, which this stage replaces. Move it to a folder outside the results."
        )
    if goal.is_relative_to(place):
        raise UserError(
            f"{key}.path: {path} holds the results folder itself. Name the folder that holds only the data."
        )


def place_path(source: Source, folder: Path, key: str) -> SourceRecord:
    """Unpack a local archive into `folder`, or link a local file or folder from there.

    Raises
    ------
    UserError
        When it has a wrong checksum, cannot be read, or its name is taken.
    """
    path = _local(source)
    name = target_name(source, key)
    if path.is_dir():
        if source.sha256 or source.md5:
            raise UserError(
                f"{key}: {source.path} is a folder, and a checksum is that of a file. Leave the checksum out."
            )
        _refuse_members(source, f"{source.path} is a folder", key)
        records = _linked(path, name, folder, key)
        return source_record(source, None, sum(record.bytes for record in records), records)
    try:
        if path.stat().st_size == 0:
            raise UserError(f"{key}: {source.path} is empty. Fetch the file anew.")
        sha256, wrong = checked(source, path)
    except OSError as error:
        raise read_error(path, error) from error
    if wrong is not None:
        raise UserError(
            f"{key}: {source.path}: {wrong}. Fetch the file anew or, if it has a new version, correct the checksum."
        )
    if source.array is not None:
        raster = _as_raster(source.array, path, name, folder, key)
        return source_record(source, sha256, path.stat().st_size, [raster])
    if source.unpack and is_archive(path, name):
        records = _unpacked(source, path, name, folder, key)
        return source_record(source, sha256, path.stat().st_size, records)
    _refuse_members(source, f"{source.path} is not unpacked", key)
    (record,) = _linked(path, name, folder, key)
    return source_record(source, record.sha256, record.bytes, [record])


def target_name(source: Source, key: str) -> str:
    """Return where a source's file goes below the dataset's folder, if it is not unpacked.

    Raises
    ------
    UserError
        When its address says no name.
    """
    if source.name is not None:
        return source.name
    if source.package is not None:
        return f"{source.package.replace('==', '-')}.whl"
    if source.path is not None:
        return _local(source).name
    assert source.url is not None
    path = urlsplit(source.url).path
    name = PurePosixPath(unquote(path)).name
    if not name or name == ".." or "\0" in name:
        raise UserError(
            f"{key}.url: its path {path!r} ends in no file name. Give the address of a file, or set `name`."
        )
    return name


def _local(source: Source) -> Path:
    assert source.path is not None
    return Path(os.path.abspath(Path(source.path).expanduser()))


def _unpacked(source: Source, archive: Path, name: str, folder: Path, key: str) -> list[FileRecord]:
    """Unpack an archive where it would lie below `folder`."""
    above, own = PurePosixPath(name).parent, PurePosixPath(name).name
    records = unpack(archive, own, _subfolder(folder, above, key), source.members, key)
    return [replace(record, path=(above / record.path).as_posix()) for record in records]


def _as_raster(array: Array, file: Path, name: str, folder: Path, key: str) -> FileRecord:
    """Make a GeoTIFF of an array where the file would lie below `folder`, with another suffix."""
    own = PurePosixPath(name).with_suffix(".tif").as_posix()
    size, sha256 = write_raster(file, array, _new(folder, own, key), key)
    return FileRecord(own, size, sha256)


def _linked(path: Path, name: str, folder: Path, key: str) -> list[FileRecord]:
    """Link the local file or folder `path` into `folder`; return the files' records."""
    link = _new(folder, name, key)
    records = linked_records(path, name)
    link.symlink_to(path)
    _log.info("%s: linked, not copied", path)
    return records


def _new(folder: Path, name: str, key: str) -> Path:
    """Return the path of a new file in `folder`; a name that is taken is the user's mistake."""
    target = _subfolder(folder, PurePosixPath(name).parent, key) / PurePosixPath(name).name
    if name == MANIFEST or os.path.lexists(target):
        raise _taken(name, key)
    return target


def _subfolder(folder: Path, above: PurePosixPath, key: str) -> Path:
    """Make a folder below `folder`, but never through a link to the user's own data."""
    for part in (*reversed(above.parents), above):
        place = folder / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise _taken(str(part), key)
        place.mkdir(exist_ok=True)
    return folder / above


def _taken(name: str, key: str) -> UserError:
    taken = "this stage's own list of files" if name == MANIFEST else "another source of the dataset"
    return UserError(f"{key}: the name {name} is taken by {taken}. Give the source another `name`.")


def _refuse_members(source: Source, why: str, key: str) -> None:
    if source.members:
        raise UserError(f"{key}.members: {why}, so there are no archive entries to choose. Leave members out.")
