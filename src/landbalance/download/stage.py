"""The download stage: all sources of a dataset, in their order, into one folder that appears at once."""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from landbalance import files
from landbalance.config import Source
from landbalance.download.cache import CACHE_VARIABLE, Place, place_of
from landbalance.download.fetch import Fetched, expected_size, fetched, needs_no_network
from landbalance.download.manifest import SourceRecord, source_name, write_manifest
from landbalance.download.place import place_fetched, place_path, require_path, target_name
from landbalance.errors import UserError
from landbalance.progress import Progress

_log = logging.getLogger(__name__)

Keyed = tuple[str, Source]


def run(name: str, sources: Sequence[Source], folder: Path, online: bool = True) -> None:
    """Fetch, check and unpack the sources of a dataset, and write ``manifest.json`` beside their files.

    The folder appears whole or not at all. All files are fetched before one is unpacked. A transfer
    that is broken off leaves its bytes in ``.partial/`` beside the folder, or in the shared cache,
    and the next run goes on from there; only the cache keeps archives.

    Parameters
    ----------
    name : str
        The dataset's name in the configuration.
    sources : sequence of Source
        What to fetch.
    folder : Path
        Where the files go; an older folder is replaced.
    online : bool
        Whether the network may be used.

    Raises
    ------
    UserError
        When a source cannot be had, has a wrong checksum, is no sound archive, or the disk is full.
    """
    store = folder.parent / ".partial"
    keyed = [(f"datasets.{name}.sources.{number}", source) for number, source in enumerate(sources)]
    for key, source in keyed:
        target_name(source, key)
        if source.path is not None:
            require_path(source, folder, key)
    try:
        found = _fetch_all(name, keyed, store, online)
        with files.placed(folder) as staged:
            staged.mkdir()
            records = list(_place_all(keyed, found, staged))
            write_manifest(staged, name, records)
    finally:
        if store.is_dir() and not any(store.iterdir()):
            store.rmdir()
    _log.info("%s: %d files in %s", name, sum(len(record.files) for record in records), folder)


def _place_all(keyed: Sequence[Keyed], found: Mapping[str, Fetched], staged: Path) -> Iterator[SourceRecord]:
    """Put each source's files into the folder `staged`; a fetched file is removed when no other source wants it."""
    last = {fetched.place: key for key, fetched in found.items()}
    for key, source in keyed:
        fetched = found.get(key)
        try:
            record = place_fetched(source, fetched, staged, key) if fetched else place_path(source, staged, key)
        except OSError:
            for place in last:
                place.discard()  # a full disk is no place to keep archives
            raise
        except UserError:
            if fetched is not None:
                _log.info("%s: kept in %s for the next run", source_name(source), fetched.place.file)
            raise
        if fetched is not None and last[fetched.place] == key:
            fetched.place.discard()
        _log.info("%s: %d files, licence: %s", source_name(source), len(record.files), source.licence)
        yield record


def _fetch_all(name: str, keyed: Sequence[Keyed], store: Path, online: bool) -> dict[str, Fetched]:
    """Return the files of all sources that are not local, by key; progress and ETA are those of all together."""
    wanted = [(key, source, place_of(source, name, store)) for key, source in keyed if source.path is None]
    # Two sources may take other members of one archive.
    missing = list({place: (key, source, place) for key, source, place in wanted if not place.file.exists()}.values())
    if not online and (out_of_reach := [item for item in missing if not needs_no_network(item[1])]):
        raise _offline(name, out_of_reach)
    if not missing:
        return {key: fetched(source, place, key, lambda _: None, online) for key, source, place in wanted}
    sizes: list[int | None] = []
    for key, source, _ in missing:
        sizes.append(expected_size(source, key) if online else None)
        if sizes[-1] is None:
            break  # there will be no total, so the others need not be asked
    _refuse_small_disk(name, [(place, size) for (_, _, place), size in zip(missing, sizes, strict=False)])
    total = None if None in sizes else sum(filter(None, sizes))
    before = sum(place.have for _, _, place in missing)
    with Progress(f"fetch {name}", total, "B", before) as progress:
        return {key: fetched(source, place, key, progress.advance, online) for key, source, place in wanted}


def _refuse_small_disk(name: str, wanted: Sequence[tuple[Place, int | None]]) -> None:
    """Stop before anything is fetched where what is missing, as far as it is known, does not fit."""
    for shared in (False, True):
        needed = sum((size or 0) - place.have for place, size in wanted if place.shared == shared)
        if needed <= 0:
            continue
        first = next(place for place, _ in wanted if place.shared == shared)
        folder = next(parent for parent in first.file.absolute().parents if parent.is_dir())
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise UserError(
                f"{name}: {needed / 2**20:,.0f} MiB are to be fetched, but only {free / 2**20:,.0f} MiB are free in "
                f"{folder}. Make room or choose another {'cache' if shared else 'results'} folder, then run again."
            )


def _offline(name: str, missing: Sequence[tuple[str, Source, Place]]) -> UserError:
    lines = [f"{key}: {source_name(source)} (looked for {place.file})" for key, source, place in missing]
    return UserError(
        f"{name}: the network may not be used, and these files are not here:\n  "
        + "\n  ".join(lines)
        + f"\nFetch them where there is a network with the same {CACHE_VARIABLE}, put them at these places by hand, or "
        "give local files as `path`."
    )
