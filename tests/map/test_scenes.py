"""Any scene with a bundle and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from landbalance.cli import main
from landbalance.config import Map
from landbalance.config.scenes import Mask
from landbalance.errors import UserError
from landbalance.map import run_bundle


@pytest.fixture
def ready(scenery: Any, scene_of: Any) -> Any:
    """Return a scenery whose model wants B2, which holds the classes, and B8A; the file has B8A, B1, B2."""
    scenery.right = np.random.default_rng(0).integers(0, 3, (30, 40), dtype=np.uint8)
    informative, constant = scene_of(scenery.right)
    scenery.write(np.stack([constant, constant + 50, informative]))
    scenery.use_nearest(bands=["B2", "B8A"])
    scenery.stack = scenery.source / "scene.tif"
    return scenery


def described(path: Path, names: list[str]) -> Path:
    with rasterio.open(path, "r+") as raster:
        raster.descriptions = names
    return path


def split(ready: Any, folder: str, names: list[str]) -> Path:
    """Write each band to a file of its own."""
    target = ready.folder / folder
    target.mkdir()
    with rasterio.open(ready.stack) as raster:
        for number, name in enumerate(names, 1):
            with rasterio.open(target / name, "w", **{**raster.profile, "count": 1}) as single:
                single.write(raster.read(number), 1)
    return target


def found(path: Path) -> Any:
    with rasterio.open(path) as raster:
        return raster.read(1)


def test_stack_with_names_inside(ready: Any) -> None:
    described(ready.stack, ["B8A", "B1", "B2"])
    maps = run_bundle(ready.bundle, [str(ready.stack)], Map(window=16, overlap=4), ready.folder / "maps")
    assert maps == [ready.folder / "maps" / "scene.tif"]
    assert (found(maps[0]) == ready.right).all()


def test_folder_with_a_file_per_band(ready: Any) -> None:
    folder = split(
        ready, "S2", ["T33_20170216T102101_B8A.tif", "T33_20170216T102101_B1.tif", "T33_20170216T102101_B2.tif"]
    )
    (map_,) = run_bundle(ready.bundle, [str(folder)], Map(), ready.folder / "maps")
    assert (found(map_) == ready.right).all()
    with rasterio.open(map_) as raster:
        assert raster.tags()["LANDBALANCE_ACQUIRED"] == "2017-02-16 10:21:01 UTC"


def test_pairs_on_the_command_line(ready: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = f"B2={ready.stack}:3,B8A={ready.stack}:1"
    command = ["map", "--model", str(ready.bundle), pairs, "--out", str(ready.folder / "maps")]
    assert main([*command, "--set", "window=16", "--set", "overlap=4", "--set", "uncertainty=[margin]"]) == 0
    printed = Path(capsys.readouterr().out.strip())
    assert (found(printed) == ready.right).all()
    assert (printed.parent / "scene.margin.tif").is_file()


def test_a_mask_is_a_file_or_a_band_like_the_others(ready: Any, tmp_path: Path) -> None:
    """C04: what it takes away is nodata in the map, and so is what had no data before."""
    codes = np.zeros((30, 40), np.uint8)
    codes[5:9, 10:20], codes[20:, :4] = 2, 8
    with rasterio.open(ready.stack) as raster:
        profile, bands = raster.profile, raster.read()
    bands[:, :3] = 0
    with rasterio.open(tmp_path / "stack.tif", "w", **{**profile, "count": 4}) as raster:
        raster.write(np.concatenate([bands, codes[None].astype(bands.dtype)]))
        raster.descriptions = ("B8A", "B1", "B2", "clouds")
    with rasterio.open(tmp_path / "clouds.tif", "w", **{**profile, "count": 1, "dtype": "uint8"}) as raster:
        raster.write(codes, 1)
    stack, folder = tmp_path / "stack.tif", split(ready, "apart", ["x_B8A.tif", "x_B1.tif", "x_B2.tif"])
    (folder / "x_clouds.tif").write_bytes((tmp_path / "clouds.tif").read_bytes())
    with rasterio.open(folder / "x_B2.tif", "r+") as raster:
        raster.write(bands[2], 1)
    with rasterio.open(folder / "x_B8A.tif", "r+") as raster:
        raster.write(bands[0], 1)
    expected = np.where(codes == 2, 255, ready.right)
    expected[:3] = 255
    pairs = f"B2={stack}:3,B8A={stack}:1"
    for scene, band in (
        (str(stack), "clouds"), (str(stack), str(tmp_path / "clouds.tif")), (str(folder), "clouds"),
        (f"{pairs},quality={stack}:4", "quality"), (pairs, f"{stack}:4"),
    ):  # fmt: skip
        mask = Mask(band=band, values=[2])
        (map_,) = run_bundle(ready.bundle, [scene], Map(window=16, overlap=4), ready.folder / "maps", mask=mask)
        assert (found(map_) == expected).all()
    with pytest.raises(UserError, match=r"mask\.band: cloud\.tif is neither a band of .*stack\.tif nor a file"):
        run_bundle(ready.bundle, [str(stack)], Map(), ready.folder / "m", mask=Mask(band="cloud.tif", values=[2]))


def test_a_mask_goes_with_a_bundle_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "havel", "scene", "--mask", "SCL"]) == 1
    assert "--mask SCL: only with --model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "message"),
    [("windo=16", "windo: no such setting"), ("window=[", "not valid YAML"), ("window=ten", "found 'ten'")],
)
def test_wrong_setting(ready: Any, setting: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "--model", str(ready.bundle), str(ready.stack), "--set", setting]) == 1
    assert message in capsys.readouterr().err


def test_scenes_and_a_mosaic(ready: Any) -> None:
    described(ready.stack, ["B8A", "B1", "B2"])
    folder = split(ready, "other", ["x.B8A.tif", "x.B1.tif", "x.B2.tif"])
    maps = run_bundle(ready.bundle, [str(ready.stack), str(folder)], Map(mosaic=True), ready.folder / "maps")
    assert [path.name for path in maps] == ["scene.tif", "other.tif", "mosaic.tif"]
    assert (found(maps[-1]) == ready.right).all()


def test_model_of_another_resolution_resamples(ready: Any) -> None:
    described(ready.stack, ["B8A", "B1", "B2"])
    ready.use_nearest(bands=["B2", "B8A"], resolution=20.0)
    (map_,) = run_bundle(ready.bundle, [str(ready.stack)], Map(), ready.folder / "maps")
    with rasterio.open(map_) as raster:
        assert (raster.shape, raster.res) == ((15, 20), (20, 20))


def test_what_does_not_fit_is_said_before_anything_is_mapped(ready: Any) -> None:
    maps = ready.folder / "maps"

    def refused(scenes: list[str], message: str, **settings: Any) -> None:
        with pytest.raises(UserError, match=message):
            run_bundle(ready.bundle, scenes, Map(**settings), maps)
        assert not maps.exists()

    refused([str(ready.stack)], r"its 3 bands have no names .* the model needs B2, B8A")
    described(ready.stack, ["B8A", "B1", "B02"])
    refused([str(ready.stack)], r"needs the bands B2, which are not there \(found: B8A, B1, B02\)")
    described(ready.stack, ["B8A", "B2", "B2"])
    refused([str(ready.stack)], r"several bands are called B2")
    described(ready.stack, ["B8A", "B1", "B2"])
    twice = split(ready, "twice", ["a_B2.tif", "b_B2.tif", "B8A.tif"])
    refused([str(ready.stack), str(twice)], r"several files could be band B2: a_B2\.tif, b_B2\.tif")
    refused([str(ready.stack)] * 2, "several scenes are called scene")
    refused(["nowhere.tif"], "no such file or folder")
    refused([f"B2={ready.stack}:3,B8A"], "found B8A where name=file is wanted")
    refused([f"B2={ready.stack}:3,B2={ready.stack}"], "band B2 is given twice")
    refused([str(ready.stack)], "scene scene: found nothing, but a STAC item", stac=True)
