"""The tile stage: from downloaded files to a tile store."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import landbalance
from landbalance.allocator import keep_freed_memory
from landbalance.config import Dataset
from landbalance.cores import cores
from landbalance.errors import UserError
from landbalance.files import digest, placed, read_json, remove, remove_leftovers, write_json
from landbalance.tile.blocks import Placement, cell_size
from landbalance.tile.collect import collect
from landbalance.tile.cut import CARD, IMAGES, Cut, cut_scene
from landbalance.tile.files import file_states
from landbalance.tile.folders import tile_folders
from landbalance.tile.masks import tile_masks
from landbalance.tile.scenes import placements_of, read_grids

_log = logging.getLogger(__name__)

_MOST_WORKERS = 8
"""More threads would need more memory than a gigabyte."""


def run(name: str, dataset: Dataset, source: Path, folder: Path, scene: str | None = None) -> None:
    """Write the tile store of a dataset.

    Scenes are cut first, each into ``scenes/<scene>/``; one whose files and settings are what they were when it was
    cut is left as it is. Then the splits are drawn and the store's index, labels and statistics written.

    Parameters
    ----------
    name : str
        The dataset's name, for messages.
    dataset : Dataset
    source : Path
        The folder that the download stage filled.
    folder : Path
        The store.
    scene : str or None
        Cut this scene and do no more.

    Raises
    ------
    UserError
        When a source is missing, damaged or does not fit the others. The scenes that can be cut are cut all the same.
    """
    keep_freed_memory()
    if dataset.folders is not None:
        if scene is not None:
            raise UserError(
                f"{name}: its tiles are images in folders, so there is no scene {scene} to cut. Leave --scene out."
            )
        remove_leftovers(folder)
        with placed(folder) as temporary:
            temporary.mkdir()
            tile = tile_folders if dataset.folders.masks is None else tile_masks
            tile(name, dataset, source, temporary)
        return
    if scene is not None and scene not in dataset.scenes:
        raise UserError(f"{name}: has no scene {scene}; allowed: {', '.join(dataset.scenes)}.")
    wanted = list(dataset.scenes) if scene is None else [scene]
    # Where a scene's blocks begin depends on the scenes before it, if they lie on the same ground.
    grids, failed = read_grids(dataset, source, dataset.scenes)
    placements = placements_of(dataset, grids)
    for one in wanted:
        if one not in failed:
            try:
                _cut(name, dataset, source, folder, one, placements[one])
            except UserError as error:
                _log.error("error: %s: %s", one, error)
                failed[one] = error
    _raise_failed({one: failed[one] for one in wanted if one in failed}, len(wanted))
    if scene is None:
        collect(name, dataset, source, folder, placements)


def _cut(name: str, dataset: Dataset, source: Path, store: Path, scene: str, placement: Placement) -> None:
    """Cut a scene, unless what is there is what it would be cut into; note what is there for the workflow."""
    folder, note = store / "scenes" / scene, store / "scenes" / f"{scene}.json"
    size = cell_size(dataset)
    inner = Placement(placement.frame, placement.row % size, placement.col % size)
    key = _key(dataset, source, scene, inner)
    if (folder / CARD).is_file() and read_json(folder / CARD)["key"] == key and (folder / IMAGES).is_file():
        _log.info("%s: nothing has changed since it was cut", scene)
    else:
        remove_leftovers(folder)
        with placed(folder) as temporary:
            temporary.mkdir()
            workers = min(cores(), _MOST_WORKERS)
            cut_scene(name, dataset, source, scene, inner, key, temporary, workers)
            remove(store / "statistics.json")  # lest anyone reads new images by an old index
    card = Cut.model_validate(read_json(folder / CARD))
    write_json(note, {"scene": scene, "tiles": card.tiles, "key": key})


def _key(dataset: Dataset, source: Path, scene: str, placement: Placement) -> str:
    """Return a digest of all that a scene's tiles depend on: settings, files, code."""
    package = Path(landbalance.__file__).parent
    code = sorted([*(package / "tile").rglob("*.py"), *package.glob("raster*.py"), *(package / "raster").rglob("*.py")])
    parts = {
        "settings": cut_settings(dataset, scene),
        "placement": [placement.row, placement.col],
        "files": file_states(dataset, source, scene),
        "code": [digest(path) for path in code],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def cut_settings(dataset: Dataset, scene: str) -> dict[str, Any]:
    """Return the settings that decide a scene's tiles, as plain values: not which splits they will be in."""
    kept = dataset.model_dump(mode="json", include={"task", "resolution", "resampling", "labels"})
    return {
        **kept,
        "scene": dataset.scenes[scene].model_dump(mode="json", exclude={"acquired"}),
        "classes": [item.model_dump(mode="json", include={"values"}) for item in dataset.classes],
        "tiles": dataset.tiles.model_dump(mode="json", include={"size", "stride", "labelled"}),
        "cell": cell_size(dataset),
    }


def _raise_failed(failed: dict[str, UserError], count: int) -> None:
    """Stop when scenes could not be cut.

    Raises
    ------
    UserError
        It names them and says what is wrong with each.
    """
    if not failed:
        return
    if count == 1:
        raise next(iter(failed.values()))
    reasons = "\n".join(f"  {scene}: {error}" for scene, error in failed.items())
    raise UserError(f"{len(failed)} of {count} scenes could not be cut, the others are:\n{reasons}")
