"""A contact sheet: some tiles of each split and class, with their labels, for a look at what will be learnt from."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from landbalance.config import Dataset
from landbalance.files import placed
from landbalance.tiles import IGNORED, SPLITS, TileStore, open_tiles

_COLUMNS, _ROWS = 8, 2
_NO_LABEL = (0.88, 0.88, 0.88)


def preview(name: str, dataset: Dataset, folder: Path, target: Path) -> None:
    """Draw tiles of the store in `folder` to `target`, a picture: 16 of each split at most, its classes in turn.

    Parameters
    ----------
    name : str
        The dataset's name.
    dataset : Dataset
        Says which bands are shown as red, green and blue.

    Raises
    ------
    UserError
        When there is no store.
    """
    store = open_tiles(folder)
    classes = store.column("label")
    assert classes is not None, "every index says the class of most labels"
    drawn = {split: chosen(store.ids(split), classes) for split in SPLITS}
    rows = {split: -(-len(ids) // _COLUMNS) for split, ids in drawn.items() if len(ids)}
    panels = 2 if store.info.task == "segmentation" else 1
    figure = Figure(figsize=(1.1 * panels * _COLUMNS, 1.3 * sum(rows.values()) + 0.9), layout="constrained", dpi=130)
    figure.suptitle(f"{name}: some of {store.info.tiles:,} tiles", ha="left", x=0.01)
    parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=list(rows.values()))[:, 0]
    for part, split in zip(parts, rows, strict=True):
        _draw(part, f"{split}: {len(store.ids(split)):,} tiles", store, drawn[split], classes, dataset)
    legend = [Patch(color=item.colour, label=item.name) for item in store.info.classes]
    if panels == 2:
        legend.append(Patch(color=_NO_LABEL, label="no label"))
    figure.legend(handles=legend, loc="outside lower left", ncols=_COLUMNS, fontsize="x-small", frameon=False)
    with placed(target) as temporary:
        figure.savefig(temporary, format=target.suffix.removeprefix(".") or "png")


def chosen(ids: NDArray[np.int64], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return 16 of the tiles `ids` at most: of each class in turn, spread evenly over its tiles."""
    of_class = [ids[classes[ids] == number] for number in np.unique(classes[ids])]
    wanted = min(len(ids), _COLUMNS * _ROWS)
    taken = [0] * len(of_class)
    while sum(taken) < wanted:
        for place, members in enumerate(of_class):
            if taken[place] < len(members) and sum(taken) < wanted:
                taken[place] += 1
    spread = [
        members[np.linspace(0, len(members) - 1, count).round().astype(np.int64)]
        for members, count in zip(of_class, taken, strict=True)
        if count
    ]
    return np.concatenate([np.empty(0, np.int64), *spread])


def _draw(
    part: Any, title: str, store: TileStore, ids: NDArray[np.int64], classes: NDArray[Any], dataset: Dataset
) -> None:
    images, labels = store.read(ids)
    shown, colours = _stretched(images, store, dataset), [to_rgb(item.colour) for item in store.info.classes]
    palette = np.full((IGNORED + 1, 3), _NO_LABEL)
    palette[: len(colours)] = colours
    part.suptitle(title, ha="left", x=0.01, fontsize="small")
    axes = part.subplots(-(-len(ids) // _COLUMNS), _COLUMNS, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, image, label, tile in zip(axes, shown, labels, ids.tolist(), strict=False):
        beside = [image] if labels.ndim == 1 else [image, np.ones((len(image), 1, 3)), palette[label]]
        ax.imshow(np.concatenate(beside, axis=1), interpolation="nearest")
        ax.set_title(
            f"{tile} {store.info.classes[classes[tile]].name}", fontsize=5, pad=1, color=colours[classes[tile]]
        )


def _stretched(images: NDArray[Any], store: TileStore, dataset: Dataset) -> NDArray[np.float64]:
    """Return images as red, green and blue from 0 to 1, between the 2nd and the 98th percentile of the train split."""
    bands = [store.info.bands.index(name) for name in dataset.display or store.info.bands[:3]]
    bands = bands if len(bands) == 3 else bands[:1] * 3
    low, high = (np.array(store.info.percentiles[q])[bands, None, None] for q in ("2", "98"))
    stretched = np.clip((images[:, bands] - low) / np.maximum(high - low, 1e-12), 0, 1)
    return np.asarray(stretched.transpose(0, 2, 3, 1))
