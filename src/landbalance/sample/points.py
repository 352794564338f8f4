"""The file that a person labels: a GeoPackage with the points, and how they were drawn.

Layers: `points` (the points, in random order, with a field to fill in), `drawn` (which stratum each point is from,
kept apart so that whoever labels does not see what the map says), `strata` (class, pixels and points of each), `about`
(maps, rule and seed).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
from numpy.typing import NDArray
from rasterio.crs import CRS

from landbalance.errors import UserError
from landbalance.files import placed

REFERENCE = "reference"
"""The field to fill in: name or code of the class that is on the ground."""


@dataclass(frozen=True)
class Stratum:
    """A part of the area that points were drawn from."""

    code: int
    name: str
    pixels: int
    hectares: float


@dataclass(frozen=True)
class Points:
    """Labelled points as they were read.

    Parameters
    ----------
    places : ndarray of float64, shape (n, 2)
        x and y in the CRS asked for.
    references : list of str or None
        What the person wrote; None where nothing.
    strata : tuple of Stratum or None
        The strata; None where the file does not say, having been made elsewhere.
    drawn : ndarray of int64, shape (n,), or None
        Code of each point's stratum.
    """

    places: NDArray[np.float64]
    references: list[str | None]
    strata: tuple[Stratum, ...] | None
    drawn: NDArray[np.int64] | None


def write_points(
    target: Path,
    places: NDArray[np.float64],
    drawn: NDArray[np.int64],
    crs: CRS,
    strata: Sequence[Stratum],
    about: Mapping[str, str],
) -> None:
    """Write the points to `target`, whole or not at all.

    Parameters
    ----------
    places : ndarray of float64, shape (n, 2)
    drawn : ndarray of int64, shape (n,)
        Code of each point's stratum.
    """
    numbers = np.arange(1, len(places) + 1)
    points = gpd.GeoDataFrame(
        {"point": numbers, REFERENCE: "", "note": ""}, geometry=gpd.points_from_xy(*places.T), crs=crs.to_wkt()
    )
    tables = {
        "drawn": pd.DataFrame({"point": numbers, "stratum": drawn}),
        "strata": pd.DataFrame(
            {
                "stratum": [item.code for item in strata],
                "name": [item.name for item in strata],
                "pixels": [item.pixels for item in strata],
                "hectares": [item.hectares for item in strata],
                "points": [int(np.count_nonzero(drawn == item.code)) for item in strata],
            }
        ),
        "about": pd.DataFrame({"key": list(about), "value": list(about.values())}),
    }
    with placed(target) as temporary, TemporaryDirectory(prefix=".", dir=target.parent) as folder:
        file = Path(folder) / "points.gpkg"  # GDAL wants that ending
        points.to_file(file, layer="points", driver="GPKG")
        for layer, table in tables.items():
            pyogrio.write_dataframe(table, file, layer=layer, driver="GPKG")
        file.replace(temporary)


def read_points(path: Path, crs: CRS) -> Points:
    """Return the points in `path`, in the CRS `crs`.

    A file from elsewhere needs one layer of points with a field `reference`.

    Raises
    ------
    UserError
        When the file is missing or damaged, or lacks the field, or the table of a drawn sample does not fit it.
    """
    layers = _layers(path)
    with_geometry = [name for name, geometry in layers.items() if geometry is not None]
    layer = "points" if "points" in layers else with_geometry[0] if len(with_geometry) == 1 else None
    if layer is None:
        raise UserError(f"{path}: has no layer `points`, but {', '.join(layers) or 'nothing'}. Name the layer so.")
    frame = gpd.read_file(path, layer=layer)
    if REFERENCE not in frame.columns:
        fields = ", ".join(column for column in frame.columns if column != "geometry")
        raise UserError(
            f"{path}: layer {layer} has no field `{REFERENCE}` with what is on the ground; it has: {fields}."
        )
    if frame.crs is None:
        raise UserError(f"{path}: layer {layer} has no CRS, so nothing says where the points lie.")
    frame = frame[~(frame.geometry.is_empty | frame.geometry.isna())]
    if not (frame.geom_type == "Point").all():
        raise UserError(f"{path}: layer {layer} holds {', '.join(sorted(set(frame.geom_type)))}; points are wanted.")
    moved = frame.geometry.to_crs(crs.to_wkt())
    strata, drawn = _design(path, frame) if {"strata", "drawn"} <= set(layers) else (None, None)
    return Points(
        np.stack([moved.x.to_numpy(), moved.y.to_numpy()], axis=1),
        [_text(value) for value in frame[REFERENCE]],
        strata,
        drawn,
    )


def _layers(path: Path) -> dict[str, str | None]:
    try:
        return {str(name): geometry for name, geometry in pyogrio.list_layers(path)}
    except pyogrio.errors.DataSourceError as error:
        raise UserError(f"{path}: no file of points, or it cannot be read ({error}).") from error


def _design(path: Path, frame: gpd.GeoDataFrame) -> tuple[tuple[Stratum, ...], NDArray[np.int64]]:
    """Return strata and each point's stratum."""
    table = pyogrio.read_dataframe(path, layer="strata")
    columns = [table[name].tolist() for name in ("stratum", "name", "pixels", "hectares")]
    strata = tuple(Stratum(*values) for values in zip(*columns, strict=True))
    drawn = pyogrio.read_dataframe(path, layer="drawn").set_index("point")["stratum"]
    if "point" not in frame.columns or frame["point"].duplicated().any():
        raise UserError(f"{path}: the points' numbers (field `point`) are gone or repeated. Restore them.")
    if strange := sorted(set(frame["point"]) - set(drawn.index)):
        raise UserError(
            f"{path}: point {strange[0]} was not drawn ({len(strange)} such points). Added points are no random "
            "sample: remove them."
        )
    return strata, drawn.loc[frame["point"]].to_numpy(np.int64)


def _text(value: object) -> str | None:
    """Return a label as text; whole numbers without a fraction; None for nothing."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or None
