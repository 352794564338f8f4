"""Find scenes in a STAC catalogue and write them down as sources and scenes of a dataset.

What comes out is text for the configuration, not a live query: the scenes that are mapped stay the same until somebody
edits them, and the stage `download` fetches them as any other source.
"""

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from landbalance.config.scenes import Mask
from landbalance.errors import UserError

_log = logging.getLogger(__name__)

CATALOGUES = {
    "copernicus": "https://stac.dataspace.copernicus.eu/v1",
    "earth-search": "https://earth-search.aws.element84.com/v1",
    "planetary-computer": "https://planetarycomputer.microsoft.com/api/stac/v1",
    "usgs-landsat": "https://landsatlook.usgs.gov/stac-server",
}

_MOST_ITEMS = 1000
_TIMEOUT = 60.0  # seconds
_ADDRESS = re.compile(r"^(https?|s3|gs|file)://")
_MULTIHASHES = {"1220": ("sha256", 64), "d50110": ("md5", 32)}
_SIGNED_HOST = ".blob.core.windows.net"


@dataclass(frozen=True)
class Wanted:
    """What to look for.

    Parameters
    ----------
    api : str
        The address of a STAC API, or a name in `CATALOGUES`.
    collection : str
        For example ``sentinel-2-l2a``.
    area : str
        West, south, east and north in degrees with commas between, or a vector file.
    dates : str
        A day, or the first and the last one: ``2023-05-01/2023-09-30``.
    bands : sequence of str
        Keys of assets or common names of bands, in the order of the model's input; ``NIR=nir`` gives a name.
    cloud : float or None
        Most cloud cover in percent.
    mask : str or None
        An asset that tells clouds: ``scl`` of Sentinel-2 or ``qa_pixel`` of Landsat.
    limit : int or None
        How many scenes at most; the least cloudy ones are taken.
    """

    api: str
    collection: str
    area: str
    dates: str
    bands: Sequence[str]
    cloud: float | None = None
    mask: str | None = None
    limit: int | None = None


def search(wanted: Wanted) -> str:
    """Return YAML with the `sources` and `scenes` of all scenes that are wanted, oldest first.

    Raises
    ------
    UserError
        When the catalogue cannot be asked, nothing is found, or a scene lacks a band.
    """
    try:
        from pystac_client.exceptions import APIError
    except ImportError as error:
        raise UserError(
            "landbalance search needs a package that is not installed. Install it: pip install 'landbalance[stac]'."
        ) from error
    mask = _mask(wanted.mask) if wanted.mask else {}
    try:
        collection, items = _found(wanted)
    except APIError as error:
        raise UserError(
            f"{wanted.api}: the catalogue answered: {_first_line(error)}. Check the address, the collection and the "
            "network (proxy settings: https_proxy)."
        ) from error
    rights = {"licence": _licence(collection), "attribution": _attribution(collection)}
    sources: list[dict[str, Any]] = []
    scenes: dict[str, Any] = {}
    for item in items:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", item.id)[:64]
        assets = _assets(item, wanted)
        places = {key: _place(name, asset) for key, asset in assets.items()}
        sources += [_source(assets[key], places[key], wanted.api) | rights for key in assets]
        scenes[name] = _scene(item, assets, places, wanted.mask, mask)
        _log.info("%s: %s", name, scenes[name]["acquired"])
    _log.info("%d scenes, %d files", len(scenes), len(sources))
    head = f"# Found in {wanted.api} on {datetime.now(UTC):%Y-%m-%d}; paste it below a dataset's name.\n"
    return head + yaml.safe_dump(
        {"sources": sources, "scenes": scenes},
        sort_keys=False,
        allow_unicode=True,
        width=1000,
        default_flow_style=False,
    )


def _found(wanted: Wanted) -> tuple[Any, list[Any]]:
    """Return the collection and the wanted items, oldest first."""
    from pystac_client import Client
    from pystac_client.conformance import ConformanceClasses
    from pystac_client.stac_api_io import StacApiIO
    from urllib3.util import Retry

    url = CATALOGUES.get(wanted.api, wanted.api)
    if not _ADDRESS.match(url):
        raise UserError(f"--api {wanted.api}: allowed: an address, or one of {', '.join(CATALOGUES)}.")
    patience = Retry(total=5, backoff_factor=1, status_forcelist=(429, 502, 503, 504), allowed_methods=None)
    client = Client.open(url, stac_io=StacApiIO(max_retries=patience, timeout=_TIMEOUT))
    collection = client.get_collection(wanted.collection)
    if collection is None:
        raise UserError(f"{wanted.api}: it has no collection {wanted.collection}. See its list: {url}/collections.")
    query = None
    if wanted.cloud is not None and client.conforms_to(ConformanceClasses.QUERY):
        query = {"eo:cloud_cover": {"lte": wanted.cloud}}
    items = list(
        client.search(
            collections=[wanted.collection],
            datetime=wanted.dates,
            query=query,
            max_items=_MOST_ITEMS,
            **_area(wanted.area),
        ).items()
    )
    if len(items) == _MOST_ITEMS:
        _log.warning("only the first %d scenes were looked at; narrow the search", _MOST_ITEMS)
    if wanted.cloud is not None:
        untold = sum(_cloud(item) is None for item in items)
        if untold:
            _log.warning("%d of %d scenes do not say how cloudy they are: left out", untold, len(items))
        items = [item for item in items if _cloudiness(item) <= wanted.cloud]
    if not items:
        raise UserError(
            f"{wanted.api}: there is no scene of {wanted.collection} in {wanted.area} at {wanted.dates}"
            + (f" with at most {wanted.cloud:g} % of cloud" if wanted.cloud is not None else "")
            + ". Widen the area, the dates or the cloud cover."
        )
    chosen = sorted(items, key=lambda item: (_cloudiness(item), item.id))[: wanted.limit]
    return collection, sorted(chosen, key=lambda item: (_time(item), item.id))


