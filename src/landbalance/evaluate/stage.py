"""Judges a model bundle on the test split of a tile store and writes what it found."""

import csv
import io
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from landbalance.bundle import Bundle
from landbalance.config.learning import Evaluate
from landbalance.errors import UserError
from landbalance.evaluate import forest, table
from landbalance.evaluate.accuracy import Matrix, Scores, confusions, majority_confusion, scores
from landbalance.files import placed, write_json, write_text
from landbalance.prediction import Predictor, open_predictor
from landbalance.progress import Progress
from landbalance.tiles import IGNORED, StoreInfo, TileStore, open_tiles

_log = logging.getLogger(__name__)

_SCHEMA = pa.schema(
    [("tile", pa.int64()), ("valid", pa.int64()), ("correct", pa.int64()), ("confusion", pa.list_(pa.int64()))]
)


@dataclass(frozen=True)
class _Baseline:
    confusion: Matrix
    samples: int
    seconds: float


def run(name: str, settings: Evaluate, store: Path, bundle: Path, folder: Path) -> None:
    """Judge the model of an experiment on the test split.

    Parameters
    ----------
    name : str
        The experiment.
    settings : Evaluate
        Whether, and on how many pixels, a random forest is fitted for comparison.
    store, bundle : Path
        Folders of the tile store and of the model bundle.
    folder : Path
        Where ``metrics.json``, ``confusion.csv`` and ``predictions.parquet`` appear, all at once.

    Raises
    ------
    UserError
        When the test split has no labelled pixel, or the model is not for these bands and classes.
    """
    tiles, predictor = open_tiles(store), open_predictor(bundle)
    _check_match(predictor.card, tiles.info, store, bundle)
    ids = tiles.ids("test")
    if not len(ids):
        raise _no_test(store, "holds no tile")
    names = [item.name for item in tiles.info.classes]
    with placed(folder) as temporary:
        temporary.mkdir()
        confusion = _judged(name, tiles, ids, predictor, temporary / "predictions.parquet")
        if not confusion.sum():
            raise _no_test(store, "has no labelled pixel")
        baseline = _baseline(tiles, ids, settings.baseline_pixels) if settings.baseline else None
        if baseline is not None:
            assert baseline.confusion.sum() == confusion.sum(), "both are judged on the same pixels"
        result = scores(confusion, names)
        _log_tables(name, predictor.card, result, baseline, confusion, names)
        write_text(temporary / "confusion.csv", _as_csv(confusion, names))
        write_json(temporary / "metrics.json", _as_json(name, result, confusion, names, baseline))


def _check_match(card: Bundle, info: StoreInfo, store: Path, bundle: Path) -> None:
    """Refuse a model that was made for other tiles: its numbers would mean nothing."""
    found = {
        "task": (card.task, info.task),
        "bands": (", ".join(card.bands), ", ".join(info.bands)),
        "classes": (", ".join(c.name for c in card.classes), ", ".join(c.name for c in info.classes)),
    }
    for what, (of_model, of_tiles) in found.items():
        if of_model != of_tiles:
            raise UserError(
                f"{bundle}: the model's {what} ({of_model}) are not those of the tiles in {store} ({of_tiles}). "
                "Train again on these tiles."
            )


def _no_test(store: Path, what: str) -> UserError:
    return UserError(
        f"{store}: the test split {what}, so nothing can be judged. Raise split.test of the dataset, lower split.size, "
        "or give more labels; then tile and train again."
    )


def _judged(name: str, tiles: TileStore, ids: NDArray[np.int64], predictor: Predictor, target: Path) -> Matrix:
    """Return the summed confusion matrix of the network and write a row for each tile to `target`."""
    classes = len(tiles.info.classes)
    total = np.zeros((classes, classes), np.int64)
    with pq.ParquetWriter(target, _SCHEMA) as writer:
        for chunk, images, labels in _read(tiles, ids, f"evaluate {name}"):
            each = _confusions(tiles, labels, predictor.classes(images))
            total += each.sum(axis=0)
            writer.write_table(_rows(chunk, each))
    return total


