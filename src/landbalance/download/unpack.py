"""Unpack an archive without trusting it.

Nothing is written outside the folder, no device or pipe is made, permissions and owners in the
archive are ignored, an archive that swells beyond `size_limit` is refused, and so are names that no
file should have. Entries are written here, not by `zipfile` and `tarfile`, so that both obey the same
rules in every Python version.
"""

import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from landbalance import files
from landbalance.download.archives import Entry, entries, opened
from landbalance.download.manifest import MANIFEST, FileRecord, copied, is_text
from landbalance.errors import UserError
from landbalance.progress import Progress

_log = logging.getLogger(__name__)

_BLOCK = 1 << 20
_LEAST_LIMIT = 2**30
_SWELLING = 200
_LEAST_COUNTED = 512  # bytes: even an empty file costs the disk something
_LONGEST_NAME = 255  # bytes, on the usual file systems
_EXAMPLES = 5


def size_limit(archive_bytes: int) -> int:
    """Return the bytes that an archive may unpack to: 1 GiB, or 200 times its own size if that is more."""
    return max(_LEAST_LIMIT, _SWELLING * archive_bytes)


def unpack(archive: Path, name: str, folder: Path, patterns: Sequence[str], key: str) -> list[FileRecord]:
    """Unpack the wanted entries of `archive` into `folder` and return the records of the new files.

    Parameters
    ----------
    archive : Path
        A zip file (also a wheel) or a tar file, compressed or not.
    name : str
        The archive's name, which says what kind it is.
    folder : Path
        An existing folder.
    patterns : sequence of str
        Glob patterns of entries; ``*`` also matches ``/``, and a folder's name means all that it
        holds. All entries when empty.
    key : str
        Where the source stands in the configuration, for messages.

    Raises
    ------
    UserError
        When the archive is damaged, encrypted or swells beyond `size_limit`; when an entry would
        leave the folder, is a device, or stands where another source's file is; when a pattern
        matches no entry.
    """
    title = f"{key}: {name}"
    matched: set[str] = set()
    examples: list[str] = []
    size = archive.stat().st_size
    with opened(archive, title) as raw, Progress(f"unpack {name}", size, "B") as progress:
        unpacked = _Unpacked(folder, title, size_limit(size), _Position(raw, progress))
        for entry in entries(raw, name, title):
            hits = [pattern for pattern in patterns if _matches(entry.name, pattern)]
            matched.update(hits)
            if len(examples) < _EXAMPLES:
                examples.append(entry.name)
            if hits or not patterns:
                unpacked.add(entry)
        unpacked.add_links()
    if missing := [pattern for pattern in patterns if pattern not in matched]:
        raise UserError(
            f"{key}.members: nothing in {name} matches {', '.join(missing)}. It holds, for example, "
            f"{', '.join(examples) or 'no files at all'}. Correct the pattern (* also matches /) or leave it out."
        )
    if not unpacked.records:
        raise UserError(f"{title}: there are no files in it. Check that it is the right archive.")
    return list(unpacked.records.values())


