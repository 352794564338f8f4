"""The style file beside a map: class names and colours as QGIS shows them without further ado."""

from xml.etree import ElementTree

from landbalance.map.geotiff import Legend

_HEAD = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"


def style(legend: Legend) -> str:
    """Return a QGIS layer style (QML) for a raster with the codes of `legend` in its band 1."""
    root = ElementTree.Element("qgis", version="3.28", styleCategories="Symbology")
    pipe = ElementTree.SubElement(root, "pipe")
    renderer = ElementTree.SubElement(
        pipe, "rasterrenderer", type="paletted", band="1", opacity="1", alphaBand="-1", nodataColor=""
    )
    ElementTree.SubElement(renderer, "rasterTransparency")
    palette = ElementTree.SubElement(renderer, "colorPalette")
    for code, item in enumerate(legend.classes):
        ElementTree.SubElement(
            palette, "paletteEntry", value=str(code), label=item.name, color=item.colour.lower(), alpha="255"
        )
    ElementTree.SubElement(pipe, "brightnesscontrast", brightness="0", contrast="0", gamma="1")
    ElementTree.SubElement(pipe, "huesaturation", saturation="0", grayscaleMode="0", colorizeOn="0")
    # Neighbours of codes have no mean: QGIS must not smooth when it zooms.
    ElementTree.SubElement(pipe, "rasterresampler", maxOversampling="1")
    ElementTree.SubElement(root, "blendMode").text = "0"
    ElementTree.indent(root)
    return _HEAD + ElementTree.tostring(root, encoding="unicode") + "\n"
