"""Files that appear whole or not at all."""

import errno
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from landbalance.errors import UserError

_BLOCK = 1 << 20


@contextmanager
def placed(target: Path) -> Iterator[Path]:
    """Give a path beside `target` to write to, and rename it to `target` when all went well.

    Works for a file and for a folder (create it with ``mkdir``). After an error nothing stands at
    the temporary path, and an older `target` is untouched.

    Raises
    ------
    UserError
        When the disk is full or the folder cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _synchronise(temporary)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        os.replace(temporary, target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        remove(temporary)


def remove_leftovers(target: Path) -> None:
    """Delete what `placed` left beside `target` in processes that were killed; none may be writing it now."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        if path.name.removeprefix(f".{target.name}.").removesuffix(".part").isdigit():
            remove(path)


def write_error(target: Path, error: OSError) -> UserError:
    """Return the message for a failed write: the file, the reason, the room that is left, and how to mend it."""
    folder = next(parent for parent in target.absolute().parents if parent.is_dir())
    free = shutil.disk_usage(folder).free / 2**20
    forbidden = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return UserError(
        f"{error.filename or target}: cannot be written: {error.strerror or error} "
        f"({free:,.0f} MiB free in {folder}). {'Allow writing there' if forbidden else 'Make room'} or choose another "
        "folder, then run again."
    )


def write_text(target: Path, text: str) -> None:
    """Write `text` as UTF-8 to `target`, whole or not at all."""
    with placed(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(target: Path, value: Any) -> None:
    """Write `value` as indented JSON to `target`, whole or not at all; NaN is refused."""
    write_text(target, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the JSON value in `path`.

    Raises
    ------
    UserError
        When the file is missing or is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: not found. Run the stage that writes it first (results/<stage>/…, see `landbalance --help`)."
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid JSON ({error}). Delete it and run its stage again.") from error


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hexadecimal digest of the file at `path`."""
    return digests(path, [algorithm])[algorithm]


def digests(path: Path, algorithms: Iterable[str]) -> dict[str, str]:
    """Return the hexadecimal digests of the file at `path`, which is read once, by algorithm."""
    values = {algorithm: hashlib.new(algorithm) for algorithm in algorithms}
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            for value in values.values():
                value.update(block)
    return {algorithm: value.hexdigest() for algorithm, value in values.items()}


def remove(path: Path) -> None:
    """Delete the file, link or folder at `path`, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(NotADirectoryError):  # a file stands where a folder above should be
            path.unlink(missing_ok=True)


def _synchronise(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def files_in(folder: Path) -> Iterator[Path]:
    """Yield all files below `folder`; linked folders are entered, but a folder never twice.

    Raises
    ------
    OSError
        When a folder cannot be read.
    """
    seen = set()
    for top, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        seen.add(os.path.realpath(top))
        # A link back to a folder above it would be followed for ever.
        folders[:] = sorted(entry for entry in folders if os.path.realpath(os.path.join(top, entry)) not in seen)
        yield from (Path(top, entry) for entry in names)


def _raise(error: OSError) -> None:
    raise error
