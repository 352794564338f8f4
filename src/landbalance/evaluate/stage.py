"""Judges a model bundle on the test split of a tile store and writes what it found."""

import logging
import time
from pathlib import Path
from typing import Any

from landbalance.bundle import Bundle
from landbalance.comparison import compared
from landbalance.config.learning import Evaluate
from landbalance.errors import UserError
from landbalance.evaluate import forest, metrics
from landbalance.evaluate.accuracy import scores
from landbalance.evaluate.calibration import calibration
from landbalance.evaluate.distance import distances
from landbalance.evaluate.intervals import intervals
from landbalance.evaluate.judge import HeldOut, Verdict, held_out, judged_forest, judged_network
from landbalance.files import placed, write_json, write_text
from landbalance.prediction import open_predictor
from landbalance.tiles import StoreInfo, open_tiles

_log = logging.getLogger(__name__)


def run(name: str, settings: Evaluate, store: Path, bundle: Path, folder: Path) -> None:
    """Judge the model of an experiment on the test split.

    Parameters
    ----------
    name : str
        The experiment.
    settings : Evaluate
        Whether, and on how many pixels, a random forest is fitted for comparison; how intervals are drawn.
    store, bundle : Path
        Folders of the tile store and of the model bundle.
    folder : Path
        Where ``metrics.json``, ``confusion.csv`` and ``predictions.parquet`` appear, all at once.

    Raises
    ------
    UserError
        When the test split has no labelled pixel, or the model is not for these bands and classes.
    """
    tiles, predictor = open_tiles(store), open_predictor(bundle, settings.orientations)
    _check_match(predictor.card, tiles.info, store, bundle)
    split = held_out(tiles)
    if not len(split.ids):
        raise _no_test(store, "holds no tile")
    with placed(folder) as temporary:
        temporary.mkdir()
        network, reliability = judged_network(name, split, predictor, temporary / "predictions.parquet")
        if not network.confusion.sum():
            raise _no_test(store, "has no labelled pixel")
        baseline = _baseline(split, network, settings) if settings.baseline else None
        distance = distances(tiles)
        found = metrics.Metrics(
            name=name,
            network=predictor.card.model.architecture,
            classes=[item.name for item in tiles.info.classes],
            confusion=network.confusion,
            intervals=_intervals(split, network, settings),
            calibration=calibration(reliability),
            distance=None if distance is None else distance.as_json(tiles.info.resolution),
            baseline=baseline,
            random_split=_random_split(split, baseline, settings),
        )
        metrics.log(found)
        write_text(temporary / "confusion.csv", found.as_csv())
        write_json(temporary / "metrics.json", found.as_json())


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


def _intervals(split: HeldOut, verdict: Verdict, settings: Evaluate) -> dict[str, Any]:
    names = [item.name for item in split.tiles.info.classes]
    return intervals(verdict.by_unit, names, split.unit, settings.resamples, settings.level)


def _baseline(split: HeldOut, network: Verdict, settings: Evaluate) -> metrics.Baseline:
    """Return how a random forest fares on the same test samples."""
    started = time.perf_counter()
    fitted = forest.fitted_forest(split.tiles, settings.baseline_pixels)
    _log.info(
        "baseline: random forest of %d trees, fitted on %d %s of the train split in %.1f s",
        forest.TREES,
        fitted.samples,
        "pixels" if split.tiles.info.task == "segmentation" else "tiles",
        time.perf_counter() - started,
    )
    verdict = judged_forest(split, fitted)
    return metrics.Baseline(
        confusion=verdict.confusion,
        intervals=_intervals(split, verdict, settings),
        comparison=compared(network.judged, verdict.judged, settings.resamples, settings.level),
        samples=fitted.samples,
        seconds=time.perf_counter() - started,
    )


def _random_split(split: HeldOut, baseline: metrics.Baseline | None, settings: Evaluate) -> dict[str, Any] | None:
    """Return how a forest would score on samples split at random, None where that is not asked or means nothing."""
    if not settings.random_split or baseline is None:
        return None
    if split.unit == "tile":
        _log.warning("evaluate.random_split: images in folders are split at random anyway, so there is nothing to show")
        return None
    names = [item.name for item in split.tiles.info.classes]
    honest = scores(baseline.confusion, names)
    test = min(int(baseline.confusion.sum()), settings.baseline_pixels)
    flattering = forest.random_split(split.tiles, baseline.samples, test)
    judged = scores(flattering.confusion, names)
    assert judged.overall_accuracy is not None and honest.overall_accuracy is not None
    return {
        "overall_accuracy": judged.overall_accuracy,
        "kappa": judged.kappa,
        "train_samples": flattering.train_samples,
        "test_samples": int(flattering.confusion.sum()),
        "optimism": judged.overall_accuracy - honest.overall_accuracy,
    }
