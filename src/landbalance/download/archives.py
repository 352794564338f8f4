"""Read zip and tar archives: their entries in order, with damage told from a full disk."""

import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Self

from landbalance.download.manifest import read_error
from landbalance.errors import UserError

_ZIPS = (".zip", ".whl")
_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz")
_OTHERS = (".rar", ".7z", ".tar.zst", ".tar.z", ".tar.lz")
_BLOCK = 1 << 20
_LONGEST_LINK = 4096
_ENCRYPTED = 0x1
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    struct.error,
    UnicodeDecodeError,
)


@dataclass(frozen=True)
class Entry:
    """An entry that is no folder.

    `size` is that of the unpacked file in bytes; neither format lets `open` give more. `target` is
    where a link points.
    """

    name: str
    kind: Literal["file", "symlink", "hard link", "device or pipe"]
    size: int
    open: Callable[[], IO[bytes]]
    target: str = ""


class _Header(tarfile.TarInfo):
    """A tar header whose damage is an error; tarfile would take it for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in a block; only a block of zeros is the archive's end."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):
                raise
            raise tarfile.ReadError("it ends early or has a damaged header") from error


def is_archive(path: Path, name: str) -> bool:
    """Tell whether a file is an archive to unpack, by its name or, if the name says nothing, by its content.

    So a truncated .zip is still an archive (and a broken one), and .npz or .kmz, which are zip files
    inside, are data.

    Raises
    ------
    UserError
        When it is an archive of a kind that cannot be unpacked here.
    """
    lower = name.lower()
    if lower.endswith(_OTHERS):
        raise UserError(
            f"{name}: archives of this kind cannot be unpacked here (zip, whl, tar, tar.gz, tar.bz2 and tar.xz can). "
            "Unpack it by hand and give the folder as `path`, or set `unpack: false` to keep it as it is."
        )
    if lower.endswith(_ZIPS + _TARS):
        return True
    if re.search(r"\.\w*[a-z]\w*$", lower):
        return False
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except OSError as error:
        raise read_error(path, error) from error


@contextmanager
def opened(archive: Path, title: str) -> Iterator[IO[bytes]]:
    """Give the open file of an archive; damage found while it is read becomes a `UserError` about `title`."""
    try:
        raw = archive.open("rb")
    except OSError as error:
        raise read_error(archive, error) from error
    with raw:
        try:
            yield raw
        except NotImplementedError as error:
            raise UserError(
                f"{title}: packed in a way that cannot be read here ({error}). "
                "Unpack it by hand and give the folder as `path`."
            ) from error
        except _DAMAGE as error:
            raise _damaged(title, archive, error) from error
        except OSError as error:
            # gzip and bz2 report damage as an OSError without a number; those of a full disk have one.
            if error.errno is None:
                raise _damaged(title, archive, error) from error
            raise


def entries(raw: IO[bytes], name: str, title: str) -> Iterator[Entry]:
    """Yield the entries of an open archive in its own order; each must be read before the next is asked for.

    Parameters
    ----------
    raw : file object
        The archive; its position tells how far one has got.
    name : str
        The archive's file name, which says what kind it is.
    title : str
        How to call it in messages.
    """
    lower = name.lower()
    if lower.endswith(_ZIPS) or (not lower.endswith(_TARS) and zipfile.is_zipfile(raw)):
        yield from _zip_entries(raw, title)
    else:
        raw.seek(0)
        yield from _tar_entries(raw)


def _zip_entries(raw: IO[bytes], title: str) -> Iterator[Entry]:
    with zipfile.ZipFile(raw) as archive:
        for info in archive.infolist():
            # Some old programs write \ between folders, against the format.
            name = info.filename.replace("\\", "/")
            if name.endswith("/"):
                continue

            def content(info: zipfile.ZipInfo = info) -> IO[bytes]:
                if info.flag_bits & _ENCRYPTED:
                    raise UserError(
                        f"{title}: the entry {info.filename} is encrypted. Unpack it by hand with its password "
                        "and give the folder as `path`."
                    )
                return archive.open(info)

            if stat.S_ISLNK(info.external_attr >> 16):
                with content() as file:
                    target = file.read(_LONGEST_LINK).decode()
                yield Entry(name, "symlink", 0, content, target)
            else:
                yield Entry(name, "file", info.file_size, content)


def _tar_entries(raw: IO[bytes]) -> Iterator[Entry]:
    with tarfile.open(fileobj=raw, mode="r:*", tarinfo=_Header) as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # a million entries would fill the memory
            if info.isdir():
                continue

            def content(info: tarfile.TarInfo = info) -> IO[bytes]:
                file = archive.extractfile(info)
                assert file is not None
                return file

            if info.issym():
                yield Entry(info.name, "symlink", 0, content, info.linkname)
            elif info.islnk():
                yield Entry(info.name, "hard link", 0, content, info.linkname)
            else:
                yield Entry(info.name, "file" if info.isreg() else "device or pipe", info.size, content)
        # The checksum of a compressed archive stands at its very end.
        assert archive.fileobj is not None
        while archive.fileobj.read(_BLOCK):
            pass


def _damaged(title: str, archive: Path, error: Exception) -> UserError:
    reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    return UserError(
        f"{title}: truncated, damaged or no such archive after {archive.stat().st_size:,} bytes ({reason}). "
        "Fetch it anew; if it stays so, unpack it by hand and give the folder as `path`."
    )
