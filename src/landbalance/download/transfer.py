"""Fetch one file over http(s): resumed where it broke off, tried again while there is hope."""

import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path

import requests
import urllib3

from landbalance import __version__, files
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

_TRIES = 6  # in a row that bring no new byte
_FIRST_PAUSE = 1.0  # seconds; doubled from try to try
_LONGEST_PAUSE = 300.0  # seconds, also when the server asks for more
_TIMEOUTS = (20.0, 60.0)  # seconds to connect, and between two blocks
_BLOCK = 1 << 18
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


class Unfetchable(UserError):
    """The file cannot be had from this address; a mirror may have it."""


class Interrupted(Exception):
    """A transfer that broke off and is worth another try; `wait` is what the server asked for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass
class Transfer:
    """One file on its way.

    Parameters
    ----------
    url : str
        Where it comes from.
    partial : Path
        Where the bytes go; what already lies there is completed.
    title : str
        How the file is called in messages.
    advance : callable
        Told each number of new bytes; a negative number where bytes turn out to be of no use.
    sign : callable
        Returns the address to ask, from `url`; called before each try, as signatures expire.
    unverified : bool
        Whether no checksum will tell a mixture of two versions: then the version is noted beside the partial file, for
        a later run.
    """

    url: str
    partial: Path
    title: str
    advance: Callable[[float], None]
    sign: Callable[[str], str] = str
    unverified: bool = False
    validator: str | None = field(default=None, init=False)

    @property
    def have(self) -> int:
        """Return the number of bytes that are there."""
        return self.partial.stat().st_size if self.partial.exists() else 0

    @property
    def version(self) -> Path:
        """Return where the version of the bytes that are there is noted."""
        return self.partial.with_name(f"{self.partial.name}.version")

    def recall(self) -> None:
        """Prepare to go on with what an earlier run left, if its version is known; otherwise remove it."""
        if self.version.is_file():
            self.validator = self.version.read_text(encoding="utf-8")
        else:
            self.drop()

    def note_version(self) -> None:
        """Note the version of the bytes that are there or will be."""
        if self.validator is None:
            files.remove(self.version)
        else:
            self.version.write_text(self.validator, encoding="utf-8")

    def drop(self) -> None:
        """Remove what is there."""
        self.advance(-self.have)
        files.remove(self.partial)
        files.remove(self.version)


def fetch(transfer: Transfer) -> None:
    """Fetch a file over http(s); proxy, certificate and ``.netrc`` settings of the user are obeyed.

    The caller checks the content: a resumed file may be of two versions. After a lost connection
    the partial file stays, so that a later call goes on from there; after a failed write (a full
    disk) it is removed.

    Raises
    ------
    Unfetchable
        When the server refuses, or the file cannot be had after several tries.
    UserError
        When it cannot be written.
    """
    with _session() as session:
        persistently(transfer, lambda: _fetch_once(session, transfer))


def size(url: str, sign: Callable[[str], str] = str) -> int | None:
    """Return the bytes that `url` will give, as far as the server tells without sending them.

    Parameters
    ----------
    sign : callable
        As of a `Transfer`; where it fails, too, fetching will tell.
    """
    with suppress(requests.RequestException, urllib3.exceptions.HTTPError, ValueError), _session() as session:
        answer = session.head(sign(url), allow_redirects=True, timeout=_TIMEOUTS)
        length = answer.headers.get("Content-Length", "")
        if answer.status_code == HTTPStatus.OK and length.isdigit():
            return int(length)
    return None


def persistently(transfer: Transfer, once: Callable[[], None]) -> None:
    """Call `once` until it raises `Interrupted` no more, or without a new byte for too long.

    Raises
    ------
    Unfetchable
        When there is no hope left.
    UserError
        When a write fails; then what is there is removed.
    """
    try:
        transfer.partial.parent.mkdir(parents=True, exist_ok=True)
        furthest, tries = transfer.have, 0
        while True:
            try:
                return once()
            except Interrupted as broken:
                # Only new ground counts: a server that cannot resume and always breaks off must not hold us for ever.
                tries = 1 if transfer.have > furthest else tries + 1
                furthest = max(furthest, transfer.have)
                if tries >= _TRIES:
                    raise Unfetchable(
                        f"{transfer.title}: cannot be fetched: {broken} (tried {tries} times; {transfer.have:,} bytes "
                        "are kept). Check the address and the network (proxy settings: https_proxy), then run again: "
                        "it goes on from there where the server allows it."
                    ) from broken
                pause = _pause(tries, broken.wait)
                _log.warning("%s: %s; next try in %.0f s", transfer.title, broken, pause)
                time.sleep(pause)
    except OSError as error:
        mistake = files.write_error(transfer.partial, error)
        transfer.drop()
        raise mistake from error


def _session() -> requests.Session:
    session = requests.Session()
    # Checksums are those of the file as it lies on the server, so no compression on the way.
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": f"landbalance/{__version__}"})
    return session


def _fetch_once(session: requests.Session, transfer: Transfer) -> None:
    """Ask once for what is missing and append it, or write all when the server does not resume."""
    have, missing, resumed = transfer.have, None, False
    try:
        url = transfer.sign(transfer.url)
        with session.get(url, headers=_range(transfer), stream=True, timeout=_TIMEOUTS) as response:
            _refuse_failure(response, transfer.title, have)
            first, whole = _content_range(response)
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and whole == have:
                return
            found = _validator(response)
            # A server may leave out the date of a part, and one that ignores If-Range may send another version's.
            same = None in (found, transfer.validator) or found == transfer.validator
            resumed = response.status_code == HTTPStatus.PARTIAL_CONTENT and first == have and same
            if response.status_code != HTTPStatus.OK and not resumed:
                transfer.drop()
                raise Interrupted("what was fetched before does not fit to the file on the server")
            transfer.validator = (found or transfer.validator) if resumed else found
            length = response.headers.get("Content-Length", "")
            missing = int(length) if length.isdigit() else None
            _refuse_small_disk(transfer.partial, missing, 0 if resumed else have, transfer.title)
            if resumed:
                _log.info("%s: going on after %s bytes", transfer.title, f"{have:,}")
            else:
                transfer.drop()
            if transfer.unverified:
                transfer.note_version()
            with transfer.partial.open("ab") as file:
                for block in _blocks(response):
                    file.write(block)
                    transfer.advance(len(block))
    except (requests.exceptions.SSLError, requests.exceptions.TooManyRedirects, ValueError) as error:
        # requests.exceptions.InvalidURL and its kin are ValueErrors; so is a UserError, which passes.
        if isinstance(error, UserError):
            raise
        raise Unfetchable(
            f"{transfer.title}: cannot be fetched: {_reason(error)}. Check the address, and for certificates "
            "REQUESTS_CA_BUNDLE."
        ) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise Interrupted(_reason(error)) from error
    if missing is not None and transfer.have != missing + (have if resumed else 0):
        raise Interrupted("the connection was lost")


def _range(transfer: Transfer) -> dict[str, str]:
    """Return the headers that ask for what is missing, of the same version of the file where that is known."""
    if not transfer.have:
        return {}
    unchanged = {"If-Range": transfer.validator} if transfer.validator else {}
    return {"Range": f"bytes={transfer.have}-", **unchanged}


def _validator(response: requests.Response) -> str | None:
    """Return what tells a version of the file; a weak tag does not tell the bytes apart."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified")


