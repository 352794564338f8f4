"""A STAC item that describes a map: where and when, its classes, its files, and the model that made it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import relpath
from pathlib import Path
from typing import Any

import numpy as np
from rasterio.warp import transform_geom

from landbalance.bundle import CARD, WEIGHTS, Bundle
from landbalance.errors import UserError
from landbalance.map.geotiff import Legend
from landbalance.map.layers import NO_SHARE, SCALE
from landbalance.raster import Grid

_COG = "image/tiff; application=geotiff; profile=cloud-optimized"
_TITLES = {
    "tif": "Land cover",
    "filtered.tif": "Land cover, filtered",
    "probability.tif": "Probability of each class",
    "confidence.tif": "Probability of the class shown",
    "entropy.tif": "Entropy of the probabilities, over its largest value",
    "margin.tif": "Probability of the class shown less that of the second",
    "polygons.gpkg": "Patches with class and area",
}
_POINTS_A_SIDE = 9
"""Points of a footprint's side: a straight line of one CRS is a curve in another."""


@dataclass(frozen=True)
class Description:
    """What an item says.

    Parameters
    ----------
    name : str
        The scene's name.
    acquired : datetime
        When the scene was taken.
    grid : Grid
    legend : Legend
    files : dict
        Files of the map by the ending of their names.
    bundle : Path
        Folder of the model.
    card : Bundle
    scene_files : sequence of Path
        What was mapped.
    """

    name: str
    acquired: datetime
    grid: Grid
    legend: Legend
    files: dict[str, Path]
    bundle: Path
    card: Bundle
    scene_files: Sequence[Path]


def acquisition(text: str | None, what: str) -> datetime:
    """Return the time that `text` begins with or holds: 2017-02-16, 2017-02-16 10:21, 20170216T102101; UTC.

    Raises
    ------
    UserError
        When it holds no time, naming `what`.
    """
    match = re.search(r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d):?(\d\d)(?::?(\d\d))?)?(?!\d)", text or "")
    try:
        if match is not None:
            return datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        pass
    raise UserError(
        f"{what}: found {text or 'nothing'}, but a STAC item (map.stac) needs the time of the scene. Let it begin with "
        "a date, e.g. 2017-02-16 or 2017-02-16 10:21."
    )


def stac_item(description: Description, target: Path) -> dict[str, Any]:
    """Return the item as plain values, with addresses relative to the folder of `target`."""
    import pystac
    from pystac.extensions.classification import Classification, ClassificationExtension
    from pystac.extensions.mlm import MLMExtension
    from pystac.extensions.projection import ProjectionExtension

    grid, card = description.grid, description.card
    footprint = _footprint(grid)
    corners = np.array(footprint["coordinates"][0])
    item = pystac.Item(
        id=description.name,
        geometry=footprint,
        bbox=[*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist()],
        datetime=description.acquired,
        # The model extension wants the bands that a model takes described; STAC 1.1 does it here.
        properties={
            "title": f"Land cover of {description.name}",
            "bands": [{"name": band} for band in description.card.bands],
        },
    )
    code = grid.crs.to_authority()
    ProjectionExtension.ext(item, add_if_missing=True).apply(
        code=":".join(code) if code else None,
        wkt2=None if code else grid.crs.to_wkt(),
        shape=[grid.height, grid.width],
        transform=list(grid.transform)[:6],
        bbox=list(grid.bounds),
    )
    classes = [
        Classification.create(
            value=value, name=_identifier(entry.name), title=entry.name, color_hint=entry.colour[1:].upper()
        )
        for value, entry in enumerate(description.legend.classes)
    ]
    for ending, path in description.files.items():
        item.add_asset(_key(ending), _asset(ending, relpath(path, target.parent), card))
    for ending in ("tif", "filtered.tif"):
        if ending in description.files:
            nodata = Classification.create(value=description.legend.nodata, name="nodata", nodata=True)
            asset = item.assets[_key(ending)]
            ClassificationExtension.ext(asset, add_if_missing=True).apply(classes=[*classes, nodata])
    _describe_model(MLMExtension.ext(item, add_if_missing=True), card, classes)
    for key, name, roles in (("model", WEIGHTS, ["mlm:model", "mlm:weights"]), ("model-card", CARD, ["metadata"])):
        path = description.bundle / name
        extra = {"mlm:artifact_type": "safetensors"} if key == "model" else {}
        kind = "application/json" if name.endswith(".json") else "application/octet-stream"
        item.add_asset(
            key, pystac.Asset(relpath(path, target.parent), name, media_type=kind, roles=roles, extra_fields=extra)
        )
    for path in dict.fromkeys(description.scene_files):
        item.add_link(pystac.Link("derived_from", relpath(path, target.parent)))
    found: dict[str, Any] = item.to_dict(include_self_link=False, transform_hrefs=False)
    return found


