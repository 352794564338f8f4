"""The download stage: all sources of a dataset, in their order, into one folder that appears at once."""

import logging
from pathlib import Path

from landbalance import files
from landbalance.config import Dataset, Source
from landbalance.download.fetch import get_package, get_path, get_url
from landbalance.download.manifest import SourceRecord, source_name, write_manifest

_log = logging.getLogger(__name__)


def run(name: str, dataset: Dataset, folder: Path) -> None:
    """Fetch, check and unpack the sources of a dataset, and write ``manifest.json`` beside their files.

    The folder appears whole or not at all. A transfer that is broken off leaves its bytes in
    ``.partial/`` beside the folder, and the next run goes on from there; archives are not kept.

    Parameters
    ----------
    name : str
        The dataset's name in the configuration.
    dataset : Dataset
        Its settings.
    folder : Path
        Where its files go; an older folder is replaced.

    Raises
    ------
    UserError
        When a source cannot be had, has a wrong checksum, is no sound archive, or the disk is full.
    """
    store = folder.parent / ".partial"
    try:
        with files.placed(folder) as staged:
            staged.mkdir()
            records = []
            for index, source in enumerate(dataset.sources):
                key = f"datasets.{name}.sources.{index}"
                record = _get(source, staged, folder, store / _partial_name(name, source), key)
                _log.info("%s: %d files, licence: %s", source_name(source), len(record.files), source.licence)
                records.append(record)
            write_manifest(staged, name, records)
    finally:
        if store.is_dir() and not any(store.iterdir()):
            store.rmdir()
    _log.info("%s: %d files in %s", name, sum(len(record.files) for record in records), folder)


def _get(source: Source, staged: Path, folder: Path, partial: Path, key: str) -> SourceRecord:
    if source.package is not None:
        return get_package(source, staged, partial, key)
    if source.url is not None:
        return get_url(source, staged, partial, key)
    return get_path(source, staged, folder, key)


def _partial_name(name: str, source: Source) -> str:
    """Return the name of a broken-off transfer: datasets may share a source and be fetched at the same time."""
    return f"{name}-{(source.sha256 or source.md5 or '')[:16]}.part"
