"""What was fetched: every file with size and checksum, every source with licence and attribution."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from landbalance import files
from landbalance.config import Source
from landbalance.errors import UserError
from landbalance.progress import tracked

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FileRecord:
    """A file of the dataset: POSIX path below the dataset's folder, size in bytes, SHA-256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SourceRecord:
    """A source as it was found, and the files that came of it.

    `bytes` and `sha256` are those of the fetched file (the archive, say). A local folder has no
    checksum of its own; its size is the sum of its files.
    """

    source: str
    sha256: str | None
    bytes: int
    licence: str
    attribution: str | None
    retrieved: str
    files: list[FileRecord]


def source_record(source: Source, sha256: str | None, size: int, records: Sequence[FileRecord]) -> SourceRecord:
    """Return the record of `source`, retrieved now, with its files in the order of their paths."""
    return SourceRecord(
        source=source_name(source),
        sha256=sha256,
        bytes=size,
        licence=source.licence,
        attribution=source.attribution,
        retrieved=datetime.now(UTC).isoformat(timespec="seconds"),
        files=sorted(records, key=lambda record: record.path),
    )


def write_manifest(folder: Path, dataset: str, sources: Sequence[SourceRecord]) -> None:
    """Write ``manifest.json`` of `dataset` into `folder`."""
    value: dict[str, Any] = {"dataset": dataset, "sources": [asdict(record) for record in sources]}
    files.write_json(folder / MANIFEST, value)


def source_name(source: Source) -> str:
    """Return the package, address or path of a source; user name and password in an address are left out."""
    return source.package or source.path or address_name(source.url or "")


def address_name(url: str) -> str:
    """Return an address without user name and password."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def linked_records(path: Path, name: str) -> list[FileRecord]:
    """Return the records of the local file or folder `path` that is linked as `name`.

    Raises
    ------
    UserError
        When something cannot be read, a link leads to nothing, or a folder holds no file.
    """
    try:
        found = sorted(files.files_in(path)) if path.is_dir() else [path]
        if not found:
            raise UserError(f"{path}: this folder holds no files. Name the folder that holds the data.")
        if strange := [file for file in found if not is_text(str(file.relative_to(path.parent)))]:
            raise UserError(
                f"{str(strange[0])!r}: a file's name has control characters, or is not UTF-8. Rename it "
                "(convmv renames many)."
            )
        return [
            FileRecord((Path(name) / file.relative_to(path)).as_posix(), file.stat().st_size, files.digest(file))
            for file in tracked(found, f"check {path.name}", len(found), "file")
        ]
    except OSError as error:
        raise read_error(path, error) from error


def is_text(name: str) -> bool:
    """Tell whether a file's name is UTF-8 without control characters; what is not fits into no list or log."""
    return name.isprintable()


def read_error(path: Path, error: OSError) -> UserError:
    """Return the message for a local file that cannot be read."""
    return UserError(
        f"{error.filename or path}: cannot be read: {error.strerror or error}. "
        "Mend the file, its link or its permissions."
    )


def copied(reader: Iterator[bytes], target: Path, path: str) -> FileRecord:
    """Write the blocks of `reader` to `target` and return the record of the new file."""
    value, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        for block in reader:
            file.write(block)
            value.update(block)
            size += len(block)
    return FileRecord(path, size, value.hexdigest())
