"""Maps a scene with a model bundle: checks that they fit, predicts block by block, writes the map and its style."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landbalance import __version__
from landbalance.bundle import WEIGHTS, Bundle, read_card
from landbalance.config.data import ClassInfo, Dataset, Scene
from landbalance.config.learning import Map
from landbalance.errors import UserError
from landbalance.files import digest, write_text
from landbalance.map.blocks import Block, segmented, voted
from landbalance.map.geotiff import Legend, write_map
from landbalance.map.style import style
from landbalance.prediction import Predictor, open_predictor
from landbalance.progress import Progress
from landbalance.raster import Grid, SceneReader, open_scene

_log = logging.getLogger(__name__)

_SAME_RESOLUTION = 0.01
"""Relative difference of pixel sizes that makes no difference to a network."""


def run(scene_name: str, dataset: Dataset, settings: Map, source: Path, bundle: Path, target: Path) -> None:
    """Map a scene of a dataset.

    Parameters
    ----------
    scene_name : str
        A name under the dataset's `scenes`.
    dataset : Dataset
        Its scenes, classes (names and colours) and common grid.
    settings : Map
        Window, overlap and the code for nodata.
    source : Path
        The dataset's download folder.
    bundle : Path
        Folder of the model bundle.
    target : Path
        The map; its QGIS style appears beside it, with the ending ``.qml``.

    Raises
    ------
    UserError
        When the scene or the model is missing or damaged, or the two do not fit together.
    """
    card = read_card(bundle)
    scene = _scene_for(card, scene_name, dataset, bundle)
    _check_classes(card, dataset.classes, settings.nodata, bundle)
    legend = Legend(dataset.classes, settings.nodata)
    with open_scene(scene, source, dataset.resolution, dataset.resampling) as reader:
        _check_resolution(card, reader.grid, scene_name, bundle)
        predictor = open_predictor(bundle)
        blocks = _with_progress(_blocks(reader, predictor, settings), scene_name, reader.grid)
        counts = write_map(target, blocks, reader.grid, legend, _tags(scene_name, scene, dataset, card, bundle))
        write_text(target.with_suffix(".qml"), style(legend))
        _log.info("%s: area of each class\n%s", target, _areas(counts, legend, reader.grid))


def _scene_for(card: Bundle, scene_name: str, dataset: Dataset, bundle: Path) -> Scene:
    """Return the scene with the bands that the model wants, in its order."""
    if scene_name not in dataset.scenes:
        allowed = ", ".join(dataset.scenes) or "none, the dataset has folders of images"
        raise UserError(f"scenes: no scene is called {scene_name}; there are: {allowed}.")
    scene = dataset.scenes[scene_name]
    if missing := [band for band in card.bands if band not in scene.bands]:
        raise UserError(
            f"{bundle}: the model needs the bands {', '.join(missing)}, which scene {scene_name} does not have "
            f"(it has {', '.join(scene.bands)}). Name the bands in the scene as in the model, or train on this dataset."
        )
    if unused := [band for band in scene.bands if band not in card.bands]:
        _log.info("%s: the model does not use the bands %s", scene_name, ", ".join(unused))
    return scene.model_copy(update={"bands": {band: scene.bands[band] for band in card.bands}})


def _check_classes(card: Bundle, classes: Sequence[ClassInfo], nodata: int, bundle: Path) -> None:
    of_model, of_dataset = ([item.name for item in items] for items in (card.classes, classes))
    if of_model != of_dataset:
        raise UserError(
            f"{bundle}: the model's classes ({', '.join(of_model)}) are not those of the dataset "
            f"({', '.join(of_dataset)}). Train again, or undo the change of the classes."
        )
    if nodata < len(classes):
        raise UserError(
            f"map.nodata: {nodata} is the code of the class {classes[nodata].name}; "
            f"allowed: {len(classes)} … 255. Take 255."
        )


def _check_resolution(card: Bundle, grid: Grid, scene_name: str, bundle: Path) -> None:
    if card.resolution is None:
        return
    if abs(grid.resolution - card.resolution) > _SAME_RESOLUTION * card.resolution:
        raise UserError(
            f"{bundle}: the model was trained on pixels of {card.resolution:g}, scene {scene_name} has pixels of "
            f"{grid.resolution:g} (units of its CRS). Set the dataset's resolution to {card.resolution:g}, "
            "or train on this one."
        )


def _blocks(reader: SceneReader, predictor: Predictor, settings: Map) -> Iterator[Block]:
    if predictor.card.task == "classification":
        size = predictor.card.tile_size
        _log.info("tiles of %d × %d pixels, %d apart, vote for each pixel", size, size, max(1, size // 4))
        return voted(reader, predictor, settings.nodata)
    _log.info("windows of %d × %d pixels, %d pixels of each edge unused", *(settings.window,) * 2, settings.overlap)
    return segmented(reader, predictor, settings.window, settings.overlap, settings.nodata)


def _with_progress(blocks: Iterable[Block], scene_name: str, grid: Grid) -> Iterator[Block]:
    with Progress(f"map {scene_name}", grid.width * grid.height, "pixel") as progress:
        for block in blocks:
            yield block
            progress.advance(block.codes.size)


def _tags(scene_name: str, scene: Scene, dataset: Dataset, card: Bundle, bundle: Path) -> dict[str, str]:
    """Return where the map comes from; nothing that changes from run to run."""
    tags = {
        "TIFFTAG_SOFTWARE": f"landbalance {__version__}",
        "TIFFTAG_IMAGEDESCRIPTION": f"Land cover of {scene_name}",
        "TIFFTAG_COPYRIGHT": "; ".join(item.attribution for item in dataset.sources if item.attribution),
        "LANDBALANCE_SCENE": scene_name,
        "LANDBALANCE_ACQUIRED": scene.acquired or "",
        "LANDBALANCE_EXPERIMENT": str(card.provenance.get("experiment", "")),
        "LANDBALANCE_ARCHITECTURE": card.model.architecture,
        "LANDBALANCE_BANDS": ", ".join(card.bands),
        "LANDBALANCE_MODEL_SHA256": digest(bundle / WEIGHTS),
    }
    return {key: value for key, value in tags.items() if value}


def _areas(counts: NDArray[np.int64], legend: Legend, grid: Grid) -> str:
    """Return a line per class: its share of the mapped pixels, and hectares where the CRS has a unit of length."""
    mapped = int(counts[: len(legend.classes)].sum())
    hectares = None
    if grid.crs.is_projected:
        hectares = abs(grid.transform.determinant) * grid.crs.linear_units_factor[1] ** 2 / 10_000
    width = max(len(item.name) for item in legend.classes)
    lines = [
        f"{item.name:<{width}}  {count / mapped if mapped else 0:7.2%}"
        + (f"  {count * hectares:14,.1f} ha" if hectares is not None else f"  {count:14,d} pixels")
        for item, count in zip(legend.classes, counts.tolist(), strict=False)
    ]
    return "\n".join([*lines, f"nodata: {int(counts[legend.nodata]):,d} of {int(counts.sum()):,d} pixels"])
