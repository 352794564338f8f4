"""The baseline: a random forest on single pixels (classification: on band statistics of single tiles).

It sees no neighbourhood, so what the network gains over it is the worth of context.
"""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from landbalance.cores import cores
from landbalance.errors import UserError
from landbalance.evaluate.accuracy import Matrix, confusions
from landbalance.tiles import IGNORED, TileStore

_log = logging.getLogger(__name__)

TREES = 100
_SEED = 0
_PIXELS_PER_CHUNK = 2**20


@dataclass(frozen=True)
class Forest:
    """A fitted forest, and how many samples (pixels or tiles) it was fitted on."""

    model: RandomForestClassifier
    samples: int

    def classes(
        self, images: NDArray[np.generic], labels: NDArray[np.uint8], missing: float | None
    ) -> NDArray[np.uint8]:
        """Return predicted codes, shaped like `labels`; where `labels` is 255 they mean nothing.

        Parameters
        ----------
        images : ndarray, shape (n, bands, size, size)
        labels : ndarray of uint8, shape (n, size, size) for segmentation, (n,) for classification
        missing : float or None
            The value of missing pixels, as in `tiles.Normalisation`.
        """
        result = np.zeros(labels.shape, np.uint8)
        counted = labels != IGNORED
        if counted.any():
            result[counted] = self.model.predict(features(images, counted, missing))
        return result


def fitted_forest(tiles: TileStore, limit: int) -> Forest:
    """Return a forest fitted on at most `limit` labelled samples of the train split, drawn with a fixed seed.

    Raises
    ------
    UserError
        When nothing in the train split is labelled.
    """
    inputs, targets = _samples(tiles, tiles.ids("train"), limit)
    if not len(targets):
        raise UserError(
            f"{tiles.folder}: no labelled sample in the train split, so no baseline can be fitted. "
            "Check labels and split of the dataset, or set evaluate.baseline to false."
        )
    return _fitted(inputs, targets)


@dataclass(frozen=True)
class RandomSplit:
    """How a forest fares that is fitted and judged on samples of all tiles, split at random."""

    confusion: Matrix
    train_samples: int


def random_split(tiles: TileStore, train: int, test: int) -> RandomSplit:
    """Judge a forest the way that flatters it: its training samples lie among those that it is judged on.

    Samples are drawn from the train and test splits alike, whatever their blocks. Where training tiles overlap, a
    pixel may stand on both sides, as it does when tiles are split at random.

    Parameters
    ----------
    train, test : int
        Samples to fit and to judge on; `train` as many as the honest forest had, for a fair comparison.
    """
    ids = np.sort(np.concatenate([tiles.ids("train"), tiles.ids("test")]))
    inputs, targets = _samples(tiles, ids, train + test)
    order = np.random.default_rng(_SEED).permutation(len(targets))
    fit, judge = order[:train], order[train:]
    predicted = _fitted(inputs[fit], targets[fit]).model.predict(inputs[judge]).astype(np.uint8)
    return RandomSplit(confusions(targets[None, judge], predicted[None], len(tiles.info.classes))[0], len(fit))


def _fitted(inputs: NDArray[np.float32], targets: NDArray[np.uint8]) -> Forest:
    model = RandomForestClassifier(n_estimators=TREES, n_jobs=cores(), random_state=_SEED)
    model.fit(inputs, targets)
    return Forest(model, len(targets))


