"""Fetch one file from an object store (s3, gs) or a file address."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from landbalance.download.transfer import Interrupted, Transfer, Unfetchable, persistently
from landbalance.errors import UserError

T = TypeVar("T")

_REFUSALS = frozenset({"PermissionError", "PermissionDeniedError", "UnauthenticatedError"})
_BLOCK = 1 << 24  # bytes asked for at once; an object store takes some 0.1 s to answer


@dataclass(frozen=True)
class _Remote:
    """A file to read by pieces: its `size` in bytes, and its bytes from a first to before a last one."""

    size: Callable[[], int]
    read: Callable[[int, int], bytes]


def fetch(transfer: Transfer) -> None:
    """Fetch a file, with the credentials and settings of the store's own tools.

    Raises
    ------
    Unfetchable
        When the store refuses, or the file cannot be had after several tries.
    UserError
        When the library for object stores is not installed, or the file cannot be written.
    """
    remote = _remote(transfer.url, transfer.title)
    persistently(transfer, lambda: _fetch_once(remote, transfer))


def size(url: str, title: str) -> int | None:
    """Return the bytes that `url` will give, as far as the store tells."""
    try:
        return _remote(url, title).size()
    except UserError:
        raise
    except Exception:  # each store has errors of its own; fetching will tell
        return None


def _remote(url: str, title: str) -> _Remote:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return _local(Path(url2pathname(parts.path)))
    try:
        import obstore
        from obstore.store import from_url
    except ImportError as error:
        raise UserError(
            f"{title}: {parts.scheme}:// needs a package that is not installed. "
            "Install it: pip install 'landbalance[cloud]'."
        ) from error
    path = parts.path.lstrip("/")
    try:
        store = from_url(
            f"{parts.scheme}://{parts.netloc}", retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=60)}
        )
    except Exception as error:
        raise UserError(f"{title}: {_first_line(error)}. Check the address and the store's settings.") from error
    return _Remote(
        size=lambda: int(obstore.head(store, path)["size"]),
        read=lambda first, last: bytes(obstore.get_range(store, path, start=first, end=last)),
    )


def _local(path: Path) -> _Remote:
    def read(first: int, last: int) -> bytes:
        with path.open("rb") as file:
            file.seek(first)
            return file.read(last - first)

    return _Remote(size=lambda: path.stat().st_size, read=read)


def _fetch_once(remote: _Remote, transfer: Transfer) -> None:
    whole = _asked(transfer, remote.size)
    if transfer.have > whole:
        transfer.drop()
    with transfer.partial.open("ab") as file:
        while (first := file.tell()) < whole:
            last = min(first + _BLOCK, whole)
            block = _asked(transfer, partial(remote.read, first, last))
            if not block:
                raise Interrupted("the store sent nothing")
            file.write(block)
            transfer.advance(len(block))


def _asked(transfer: Transfer, question: Callable[[], T]) -> T:
    """Return the store's answer; its errors become those of a transfer, unlike errors of writing."""
    try:
        return question()
    except FileNotFoundError as error:
        raise Unfetchable(f"{transfer.title}: there is no such file. Check the address, then run again.") from error
    except Exception as error:  # each store has errors of its own
        if type(error).__name__ in _REFUSALS:
            raise Unfetchable(
                f"{transfer.title}: access refused ({_first_line(error)}). Set the credentials in the environment "
                "(AWS_ACCESS_KEY_ID, …; GOOGLE_APPLICATION_CREDENTIALS); for a public store AWS_SKIP_SIGNATURE=true or "
                "GOOGLE_SKIP_SIGNATURE=true; for one whose readers pay AWS_REQUEST_PAYER=true."
            ) from error
        raise Interrupted(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
