"""How far the test samples lie from what the network was trained on.

A score from pixels beside the training pixels says how well a network interpolates, not how well it maps new
ground (Roberts et al. 2017, Cross-validation strategies for data with temporal, spatial, hierarchical, or phylogenetic
structure, Ecography 40, 913–929). So the distances are told beside the score.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landbalance.cores import cores
from landbalance.tiles import IGNORED, TileStore

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_PIXELS_AT_ONCE = 1 << 22
_MOST_PIXELS = 1_000_000
"""Of more test pixels that many are drawn: their quantiles are the same to a thousandth of the pixels."""
_SEED = 0


@dataclass(frozen=True)
class Distances:
    """Distances from test samples to the nearest training pixel.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        In pixels, from centre to centre; a pixel of a tile that has one label is the tile's nearest one.
    elsewhere : int
        Test samples on ground that no training pixel shares a grid with: another place altogether.
    """

    values: NDArray[np.float64]
    elsewhere: int

    def as_json(self, resolution: float | None) -> dict[str, Any]:
        """Return quantiles in pixels, with the size of a pixel in units of the CRS."""
        quantiles = np.quantile(self.values, _QUANTILES).tolist() if len(self.values) else [None] * len(_QUANTILES)
        return {
            "pixel": resolution,
            "quantiles": {f"{share:g}": value for share, value in zip(_QUANTILES, quantiles, strict=True)},
            "samples": len(self.values),
            "elsewhere": self.elsewhere,
        }


def distances(tiles: TileStore) -> Distances | None:
    """Return the distance of each labelled test sample to the nearest labelled training pixel.

    Of more than a million test pixels about a million are drawn at random, with a fixed seed. None where tiles have
    no place on the ground: images in folders.
    """
    frames = tiles.column("frame")
    if frames is None:
        return None
    train, test = tiles.ids("train"), tiles.ids("test")
    pixels = sum(_samples(tiles, ids) for ids in _parts(tiles, test))
    kept = 1.0 if tiles.info.task == "classification" else min(1.0, _MOST_PIXELS / max(pixels, 1))
    found, elsewhere = [np.empty(0)], 0
    for frame in np.unique(frames[test]):
        near, judged = train[frames[train] == frame], test[frames[test] == frame]
        if len(near):
            found.append(_on_one_grid(tiles, near, judged, kept))
        else:
            elsewhere += round(kept * sum(_samples(tiles, ids) for ids in _parts(tiles, judged)))
    return Distances(np.concatenate(found), elsewhere)


def _on_one_grid(
    tiles: TileStore, train: NDArray[np.int64], test: NDArray[np.int64], kept: float
) -> NDArray[np.float64]:
    from scipy.spatial import KDTree

    tree = KDTree(np.concatenate([_places(tiles, ids, outline=True)[0] for ids in _parts(tiles, train)]))
    found = []
    per_tile = tiles.info.task == "classification"
    generator = np.random.default_rng(_SEED)
    for ids in _parts(tiles, test):
        places, tile = _places(tiles, ids, outline=per_tile)
        if kept < 1:
            places = places[generator.random(len(places)) < kept]
        if not len(places):
            continue
        nearest, _ = tree.query(places, workers=cores())
        if per_tile:
            by_tile = np.full(len(ids), np.inf)
            np.minimum.at(by_tile, tile, nearest)
            nearest = by_tile[np.isfinite(by_tile)]
        found.append(nearest)
    return np.concatenate([np.empty(0), *found])


def _places(tiles: TileStore, ids: NDArray[np.int64], outline: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return row and column on the ground of the tiles' labelled pixels, and the place of each pixel's tile in `ids`.

    With `outline` only pixels with a neighbour that has no label: from outside, one of them is the nearest.
    """
    labelled = _labelled(tiles, ids)
    if outline:
        framed = np.pad(labelled, ((0, 0), (1, 1), (1, 1)))
        inner = framed[:, :-2, 1:-1] & framed[:, 2:, 1:-1] & framed[:, 1:-1, :-2] & framed[:, 1:-1, 2:]
        labelled &= ~inner
    tile, row, col = np.nonzero(labelled)
    first_row, first_col = tiles.column("frame_row"), tiles.column("frame_col")
    assert first_row is not None and first_col is not None
    places = np.stack([row + first_row[ids][tile], col + first_col[ids][tile]], axis=1)
    return places.astype(np.float64), tile


def _labelled(tiles: TileStore, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which pixels have a label, shape (n, size, size); where a tile has one label, all its pixels have it."""
    labels = tiles.labels(ids)
    if labels.ndim > 1:
        return np.asarray(labels != IGNORED)
    height, width = tiles.column("height"), tiles.column("width")
    assert height is not None and width is not None
    size = np.arange(tiles.info.tile_size)
    inside = (size < height[ids, None])[:, :, None] & (size < width[ids, None])[:, None, :]
    return np.asarray(inside & (labels != IGNORED)[:, None, None])


def _samples(tiles: TileStore, ids: NDArray[np.int64]) -> int:
    return int(np.count_nonzero(tiles.labels(ids) != IGNORED))


def _parts(tiles: TileStore, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    size = max(1, _PIXELS_AT_ONCE // tiles.info.tile_size**2)
    return [ids[first : first + size] for first in range(0, len(ids), size)]