def features(images: NDArray[np.generic], chosen: NDArray[np.bool_], missing: float | None) -> NDArray[np.float32]:
    """Return a row of features for each chosen sample.

    Parameters
    ----------
    images : ndarray, shape (n, bands, size, size)
    chosen : ndarray of bool, shape (n, size, size) for pixels, (n,) for tiles
    missing : float or None
        Pixels with this value in all bands are left out of a tile's statistics.

    Returns
    -------
    ndarray of float32, shape (samples, bands) or (samples, 2 * bands)
        Band values of pixels; means and standard deviations of the bands of tiles.
    """
    if chosen.ndim > 1:
        return np.moveaxis(images, 1, -1)[chosen].astype(np.float32)
    values = images[chosen].astype(np.float64)
    there = np.ones((len(values), *values.shape[2:]), bool) if missing is None else (values != missing).any(axis=1)
    weight = there[:, None].astype(np.float64)
    count = np.maximum(weight.sum(axis=(2, 3)), 1)
    mean = (values * weight).sum(axis=(2, 3)) / count
    variance = ((values - mean[..., None, None]) ** 2 * weight).sum(axis=(2, 3)) / count
    return np.concatenate([mean, np.sqrt(variance)], axis=1).astype(np.float32)


def chunks(tiles: TileStore, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return `ids` in pieces that fit in memory, whatever the store's size."""
    size = max(1, _PIXELS_PER_CHUNK // tiles.info.tile_size**2)
    return [ids[first : first + size] for first in range(0, len(ids), size)]


def _samples(tiles: TileStore, ids: NDArray[np.int64], limit: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return features and classes of at most `limit` labelled samples of the tiles, each equally likely to be drawn."""
    return (_pixels if tiles.info.task == "segmentation" else _tiles)(tiles, ids, limit)


def _pixels(tiles: TileStore, ids: NDArray[np.int64], limit: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return band values and classes of labelled pixels, each equally likely to be drawn."""
    labelled = _labelled(tiles)[ids]
    last = labelled.cumsum()
    drawn = _drawn(int(labelled.sum()), limit)
    # Draws of a tile lie between these two places of `drawn`, which is sorted.
    begin, end = np.searchsorted(drawn, last - labelled), np.searchsorted(drawn, last)
    inputs, targets = [], []
    for chunk in chunks(tiles, np.flatnonzero(end > begin)):
        images, labels = tiles.read(ids[chunk])
        chosen = np.zeros(labels.shape, bool)
        for number, tile in enumerate(chunk):
            places = np.flatnonzero(labels[number] != IGNORED)
            if len(places) != labelled[tile]:
                raise UserError(
                    f"{tiles.folder / 'index.parquet'}: tile {ids[tile]} has {len(places)} labelled pixels, the index "
                    f"says {labelled[tile]}. Delete the folder and tile again."
                )
            first = last[tile] - labelled[tile]
            chosen[number].flat[places[drawn[begin[tile] : end[tile]] - first]] = True
        inputs.append(features(images, chosen, tiles.info.normalisation.missing))
        targets.append(labels[chosen])
    return _joined(inputs, targets, len(tiles.info.bands))


def _drawn(total: int, limit: int) -> NDArray[np.int64]:
    """Return `limit` of the numbers below `total` (all of them if fewer), ascending, each equally likely."""
    if total <= limit:
        return np.arange(total)
    return np.sort(np.random.default_rng(_SEED).choice(total, limit, replace=False, shuffle=False))


def _tiles(tiles: TileStore, ids: NDArray[np.int64], limit: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return band statistics and classes of labelled tiles."""
    inputs, targets = [], []
    for chunk in chunks(tiles, ids[_drawn(len(ids), limit)]):
        images, labels = tiles.read(chunk)
        chosen = labels != IGNORED
        inputs.append(features(images, chosen, tiles.info.normalisation.missing))
        targets.append(labels[chosen])
    return _joined(inputs, targets, 2 * len(tiles.info.bands))


def _joined(
    inputs: list[NDArray[np.float32]], targets: list[NDArray[np.uint8]], columns: int
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    return (
        np.concatenate([np.empty((0, columns), np.float32), *inputs]),
        np.concatenate([np.empty(0, np.uint8), *targets]),
    )


def _labelled(tiles: TileStore) -> NDArray[np.int64]:
    counts = tiles.column("labelled")
    assert counts is not None, "every index says how much of a tile is labelled"
    return counts.astype(np.int64)