class _Position:
    """Progress through an archive: how far its file has been read, whatever is unpacked of it."""

    def __init__(self, raw: IO[bytes], progress: Progress) -> None:
        self._raw, self._progress, self._read = raw, progress, 0

    def blocks(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the content of an entry in blocks."""
        while block := file.read(_BLOCK):
            position = self._raw.tell()
            if position > self._read:
                self._progress.advance(position - self._read)
                self._read = position
            yield block


class _Unpacked:
    """The files of one archive in a folder: files at once, links when all files are there.

    As no link of the archive exists while files are written, no file can be written through one.
    """

    def __init__(self, folder: Path, title: str, limit: int, position: "_Position") -> None:
        self.records: dict[str, FileRecord] = {}
        self._folder, self._title, self._limit, self._position = folder, title, limit, position
        self._total = 0
        self._links: list[tuple[str, Entry]] = []
        self._parents = {folder}

    def add(self, entry: Entry) -> None:
        """Write a file, or note a link for `add_links`."""
        path = self._inside(entry.name)
        if path == MANIFEST:
            _log.warning("%s: its own %s is left out: this stage puts its list of files there", self._title, path)
        elif entry.kind == "file":
            self._count(entry.size)
            with entry.open() as file:
                self.records[path] = copied(self._position.blocks(file), self._place(path), path)
        elif entry.kind == "device or pipe":
            raise UserError(f"{self._title}: the entry {entry.name} is a device or pipe. {_LEAVE_OUT}")
        else:
            self._links.append((path, entry))

    def add_links(self) -> None:
        """Copy what hard links stand for, then make the symlinks and check where they really lead."""
        for path, entry in self._links:
            if entry.kind == "hard link":
                self._copy(path, entry)
        symlinks = [(path, entry) for path, entry in self._links if entry.kind == "symlink"]
        for path, entry in symlinks:
            if entry.target.startswith("/") or _leaves(str(PurePosixPath(path).parent / entry.target)):
                raise self._leaving(entry)
            place = self._place(path)
            files.remove(place)
            place.symlink_to(entry.target)
        root = os.path.realpath(self._folder)
        for path, entry in symlinks:
            place = self._folder / path
            if not Path(os.path.realpath(place)).is_relative_to(root):
                raise self._leaving(entry)
            if not place.exists():
                raise self._dangling(entry)
            if place.is_file():
                self.records[path] = FileRecord(path, place.stat().st_size, files.digest(place))

    def _copy(self, path: str, entry: Entry) -> None:
        if entry.target.startswith("/") or _leaves(entry.target):
            raise self._leaving(entry)
        original = self.records.get(os.path.normpath(entry.target))
        if original is None:
            raise self._dangling(entry)
        self._count(original.bytes)
        shutil.copyfile(self._folder / original.path, self._place(path))
        self.records[path] = FileRecord(path, original.bytes, original.sha256)

    def _inside(self, name: str) -> str:
        """Return an entry's path below the folder; refuse a name that leads out of it, or that no file should have."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or re.match("[A-Za-z]:/", name) or ".." in parts or "\0" in name or not parts:
            raise UserError(f"{self._title}: the entry {name!r} would leave the folder of the dataset. {_LEAVE_OUT}")
        if not is_text(name):
            raise UserError(
                f"{self._title}: the entry {name!r} has a name with control characters, or that is not UTF-8. Unpack "
                "the archive by hand, rename the file, and give the folder as `path`; or choose entries by `members`."
            )
        if too_long := [part for part in parts if len(part.encode()) > _LONGEST_NAME]:
            raise UserError(
                f"{self._title}: an entry has a name of {len(too_long[0]):,} characters ({too_long[0][:40]}…); file "
                f"systems take {_LONGEST_NAME}. {_LEAVE_OUT}"
            )
        return "/".join(parts)

    def _place(self, path: str) -> Path:
        """Return where a new file goes, with its folder made; another source's files and links are not touched."""
        place = self._folder / path
        if os.path.lexists(place) and path not in self.records:
            raise self._taken(path)
        for parent in reversed(place.relative_to(self._folder).parents):
            above = self._folder / parent
            if above in self._parents:
                continue
            if above.is_symlink() or (above.exists() and not above.is_dir()):
                raise self._taken(path)
            above.mkdir(exist_ok=True)
            self._parents.add(above)
        return place

    def _count(self, size: int) -> None:
        self._total += max(size, _LEAST_COUNTED)
        if self._total > self._limit:
            raise UserError(
                f"{self._title}: unpacks to more than {self._limit / 2**30:,.1f} GiB, the limit for an archive of its "
                f"size (1 GiB, or {_SWELLING} times its size). If you trust it, unpack it by hand and give the folder "
                "as `path`; or choose fewer entries by `members`."
            )

    def _leaving(self, entry: Entry) -> UserError:
        return UserError(
            f"{self._title}: the entry {entry.name} is a {entry.kind} to {entry.target}, outside the folder that it is "
            f"unpacked to. {_LEAVE_OUT}"
        )

    def _dangling(self, entry: Entry) -> UserError:
        return UserError(
            f"{self._title}: the entry {entry.name} is a {entry.kind} to {entry.target}, which is not unpacked. "
            "Add that to `members`, or leave the link out."
        )

    def _taken(self, path: str) -> UserError:
        return UserError(
            f"{self._title}: the entry {path} stands where another entry or another source of the dataset has put a "
            "file or link. Choose entries by `members`, or drop one of the sources."
        )


_LEAVE_OUT = "Do not trust this archive; if you must, choose the entries that you need by `members`."


def _matches(name: str, pattern: str) -> bool:
    """Tell whether a glob pattern means an entry or a folder above it."""
    name, pattern = name.removeprefix("./"), pattern.removeprefix("./").rstrip("/")
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}/*")


def _leaves(path: str) -> bool:
    return os.path.normpath(path).split("/")[0] == ".."