def _baseline(tiles: TileStore, ids: NDArray[np.int64], limit: int) -> _Baseline:
    """Return how a random forest fares on the same test samples."""
    started = time.perf_counter()
    fitted = forest.fitted_forest(tiles, limit)
    _log.info(
        "baseline: random forest of %d trees, fitted on %d %s of the train split in %.1f s",
        forest.TREES,
        fitted.samples,
        "pixels" if tiles.info.task == "segmentation" else "tiles",
        time.perf_counter() - started,
    )
    missing = tiles.info.normalisation.missing
    classes = len(tiles.info.classes)
    total = np.zeros((classes, classes), np.int64)
    for _, images, labels in _read(tiles, ids, "random forest"):
        total += _confusions(tiles, labels, fitted.classes(images, labels, missing)).sum(axis=0)
    return _Baseline(total, fitted.samples, time.perf_counter() - started)


def _read(
    tiles: TileStore, ids: NDArray[np.int64], title: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.generic], NDArray[np.uint8]]]:
    with Progress(title, len(ids), "tile") as progress:
        for chunk in forest.chunks(tiles, ids):
            yield chunk, *tiles.read(chunk)
            progress.advance(len(chunk))


def _confusions(tiles: TileStore, labels: NDArray[np.uint8], predicted: NDArray[np.uint8]) -> Matrix:
    classes = len(tiles.info.classes)
    if (wrong := labels[(labels >= classes) & (labels != IGNORED)]).size:
        raise UserError(
            f"{tiles.folder}: a label is {wrong[0]}; allowed: 0 … {classes - 1} and {IGNORED}. "
            "Delete the folder and tile again."
        )
    return confusions(labels, predicted, classes)


def _rows(ids: NDArray[np.int64], each: Matrix) -> pa.Table:
    flat = each.reshape(len(ids), -1)
    columns = [ids, flat.sum(axis=1), np.trace(each, axis1=1, axis2=2), flat.tolist()]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)], schema=_SCHEMA
    )


def _log_tables(
    name: str, card: Bundle, result: Scores, baseline: _Baseline | None, confusion: Matrix, names: list[str]
) -> None:
    rows = {card.model.architecture: result}
    if baseline is not None:
        rows["random forest"] = scores(baseline.confusion, names)
    rows[f"always {names[int(confusion.sum(axis=1).argmax())]}"] = scores(majority_confusion(confusion), names)
    _log.info("%s, test split, %d samples:\n%s", name, confusion.sum(), table.comparison(rows))
    _log.info("%s, by class (n/a: undefined, left out of averages):\n%s", name, table.by_class(result))
    for item in result.per_class:
        if not item.support:
            _log.warning("%s: %s does not occur in the test split: its producer's accuracy is n/a", name, item.name)
        elif not item.predicted:
            _log.warning("%s: %s is never predicted: its user's accuracy is n/a", name, item.name)


def _as_json(
    name: str, result: Scores, confusion: Matrix, names: list[str], baseline: _Baseline | None
) -> dict[str, Any]:
    of_forest = None
    if baseline is not None:
        judged = scores(baseline.confusion, names)
        of_forest = {
            "name": "random forest",
            "overall_accuracy": judged.overall_accuracy,
            "kappa": judged.kappa,
            "confusion": baseline.confusion.tolist(),
            "train_pixels": baseline.samples,
            "seconds": round(baseline.seconds, 3),
        }
    head = {"experiment": name, "split": "test", "classes": names, "confusion": confusion.tolist()}
    return {**head, **result.as_json(), "baseline": of_forest}


def _as_csv(confusion: Matrix, names: list[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["reference \\ predicted", *names])
    writer.writerows([name, *row] for name, row in zip(names, confusion.tolist(), strict=True))
    return text.getvalue()
