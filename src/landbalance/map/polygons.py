"""Patches of a map as polygons with class and area, in a GeoPackage."""

from pathlib import Path
from xml.etree import ElementTree

import rasterio
from rasterio.features import shapes

from landbalance.files import placed
from landbalance.map.geotiff import Legend

LAYER = "land cover"


def write_polygons(source: Path, legend: Legend, target: Path) -> int:
    """Write a polygon for each patch of the class map at `source`, and return how many there are.

    Pixels that share an edge are one patch. Fields: `code`, `class` and `area_ha`, hectares in the plane of the CRS,
    or on the ellipsoid for a geographic one. All polygons are held in memory.

    Raises
    ------
    UserError
        When the file cannot be written.
    """
    import geopandas
    from pyproj import Geod
    from shapely.geometry import shape

    with rasterio.open(source) as raster:
        mask = raster.read_masks(1)
        found = [(shape(patch), int(code)) for patch, code in shapes(raster.read(1), mask, transform=raster.transform)]
        crs = raster.crs
    patches = [patch for patch, _ in found]
    codes = [code for _, code in found]
    if crs.is_projected:
        square_metres = [patch.area * crs.linear_units_factor[1] ** 2 for patch in patches]
    else:
        ellipsoid = Geod(ellps="WGS84")
        square_metres = [abs(ellipsoid.geometry_area_perimeter(patch)[0]) for patch in patches]
    frame = geopandas.GeoDataFrame(
        {
            "code": codes,
            "class": [legend.classes[code].name for code in codes],
            "area_ha": [area / 10_000 for area in square_metres],
        },
        geometry=patches,
        crs=crs.to_wkt(),
    )
    with placed(target) as temporary:
        named = temporary.with_suffix(".gpkg")  # GDAL warns of other endings
        try:
            frame.to_file(named, driver="GPKG", layer=LAYER, engine="pyogrio", geometry_type="Polygon")
            named.replace(temporary)
        finally:
            named.unlink(missing_ok=True)
    return len(frame)


def polygon_style(legend: Legend) -> str:
    """Return a QGIS layer style (QML) that gives polygons the colour of their `code`."""
    root = ElementTree.Element("qgis", version="3.28", styleCategories="Symbology")
    renderer = ElementTree.SubElement(root, "renderer-v2", type="categorizedSymbol", attr="code", enableorderby="0")
    categories = ElementTree.SubElement(renderer, "categories")
    symbols = ElementTree.SubElement(renderer, "symbols")
    for code, item in enumerate(legend.classes):
        name = str(code)
        ElementTree.SubElement(
            categories, "category", value=name, type="long", symbol=name, label=item.name, render="true"
        )
        symbol = ElementTree.SubElement(symbols, "symbol", name=name, type="fill", alpha="1")
        layer = ElementTree.SubElement(symbol, "layer", {"class": "SimpleFill", "enabled": "1"})
        options = ElementTree.SubElement(layer, "Option", type="Map")
        red, green, blue, _ = legend.colours[code]
        for key, value in (("color", f"{red},{green},{blue},255"), ("style", "solid"), ("outline_style", "no")):
            ElementTree.SubElement(options, "Option", name=key, type="QString", value=value)
    ElementTree.indent(root)
    return "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n" + ElementTree.tostring(root, "unicode") + "\n"
