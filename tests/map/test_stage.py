"""The stage as a whole: what it refuses, says and leaves behind."""

import hashlib
import logging
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray

from landbalance import __version__
from landbalance.bundle import WEIGHTS
from landbalance.config import ClassInfo, Map
from landbalance.errors import UserError
from landbalance.map import run

SceneOf = Callable[..., NDArray[np.uint16]]


@pytest.fixture
def ready(scenery: Any, scene_of: SceneOf) -> Any:
    scenery.write(scene_of((np.arange(40 * 50) % 3).astype(np.uint8).reshape(40, 50)), acquired="2017-02-16")
    scenery.use_nearest()
    return scenery


def test_map_and_style_and_nothing_else(ready: Any) -> None:
    ready.run()
    assert sorted(path.name for path in ready.target.parent.iterdir()) == ["scene.qml", "scene.tif"]
    root = ElementTree.fromstring((ready.target.parent / "scene.qml").read_text("utf-8").split("\n", 1)[1])
    assert [item.get("label") for item in root.iter("paletteEntry")] == ["Wald & <Wiese>", "Water", "Farmland"]


def test_provenance(ready: Any) -> None:
    ready.run()
    with rasterio.open(ready.target) as raster:
        tags = raster.tags()
    assert tags["TIFFTAG_SOFTWARE"] == f"landbalance {__version__}"
    assert tags["TIFFTAG_COPYRIGHT"] == "© Someone, 2017"
    assert (tags["LANDBALANCE_SCENE"], tags["LANDBALANCE_EXPERIMENT"]) == ("scene", "havel")
    assert tags["LANDBALANCE_ACQUIRED"] == "2017-02-16"
    assert tags["LANDBALANCE_MODEL_SHA256"] == hashlib.sha256((ready.bundle / WEIGHTS).read_bytes()).hexdigest()
    assert "TIFFTAG_DATETIME" not in tags


def test_same_model_same_bytes(scenery: Any, scene_of: SceneOf) -> None:
    scenery.write(scene_of(np.random.default_rng(0).integers(0, 3, (50, 50), dtype=np.uint8)))
    scenery.save()
    first, second = scenery.folder / "a.tif", scenery.folder / "b.tif"
    scenery.run(first, window=32, overlap=8)
    scenery.run(second, window=32, overlap=8)
    assert first.read_bytes() == second.read_bytes()


def test_colours_are_the_configurations(ready: Any) -> None:
    recoloured = [
        item.model_copy(update={"colour": f"#00000{code}"}) for code, item in enumerate(ready.dataset.classes)
    ]
    ready.dataset = ready.dataset.model_copy(update={"classes": recoloured})
    ready.run()
    with rasterio.open(ready.target) as raster:
        assert [raster.colormap(1)[code] for code in range(3)] == [(0, 0, code, 255) for code in range(3)]


def test_log_says_areas_and_decisions(ready: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ready.run(window=32, overlap=4)
    # 2000 pixels of 100 m²: codes 0 and 1 on 667 each, code 2 on 666.
    found = {" ".join(line.split()) for line in caplog.text.splitlines()}
    assert "Water 33.35% 6.7 ha" in found
    assert "nodata: 0 of 2,000 pixels" in found
    assert "windows of 32 × 32 pixels" in caplog.text


def test_nodata_that_is_a_class(ready: Any) -> None:
    with pytest.raises(UserError, match=r"map\.nodata: 2 is the code of the class Farmland; allowed: 3 … 255"):
        ready.run(nodata=2)


def test_missing_bands_are_named(ready: Any) -> None:
    ready.use_nearest(bands=["B0", "B8A", "B12"])
    with pytest.raises(UserError, match=r"needs the bands B8A, B12, which scene scene does not have \(it has B0, B1\)"):
        ready.run()


def test_other_resolution(ready: Any) -> None:
    ready.use_nearest(resolution=30.0)
    with pytest.raises(UserError, match=r"trained on pixels of 30, scene scene has pixels of 10"):
        ready.run()


def test_resolution_of_no_grid_is_not_compared(ready: Any) -> None:
    ready.use_nearest(resolution=None)
    assert ready.run().shape == (40, 50)


def test_other_classes(ready: Any) -> None:
    ready.use_nearest(classes=[ClassInfo(name=n, colour="#00000" + n, values=[n]) for n in "abc"])
    with pytest.raises(UserError, match=r"the model's classes \(a, b, c\) are not those of the dataset"):
        ready.run()


def test_unknown_scene(ready: Any) -> None:
    with pytest.raises(UserError, match="no scene is called other; there are: scene"):
        run("other", ready.dataset, Map(), ready.source, ready.bundle, ready.target)


def test_missing_file_leaves_no_folder(ready: Any) -> None:
    (ready.source / "scene.tif").unlink()
    with pytest.raises(UserError, match=r"scene\.tif: not found"):
        ready.run()
    assert not ready.target.parent.exists()
