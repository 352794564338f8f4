"""Maps a scene with a model bundle: checks that they fit, predicts block by block, writes the map."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landbalance import __version__
from landbalance.bundle import WEIGHTS, Bundle, read_card
from landbalance.config.data import ClassInfo, Dataset, Resampling
from landbalance.config.learning import Map
from landbalance.config.scenes import Mask, Scene
from landbalance.errors import UserError
from landbalance.files import digest, write_json, write_text
from landbalance.map import layers
from landbalance.map.blocks import Block, segmented, voted
from landbalance.map.filtering import Codes, filtered
from landbalance.map.geotiff import Layer, Legend, code_layer, write_layers
from landbalance.map.mosaic import mosaic
from landbalance.map.polygons import polygon_style, write_polygons
from landbalance.map.scenes import named_scene
from landbalance.map.stac import Description, acquisition, stac_item
from landbalance.map.style import style
from landbalance.prediction import Predictor, open_predictors
from landbalance.progress import Progress
from landbalance.raster import Grid, SceneReader, acquired, open_scene, scene_paths

_log = logging.getLogger(__name__)

MOSAIC = "mosaic.tif"
_SAME_RESOLUTION = 0.01
"""Relative difference of pixel sizes that makes no difference to a network."""


def run(
    scene_name: str,
    dataset: Dataset,
    settings: Map,
    source: Path,
    bundle: Path,
    target: Path,
    workers: int | None = None,
) -> None:
    """Map a scene of a dataset.

    Parameters
    ----------
    scene_name : str
        A name under the dataset's `scenes`.
    dataset : Dataset
        Its scenes, classes (names and colours) and common grid.
    settings : Map
        Windows, and which files there shall be.
    source : Path
        The dataset's download folder.
    bundle : Path
        Folder of the model bundle.
    target : Path
        The map; its QGIS style and the other files appear beside it, see `config.Map.endings`.
    workers : int or None
        Threads that predict; as many as suit the devices when None.

    Raises
    ------
    UserError
        When the scene or the model is missing or damaged, or the two do not fit together.
    """
    card = read_card(bundle)
    scene = _scene_for(card, scene_name, dataset, source, bundle)
    _check_classes(card, dataset.classes, bundle)
    work = _Work(
        scene_name,
        scene,
        source,
        dataset.resolution,
        dataset.resampling,
        dataset.classes,
        "; ".join(item.attribution for item in dataset.sources if item.attribution),
        settings,
        card,
        bundle,
        target,
    )
    _map(work, workers)


def run_bundle(
    bundle: Path,
    scenes: Sequence[str],
    settings: Map,
    folder: Path,
    workers: int | None = None,
    mask: Mask | None = None,
) -> list[Path]:
    """Map any scenes with a model bundle and nothing else, and return the maps.

    Parameters
    ----------
    bundle : Path
        Folder of the model bundle.
    scenes : sequence of str
        See `scenes.named_scene`.
    settings : Map
        Windows, and which files there shall be.
    folder : Path
        Where the maps appear, under the scenes' names.
    workers : int or None
        Threads that predict; as many as suit the devices when None.
    mask : Mask or None
        Which pixels of each scene are missing, see `scenes.named_scene`.

    Raises
    ------
    UserError
        When a scene or the model is missing or damaged, or the two do not fit together; before anything is mapped.
    """
    card = read_card(bundle)
    found = [named_scene(text, card.bands, card.reflectance, mask) for text in scenes]
    names = [item.name for item in found]
    if settings.mosaic and Path(MOSAIC).stem in names:
        raise UserError(f"a scene is called {Path(MOSAIC).stem}: its map would be the file of the mosaic. Rename it.")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"several scenes are called {', '.join(repeated)}: their maps would be one file. Map them apart."
        )
    works = [
        _Work(
            item.name,
            item.scene,
            Path("/"),
            card.resolution,
            "bilinear",
            card.classes,
            "",
            settings,
            card,
            bundle,
            folder / f"{item.name}.tif",
        )
        for item in found
    ]
    for work in works:
        _check_settings(work)
    for work in works:
        _map(work, workers)
    maps = [work.target for work in works]
    if not settings.mosaic:
        return maps
    mosaic(maps, card.classes, settings.nodata, folder / MOSAIC)
    return [*maps, folder / MOSAIC]


@dataclass(frozen=True)
class _Work:
    """A scene to map, and all that decides how."""

    name: str
    scene: Scene
    source: Path
    resolution: float | None
    resampling: Resampling
    classes: Sequence[ClassInfo]
    attribution: str
    settings: Map
    card: Bundle
    bundle: Path
    target: Path

    def beside(self, ending: str) -> Path:
        """Return the file of the scene whose name ends so."""
        return self.target.with_name(f"{self.target.stem}.{ending}")


def _map(work: _Work, workers: int | None) -> None:
    _check_settings(work)
    legend = Legend(work.classes, work.settings.nodata)
    with open_scene(work.scene, work.source, work.resolution, work.resampling, work.card.stretch) as reader:
        _check_resolution(work.card, reader.grid, work.name, work.bundle)
        predictors = [_for_scenes(one) for one in open_predictors(work.bundle, workers, work.settings.orientations)]
        blocks = _with_progress(_blocks(reader, predictors, work.settings), work.name, reader.grid)
        tags = _tags(work)
        counts = write_layers(_layers(work, legend), blocks, reader.grid, tags)
        grid = reader.grid
    write_text(work.beside("qml"), style(legend))
    _log.info("%s: area of each class\n%s", work.target, _areas(counts, legend, grid))
    _write_derived(work, legend, grid, tags)


def _for_scenes(predictor: Predictor) -> Predictor:
    """Return the predictor told that a pixel of 0 in all bands is missing, as `SceneReader` has it.

    A model of images in folders has seen none that is.
    """
    normalisation = predictor.card.normalisation.model_copy(update={"missing": 0.0})
    return replace(predictor, card=predictor.card.model_copy(update={"normalisation": normalisation}))


def _layers(work: _Work, legend: Legend) -> list[Layer[Block]]:
    """Return the files that the blocks go to, the class map first."""
    nodata = work.settings.nodata
    result: list[Layer[Block]] = [code_layer(work.target, lambda block: layers.codes(block, nodata), legend)]
    if work.settings.probability:
        names = [item.name for item in work.classes]
        result.append(_share_layer(work.beside("probability.tif"), layers.probability, names))
    for name, values in (
        ("confidence", layers.confidence),
        ("entropy", layers.entropy),
        ("margin", layers.margin),
    ):
        if name in work.settings.uncertainty:
            result.append(_share_layer(work.beside(f"{name}.tif"), values, [name]))
    return result


def _share_layer(target: Path, values: Callable[[Block], NDArray[np.uint8]], bands: Sequence[str]) -> Layer[Block]:
    return Layer(target, values, bands, layers.NO_SHARE, scale=layers.SCALE)


def _write_derived(work: _Work, legend: Legend, grid: Grid, tags: dict[str, str]) -> None:
    """Write what is made of the finished map: filtered map, polygons, STAC item."""
    settings, shown = work.settings, work.target
    if settings.filtered:
        shown = work.beside("filtered.tif")
        pieces = filtered(work.target, len(work.classes), settings.majority, settings.minimum_unit)
        layer: Layer[Codes] = code_layer(shown, lambda piece: piece.codes, legend)
        own = {"LANDBALANCE_MAJORITY": settings.majority, "LANDBALANCE_MINIMUM_UNIT": settings.minimum_unit}
        counts = write_layers([layer], pieces, grid, {**tags, **{key: str(own[key]) for key in own if own[key]}})
        write_text(work.beside("filtered.qml"), style(legend))
        _log.info("%s: area of each class\n%s", shown, _areas(counts, legend, grid))
    if settings.polygons:
        count = write_polygons(shown, legend, work.beside("polygons.gpkg"))
        write_text(work.beside("polygons.qml"), polygon_style(legend))
        _log.info("%s: %d polygons", work.beside("polygons.gpkg"), count)
    if settings.stac:
        files = {ending: work.beside(ending) for ending in settings.endings if ending != "stac.json"}
        scene_files = scene_paths(work.scene, work.source)
        when = acquisition(work.scene.acquired, f"scene {work.name}")
        description = Description(work.name, when, grid, legend, files, work.bundle, work.card, scene_files)
        write_json(work.beside("stac.json"), stac_item(description, work.beside("stac.json")))


def _check_settings(work: _Work) -> None:
    settings, classes = work.settings, work.classes
    if settings.nodata < len(classes):
        raise UserError(
            f"map.nodata: {settings.nodata} is the code of the class {classes[settings.nodata].name}; "
            f"allowed: {len(classes)} … 255. Take 255."
        )
    if settings.stride is not None and settings.stride > work.card.tile_size:
        raise UserError(
            f"map.stride: {settings.stride} is more than a tile of the model ({work.card.tile_size} pixels), so pixels "
            f"between tiles would have no class; allowed: 1 … {work.card.tile_size}."
        )
    if settings.stac:
        acquisition(work.scene.acquired, f"scene {work.name}")


def _scene_for(card: Bundle, scene_name: str, dataset: Dataset, source: Path, bundle: Path) -> Scene:
    """Return the scene with the bands that the model wants, in its order, and with its date."""
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
    bands = {band: scene.bands[band] for band in card.bands}
    return scene.model_copy(update={"bands": bands, "acquired": acquired(scene, source)})


def _check_classes(card: Bundle, classes: Sequence[ClassInfo], bundle: Path) -> None:
    of_model, of_dataset = ([item.name for item in items] for items in (card.classes, classes))
    if of_model != of_dataset:
        raise UserError(
            f"{bundle}: the model's classes ({', '.join(of_model)}) are not those of the dataset "
            f"({', '.join(of_dataset)}). Train again, or undo the change of the classes."
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


def _blocks(reader: SceneReader, predictors: Sequence[Predictor], settings: Map) -> Iterator[Block]:
    card = predictors[0].card
    if card.task == "classification":
        size = card.tile_size
        stride = settings.stride or max(1, size // 4)
        _log.info("tiles of %d × %d pixels, %d apart, vote for each pixel", size, size, stride)
        return voted(reader, predictors, settings)
    _log.info(
        "windows of %d × %d pixels, %d pixels at each edge shared with the neighbour: %s",
        settings.window, settings.window, settings.overlap, settings.join,
    )  # fmt: skip
    return segmented(reader, predictors, settings)


def _with_progress(blocks: Iterable[Block], scene_name: str, grid: Grid) -> Iterator[Block]:
    with Progress(f"map {scene_name}", grid.width * grid.height, "pixel") as progress:
        for block in blocks:
            yield block
            progress.advance(block.valid.size)


def _tags(work: _Work) -> dict[str, str]:
    """Return where the map comes from; nothing that changes from run to run."""
    tags = {
        "TIFFTAG_SOFTWARE": f"landbalance {__version__}",
        "TIFFTAG_IMAGEDESCRIPTION": f"Land cover of {work.name}",
        "TIFFTAG_COPYRIGHT": work.attribution,
        "LANDBALANCE_SCENE": work.name,
        "LANDBALANCE_ACQUIRED": work.scene.acquired or "",
        "LANDBALANCE_EXPERIMENT": str(work.card.provenance.get("experiment", "")),
        "LANDBALANCE_ARCHITECTURE": work.card.model.architecture,
        "LANDBALANCE_BANDS": ", ".join(work.card.bands),
        "LANDBALANCE_MODEL_SHA256": digest(work.bundle / WEIGHTS),
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
