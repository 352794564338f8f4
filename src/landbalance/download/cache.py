"""Where fetched files lie: in the shared cache, by their checksum, or beside the results until they are unpacked."""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from landbalance import files
from landbalance.config import Source

CACHE_VARIABLE = "LANDBALANCE_CACHE"
OFFLINE_VARIABLE = "LANDBALANCE_OFFLINE"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """The path of a whole, checked file; `shared` says whether it stays there for other runs."""

    file: Path
    shared: bool

    @property
    def partial(self) -> Path:
        """Return where the file's bytes gather."""
        return self.file.with_name(f"{self.file.name}.part")

    @property
    def have(self) -> int:
        """Return how many of the file's bytes an earlier run has left."""
        return self.partial.stat().st_size if self.partial.exists() else 0

    def keep(self) -> None:
        """Make the partial file the whole one; a shared file is made read-only."""
        if self.shared:
            self.partial.chmod(0o444)
        os.replace(self.partial, self.file)

    def discard(self) -> None:
        """Remove the file, unless it is shared."""
        if not self.shared:
            files.remove(self.file)


def offline() -> bool:
    """Tell whether the user has forbidden any use of the network."""
    return os.environ.get(OFFLINE_VARIABLE, "").lower() not in ("", "0", "false", "no")


def place_of(source: Source, dataset: str, store: Path) -> Place:
    """Return where the file of a source lies once it is fetched.

    Parameters
    ----------
    source : Source
        A package or an address.
    dataset : str
        The dataset that wants it. Datasets may share a source and be fetched at the same time.
    store : Path
        Where files lie that are not shared: those without a checksum, or all when there is no cache.
    """
    algorithm, digest = ("sha256", source.sha256) if source.sha256 else ("md5", source.md5)
    cache = os.environ.get(CACHE_VARIABLE)
    if cache and digest:
        return Place(Path(cache).expanduser() / algorithm / digest[:2] / digest, shared=True)
    identity = digest or hashlib.sha256((source.url or "").encode()).hexdigest()
    return Place(store / f"{dataset}-{identity[:16]}", shared=False)


@contextmanager
def locked(place: Place, title: str) -> Iterator[None]:
    """Let only one process at a time fetch a shared file.

    The lock ends with its process, however that ends; its file stays, so that all wait for the same one.

    Raises
    ------
    UserError
        When the cache cannot be written.
    """
    if not place.shared:
        yield
        return
    path = place.file.with_name(f"{place.file.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, mode=0o666)
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if not lock.is_locked:
            _log.info("%s: another run is fetching it; waiting", title)
            lock.acquire()
    except OSError as error:
        raise files.write_error(path, error) from error
    try:
        yield
    finally:
        lock.release()


def share(place: Place, target: Path) -> None:
    """Put the whole file at `target`, as a second name for the same bytes, or a copy on another disk."""
    try:
        os.link(place.file, target)
    except OSError:
        shutil.copyfile(place.file, target)