def _area(area: str) -> dict[str, Any]:
    """Return the area as a parameter of the search."""
    if re.fullmatch(r"[-+\d.,\s]+", area):
        try:
            west, south, east, north = (float(part) for part in area.split(","))
        except ValueError:
            raise UserError(f"--area {area}: wanted: west,south,east,north in degrees, or a vector file.") from None
        if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
            raise UserError(f"--area {area}: wanted: west,south,east,north in degrees, west and south first.")
        return {"bbox": (west, south, east, north)}
    import geopandas

    try:
        shapes = geopandas.read_file(Path(area).expanduser())
    except Exception as error:  # drivers have errors of their own
        raise UserError(f"--area {area}: cannot be read as a vector file: {_first_line(error)}.") from error
    if shapes.crs is None:
        raise UserError(f"--area {area}: the file says no CRS. Give it one, or the bounds in degrees.")
    hull = shapes.to_crs("EPSG:4326").geometry.union_all().convex_hull
    if hull.is_empty:
        raise UserError(f"--area {area}: there is no geometry in it.")
    return {"intersects": hull.__geo_interface__}


def _assets(item: Any, wanted: Wanted) -> dict[str, Any]:
    """Return the assets of an item by the names of the bands, and the mask's by its own."""
    named = [band.partition("=")[::2] for band in wanted.bands]
    assets = {name: _asset(item, asset or name) for name, asset in named}
    if len(assets) < len(named):
        raise UserError(f"--bands {' '.join(wanted.bands)}: a name stands there twice.")
    return assets | ({wanted.mask: _asset(item, wanted.mask)} if wanted.mask else {})


def _asset(item: Any, wanted: str) -> Any:
    """Return the asset with a key, or the one that has a single band of a name or common name."""
    if wanted in item.assets:
        return item.assets[wanted]
    found = {key: asset for key, asset in item.assets.items() if _is_band(asset, wanted)}
    # Some catalogues hold each band as JPEG 2000, too.
    found = {key: asset for key, asset in found.items() if "tiff" in (asset.media_type or "")} or found
    if len(found) != 1:
        what = f"several: {', '.join(found)}" if found else f"none; there are {', '.join(sorted(item.assets))}"
        raise UserError(f"--bands: asset or band {wanted} of the scene {item.id}: {what}.")
    return next(iter(found.values()))


def _is_band(asset: Any, wanted: str) -> bool:
    bands = asset.extra_fields.get("bands") or asset.extra_fields.get("eo:bands") or []
    names = {band.get(key) for band in bands for key in ("name", "common_name", "eo:common_name")}
    return len(bands) == 1 and wanted in names


def _place(scene: str, asset: Any) -> str:
    return f"{scene}/{PurePosixPath(unquote(urlsplit(asset.href).path)).name}"


def _source(asset: Any, place: str, api: str) -> dict[str, Any]:
    """Return an asset as a source of the configuration."""
    others = [other.get("href", "") for other in asset.extra_fields.get("alternate", {}).values()]
    addresses = [href for href in dict.fromkeys([asset.href, *others]) if _ADDRESS.match(href)]
    if not addresses:
        raise UserError(f"{asset.href}: an asset that cannot be fetched; allowed: https, s3, gs and file addresses.")
    addresses = [_unsigned(address) for address in addresses]
    source: dict[str, Any] = {"url": addresses[0]}
    signs = urlsplit(CATALOGUES.get(api, api)).hostname == urlsplit(CATALOGUES["planetary-computer"]).hostname
    if signs and any(_in_azure(address) for address in addresses):
        source["signing"] = "planetary-computer"
    if addresses[1:]:
        source["mirrors"] = addresses[1:]
    return source | {"name": place} | _checksum(asset)