def _key(ending: str) -> str:
    return {"tif": "map", "qml": "style"}.get(ending, ending.replace(".tif", "").replace(".", "-"))


def _asset(ending: str, href: str, card: Bundle) -> Any:
    import pystac

    if ending.endswith("qml"):
        return pystac.Asset(href, "QGIS style", media_type="application/xml", roles=["metadata"])
    if ending.endswith("gpkg"):
        return pystac.Asset(href, _TITLES[ending], media_type="application/geopackage+sqlite3", roles=["data"])
    asset = pystac.Asset(href, _TITLES[ending], media_type=_COG, roles=["data"])
    if ending not in ("tif", "filtered.tif"):
        names = [item.name for item in card.classes] if ending == "probability.tif" else [ending.split(".")[0]]
        asset.description = f"A value times {SCALE} is the quantity, from 0 to 1; {NO_SHARE} is nodata."
        asset.extra_fields["bands"] = [{"name": name, "data_type": "uint8", "nodata": NO_SHARE} for name in names]
    return asset


def _footprint(grid: Grid) -> dict[str, Any]:
    """Return the outline of a grid in WGS 84, counter-clockwise, as GeoJSON wants it."""
    along = np.linspace(0, 1, _POINTS_A_SIDE)[:-1]
    down = [(0, y) for y in along] + [(x, 1) for x in along] + [(1, 1 - y) for y in along] + [(1 - x, 0) for x in along]
    outline = [grid.transform @ (x * grid.width, y * grid.height) for x, y in (*down, down[0])]
    moved = transform_geom(grid.crs, "EPSG:4326", {"type": "Polygon", "coordinates": [outline]}, precision=7)
    ring = [list(map(float, point)) for point in moved["coordinates"][0]]
    x, y = np.array(ring).T
    if (x[:-1] * y[1:] - x[1:] * y[:-1]).sum() < 0:
        ring.reverse()
    return {"type": "Polygon", "coordinates": [ring]}


def _describe_model(model: Any, card: Bundle, classes: Sequence[Any]) -> None:
    import torch
    from pystac.extensions.mlm import (
        InputStructure,
        ModelInput,
        ModelOutput,
        ResultStructure,
        TaskType,
        ValueScaling,
        ValueScalingType,
    )
    from pystac.extensions.raster import DataType

    per_pixel = card.task == "segmentation"
    task = TaskType.SEMANTIC_SEGMENTATION if per_pixel else TaskType.SCENE_CLASSIFICATION
    size = card.tile_size
    scaling = [
        ValueScaling.create(ValueScalingType.Z_SCORE, mean=mean, stddev=std)
        for mean, std in zip(card.normalisation.mean, card.normalisation.std, strict=True)
    ]
    inputs = ModelInput.create(
        name="scene",
        bands=list(card.bands),
        input=InputStructure.create(
            [-1, len(card.bands), size, size], ["batch", "bands", "height", "width"], DataType.FLOAT32
        ),
    )
    inputs.properties["value_scaling"] = [each.to_dict() for each in scaling]
    shape, order = [-1, len(classes)], ["batch", "classes"]
    if per_pixel:
        shape, order = [*shape, size, size], [*order, "height", "width"]
    output = ModelOutput.create(
        name="land cover", tasks=[task], result=ResultStructure.create(shape, order, DataType.FLOAT32)
    )
    output.properties["classification:classes"] = [each.to_dict() for each in classes]
    model.apply(
        name=_identifier(str(card.provenance.get("experiment", card.model.architecture))),
        architecture=f"U-Net, {card.model.encoder}" if card.model.architecture == "unet" else card.model.architecture,
        tasks=[task],
        input=[inputs],
        output=[output],
        framework="pytorch",
        framework_version=torch.__version__.split("+")[0],
    )


def _identifier(name: str) -> str:
    """Return a name of letters, digits, hyphens and underscores, as the classification extension wants it."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "class"