def _blocks(response: requests.Response) -> Iterator[bytes]:
    """Yield the body as it was sent: servers that call a .tar.gz "encoded" would have requests unpack it."""
    yield from response.raw.stream(_BLOCK, decode_content=False)


def _refuse_failure(response: requests.Response, title: str, have: int) -> None:
    status = response.status_code
    if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        return
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
        return
    answer = f"the server answered {status} {response.reason or ''}".rstrip()
    if status in _WORTH_ANOTHER_TRY:
        raise Interrupted(answer, _retry_after(response.headers.get("Retry-After")))
    hint = "Check the address"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "Put your user name and password for this host into ~/.netrc, or fetch it by hand and give its `path`"
    raise Unfetchable(f"{title}: {answer}. {hint}, then run again.")


def _refuse_small_disk(partial: Path, missing: int | None, freed: int, title: str) -> None:
    free = shutil.disk_usage(partial.parent).free + freed
    if missing is not None and missing > free:
        raise UserError(
            f"{title}: {missing / 2**20:,.0f} MiB are to be fetched, but only {free / 2**20:,.0f} MiB are free in "
            f"{partial.parent}. Make room or choose another results folder, then run again."
        )


def _content_range(response: requests.Response) -> tuple[int | None, int | None]:
    """Return the first byte sent and the size of the whole file, as far as the server says."""
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    return (
        int(match[1]) if match[1] else None,
        int(match[2]) if match[2] != "*" else None,
    )


def _retry_after(value: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks to wait (a number or a date)."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _pause(tries: int, asked: float | None) -> float:
    """Return the seconds to wait after the `tries`-th fruitless try; what the server asks comes first."""
    pause = _FIRST_PAUSE * 2 ** (tries - 1) if asked is None else asked
    return min(pause, _LONGEST_PAUSE)


def _reason(error: Exception) -> str:
    """Return the innermost cause, which says more than the layers around it."""
    cause: BaseException = error
    while isinstance(inner := getattr(cause, "reason", None) or (cause.args[0] if cause.args else None), Exception):
        cause = inner
    # urllib3 gives (message, cause) where a connection breaks; the message is enough.
    text = cause.args[0] if len(cause.args) > 1 and isinstance(cause.args[0], str) else str(cause)
    return text or type(cause).__name__