def _unsigned(address: str) -> str:
    """Return an address of Azure's storage without a signature, which is a secret and expires."""
    signed = _in_azure(address) and "sig" in parse_qs(urlsplit(address).query)
    return address.partition("?")[0] if signed else address


def _in_azure(address: str) -> bool:
    return (urlsplit(address).hostname or "").endswith(_SIGNED_HOST)


def _checksum(asset: Any) -> dict[str, Any]:
    """Return an asset's checksum, which STAC gives as a multihash."""
    value = str(asset.extra_fields.get("file:checksum", "")).lower()
    for prefix, (algorithm, digits) in _MULTIHASHES.items():
        if re.fullmatch(f"{prefix}[0-9a-f]{{{digits}}}", value):
            return {algorithm: value.removeprefix(prefix)}
    return {"unverified": True}


def _scene(
    item: Any, assets: dict[str, Any], places: dict[str, str], mask: str | None, codes: dict[str, Any]
) -> dict[str, Any]:
    """Return an item as a scene of the configuration."""
    scene: dict[str, Any] = {"bands": {name: places[name] for name in assets if name != mask}}
    if mask:
        scene["mask"] = {"band": places[mask], **codes}
    rasters = [_raster(assets[name]) for name in scene["bands"]]
    nodata = {raster.get("nodata") for raster in rasters}
    if len(nodata) == 1 and isinstance(value := nodata.pop(), (int, float)):
        scene["nodata"] = value
    scene |= _conversion(item, rasters)
    cloud = f", {_cloud(item):.0f} % cloud" if _cloud(item) else ""
    return scene | {"acquired": f"{_time(item):%Y-%m-%d %H:%M} UTC, {item.collection_id}{cloud}"}


def _mask(asset: str) -> dict[str, Any]:
    """Return the codes of a mask's missing pixels, as settings."""
    usual = {"scl": "SCL", "qa_pixel": "QA_PIXEL"}.get(asset.lower())
    if usual is None:
        raise UserError(f"--mask {asset}: allowed: scl (Sentinel-2) or qa_pixel (Landsat), as the catalogue writes it.")
    values, bits = Mask(band=usual).codes
    return {"values": values} if values else {"bits": [bit for bit in range(32) if bits >> bit & 1]}


def _raster(asset: Any) -> dict[str, Any]:
    """Return what an asset says of its pixels, in either version of the raster extension."""
    bands = asset.extra_fields.get("raster:bands") or asset.extra_fields.get("bands") or [{}]
    own = {key.removeprefix("raster:"): value for key, value in bands[0].items()}
    return {
        key: own.get(key, asset.extra_fields.get(f"raster:{key}", asset.extra_fields.get(key)))
        for key in ("nodata", "scale", "offset")
    }


def _conversion(item: Any, rasters: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return scale and offset that make reflectance × 10,000 of the files' numbers, where they are not that already.

    The scene's own metadata decide, never its date: what its bands say of themselves, or else the processing
    baseline, since 04.00 of which Sentinel-2 adds 1000 to all numbers.
    """
    stated = {(raster["scale"] or 1.0, raster["offset"] or 0.0) for raster in rasters}
    if len(stated) > 1:
        _log.warning("%s: its bands differ in scale or offset; their numbers stay as they are", item.id)
        return {}
    scale, offset = stated.pop()
    baseline = item.properties.get("s2:processing_baseline")
    if baseline is not None:
        # Earth Search states an offset also where it has taken it away, or where there never was one.
        shifted = str(baseline) >= "04.00" and item.properties.get("earthsearch:boa_offset_applied") is not True
        scale, offset = (scale if scale != 1 else 1e-4), (offset or -0.1) if shifted else 0.0
    elif (scale, offset) == (1.0, 0.0):
        return {}
    scale, offset = round(scale * 10_000, 6), round(offset * 10_000, 6)
    return ({"scale": scale} if scale != 1 else {}) | ({"offset": offset} if offset != 0 else {})


def _cloud(item: Any) -> float | None:
    """Return the cloud cover in percent, None where it is not told."""
    cover = item.properties.get("eo:cloud_cover")
    return None if cover is None else float(cover)


def _cloudiness(item: Any) -> float:
    """Return what scenes are ordered by: their cloud cover, those that do not tell it last."""
    cover = _cloud(item)
    return math.inf if cover is None else cover


def _time(item: Any) -> datetime:
    when: datetime = item.datetime or item.common_metadata.start_datetime
    return when


def _licence(collection: Any) -> str:
    links = [link.href for link in collection.links if link.rel == "license"]
    if collection.license in ("proprietary", "various", "other") and links:
        return str(links[0])
    return str(collection.license)


def _attribution(collection: Any) -> str:
    makers = [item.name for item in collection.providers or [] if {"producer", "licensor"} & set(item.roles or [])]
    return f"{collection.title or collection.id}: {', '.join(dict.fromkeys(makers)) or 'see its licence'}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
