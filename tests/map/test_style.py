from xml.etree import ElementTree

from landbalance.config import ClassInfo
from landbalance.map.geotiff import Legend
from landbalance.map.style import style


def test_names_and_colours_as_qgis_reads_them() -> None:
    classes = [
        ClassInfo(name='Wald & <Wiese> "nass"', colour="#1B7837", values=[1]),
        ClassInfo(name="Água", colour="#2166ac", values=[2]),
    ]
    text = style(Legend(classes, 255))
    root = ElementTree.fromstring(text.split("\n", 1)[1])
    assert text.startswith("<!DOCTYPE qgis")
    renderer = root.find("pipe/rasterrenderer")
    assert (renderer.get("type"), renderer.get("band")) == ("paletted", "1")
    entries = [(item.get("value"), item.get("label"), item.get("color")) for item in root.iter("paletteEntry")]
    assert entries == [("0", 'Wald & <Wiese> "nass"', "#1b7837"), ("1", "Água", "#2166ac")]
