"""The tile stage: from downloaded files to a tile store."""

from pathlib import Path

from landbalance.config import Dataset
from landbalance.files import placed
from landbalance.tile.folders import tile_folders
from landbalance.tile.scenes import tile_scenes


def run(name: str, dataset: Dataset, source: Path, folder: Path) -> None:
    """Write the tile store of a dataset, whole or not at all.

    Parameters
    ----------
    name : str
        The dataset's name, for messages.
    dataset : Dataset
    source : Path
        The folder that the download stage filled.
    folder : Path
        The store; an older one is replaced.

    Raises
    ------
    UserError
        When a source is missing, damaged or does not fit the others; nothing is written then.
    """
    with placed(folder) as temporary:
        temporary.mkdir()
        if dataset.folders is not None:
            tile_folders(name, dataset, source, temporary)
        else:
            tile_scenes(name, dataset, source, temporary)
