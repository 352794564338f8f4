"""Sentinel-2 and Landsat as their agencies deliver them: bands by name, values by the product's own metadata."""

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import products
from landbalance.config import Scene
from landbalance.errors import UserError
from landbalance.raster import acquired, is_product, open_scene, product_above, scene_paths

BANDS = ["B02", "B8A", "B01"]


def numbers(start: int = 1, **sizes: int) -> dict[str, NDArray[np.uint16]]:
    """Return numbers of bands whose pixels have these sizes, all different."""
    return {
        band: (np.arange((products.SIDE // size) ** 2, dtype=np.uint16) + start).reshape(products.SIDE // size, -1)
        for band, size in sizes.items()
    }


SENTINEL2 = {"B02": 10, "B8A": 20, "B01": 60}
RAISED = {"B01": -1000, "B02": -1000, "B8A": -1000}


def read(scene: Scene, source: Path) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    with open_scene(scene, source, None, "nearest") as reader:
        assert reader.dtype == np.uint16
        return reader.read(0, 0, reader.grid.height, reader.grid.width)


def repeated(values: NDArray[Any], times: int) -> NDArray[Any]:
    return np.kron(values, np.ones((times, times), values.dtype))


@pytest.mark.parametrize("level", ["L1C", "L2A"])
def test_both_baselines_give_the_same_values(tmp_path: Path, level: str) -> None:
    """C22: the offset is removed by each product's own metadata; the dates are the other way round."""
    dark = numbers(**SENTINEL2)
    before = products.sentinel2(tmp_path / "a", level, "03.01", dark, start="2024-05-12T10:20:21.024Z")
    raised = {band: values + 1000 for band, values in dark.items()}
    after = products.sentinel2(tmp_path / "b", level, "05.10", raised, RAISED, start="2019-05-12T10:20:21.024Z")
    old, new = (read(Scene(product=str(path), bands=["B02", "B8A", "B01"]), tmp_path) for path in (before, after))
    assert np.array_equal(old[0], new[0])
    assert np.array_equal(old[0][0], dark["B02"])
    assert np.array_equal(old[0][1], repeated(dark["B8A"], 2))
    assert old[1].all()
    assert new[1].all()


def test_offsets_hold_for_the_band_they_name_and_the_scale_is_the_product_s(tmp_path: Path) -> None:
    given = numbers(2000, **SENTINEL2)
    path = products.sentinel2(tmp_path, "L2A", "04.00", given, {"B02": -1000, "B8A": -1500}, quantification=20_000)
    images, _ = read(Scene(product=path.name, bands={"blue": "B02", "nir": "B8A"}), tmp_path)
    assert np.array_equal(images[0], np.rint((given["B02"] - 1000) / 2))
    assert np.array_equal(images[1], repeated(np.rint((given["B8A"] - 1500) / 2), 2))


def test_nothing_below_nothing_is_not_missing(tmp_path: Path) -> None:
    """0 is no data; a number at or below the offset is a dark pixel, whose value is 1."""
    given = numbers(500, **SENTINEL2)
    given["B02"][0, :3] = [0, 999, 1000]
    path = products.sentinel2(tmp_path, "L1C", "04.00", given, RAISED)
    images, valid = read(Scene(product=path.name, bands=["B02"]), tmp_path)
    assert images[0, 0, :3].tolist() == [0, 1, 1]
    assert not valid[0, 0]
    assert np.count_nonzero(~valid) == 1
    assert np.array_equal(images[0][5:], np.maximum(given["B02"][5:].astype(int) - 1000, 1))


def test_a_zip_is_read_as_its_folder(tmp_path: Path) -> None:
    given = numbers(3000, **SENTINEL2)
    scl = np.full((12, 12), 4, np.uint8)
    scl[3, 4], scl[7, 8] = 9, 3
    path = products.sentinel2(tmp_path, "L2A", "04.00", given, RAISED, scl)
    packed = products.zipped(path)
    bands = ["B02", "B8A"]
    for mask, gone in ((None, ()), ({"band": "SCL"}, (9, 3)), ({"band": "SCL", "values": [3]}, (3,))):
        folder, archive = (read(Scene(product=item.name, bands=bands, mask=mask), tmp_path) for item in (path, packed))
        assert np.array_equal(folder[0], archive[0])
        expected = repeated(~np.isin(scl, gone), 2)
        assert np.array_equal(folder[1], expected)
        assert np.array_equal(archive[1], expected)
        assert np.array_equal(folder[0][0], np.where(expected, given["B02"] - 1000, 0))


def test_the_date_stands_in_the_metadata(tmp_path: Path) -> None:
    sentinel = products.sentinel2(tmp_path, "L1C", "04.00", numbers(**SENTINEL2), RAISED)
    landsat = products.landsat(tmp_path, "L2SP", numbers(SR_B2=30))
    scene = Scene(product=sentinel.name, bands=["B02"])
    assert acquired(scene, tmp_path) == "2022-05-12 10:20 UTC, Sentinel-2B, level 1C"
    assert acquired(scene.model_copy(update={"acquired": "then"}), tmp_path) == "then"
    assert acquired(Scene(product=landsat.name, bands=["SR_B2"]), tmp_path) == (
        "2022-05-12 10:02 UTC, Landsat 9, level 2"
    )
    assert acquired(Scene(bands={"a": "a.tif"}), tmp_path) is None
    assert scene_paths(scene, tmp_path) == [sentinel]


@pytest.mark.parametrize("form", ["json", "xml", "txt"])
def test_landsat_level_2(tmp_path: Path, form: str) -> None:
    given = numbers(9000, SR_B2=30, SR_B5=30, ST_B10=30)
    given["SR_B2"][0, :3] = [0, 1, 7310]
    qa = np.full((8, 8), 21824, np.uint16)  # clear
    qa[2, 3], qa[5, 6], qa[7, 7] = 22280, 23888, 1  # cloud, shadow, fill
    path = products.landsat(tmp_path, "L2SP", given, qa, metadata=(form,))
    for item in (path, products.tarred(path)):
        bands = {"blue": "SR_B2", "nir": "SR_B5", "heat": "ST_B10"}
        images, valid = read(Scene(product=item.name, bands=bands, mask={"band": "QA_PIXEL"}), tmp_path)
        clear = qa == 21824
        clear[0, 0] = False
        assert np.array_equal(valid, clear)
        assert images[0, 0, :3].tolist() == [0, 1, 10]  # 2.75e-5 · 7310 - 0.2 = 0.001025
        reflectance = 10_000 * (2.75e-5 * given["SR_B5"].astype(float) - 0.2)
        assert np.abs(images[1] - reflectance)[clear].max() <= 0.51
        kelvin = 100 * (0.00341802 * given["ST_B10"].astype(float) + 149)
        assert np.abs(images[2] - kelvin)[clear].max() <= 0.51


def test_landsat_level_1(tmp_path: Path) -> None:
    """Reflectance is corrected for the sun's elevation; the thermal band holds radiance."""
    given = numbers(20_000, B2=30, B8=15, B10=30)
    path = products.landsat(tmp_path, "L1TP", given, sun_elevation=30.0)
    with open_scene(Scene(product=path.name, bands=["B2", "B8", "B10"]), tmp_path, None, "nearest") as reader:
        assert reader.grid.resolution == 15
        images, valid = reader.read(0, 0, 16, 16)
    assert valid.all()
    sine = math.sin(math.radians(30))
    for image, values in ((images[0], repeated(given["B2"], 2)), (images[1], given["B8"])):
        expected = 10_000 * (2e-5 * values.astype(float) - 0.1) / sine
        assert np.abs(image - expected).max() <= 0.51
    radiance = 1000 * (3.8e-4 * repeated(given["B10"], 2).astype(float) + 0.1)
    assert np.abs(images[2] - radiance).max() <= 0.51


@pytest.mark.parametrize(("dtype", "scale", "offset"), [("uint16", None, -1000.0), ("float32", 10_000.0, None)])
def test_bare_files_mean_what_a_product_means(
    tmp_path: Path, dtype: str, scale: float | None, offset: float | None
) -> None:
    """C22: without metadata the configuration says what the numbers mean; a float file may hold reflectance."""
    given = numbers(1500, B02=10)["B02"]
    path = products.sentinel2(tmp_path, "L1C", "04.00", {"B02": given}, RAISED)
    wanted, _ = read(Scene(product=path.name, bands=["B02"]), tmp_path)
    bare = given if dtype == "uint16" else ((given - 1000.0) / 10_000).astype("float32")
    bare[0, 0], wanted[0, 0, 0] = (0 if dtype == "uint16" else np.nan), 0
    products.write(tmp_path / "bare.tif", bare, 10, driver="GTiff", nodata=0)
    images, valid = read(Scene(bands={"B02": "bare.tif"}, scale=scale, offset=offset), tmp_path)
    assert np.array_equal(images, wanted)
    assert not valid[0, 0]
    assert np.count_nonzero(~valid) == 1


def test_interpolation_happens_before_the_offset_and_keeps_missing_pixels_out(tmp_path: Path) -> None:
    given = {"B02": np.full((24, 24), 3000, np.uint16), "B8A": np.full((12, 12), 2500, np.uint16)}
    given["B8A"][:, :4] = 0
    path = products.sentinel2(tmp_path, "L1C", "04.00", given, RAISED)
    with open_scene(Scene(product=path.name, bands=["B02", "B8A"]), tmp_path, None, "bilinear") as reader:
        images, valid = reader.read(0, 0, 24, 24)
    assert np.array_equal(valid, np.broadcast_to(np.arange(24) >= 8, (24, 24)))
    assert (images[1][:, 8:] == 1500).all()
    assert (images[0][:, 8:] == 2000).all()


def refused(scene: Scene, source: Path) -> str:
    with pytest.raises(UserError) as error:
        open_scene(scene, source, None, "nearest")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_wrong_with_a_product_is_said(tmp_path: Path) -> None:
    path = products.sentinel2(tmp_path, "L2A", "04.00", numbers(**SENTINEL2), RAISED)
    scene = Scene(product=path.name, bands=["B02"])
    metadata = path / "MTD_MSIL2A.xml"
    whole = metadata.read_text(encoding="utf-8")
    said = refused(scene.model_copy(update={"bands": {"B10": "B10"}}), tmp_path)
    assert "Sentinel-2 L2A has no band B10 there; it has: B01, B02, B8A" in said
    assert "SCL: not found (mask.band of the scene; the product's own masks: none)" in refused(
        Scene(product=path.name, bands=["B02"], mask={"band": "SCL"}), tmp_path
    )
    for text, part in (
        (whole[: len(whole) // 2], "metadata are damaged"),
        (whole.replace("BOA_QUANTIFICATION_VALUE", "X"), "BOA_QUANTIFICATION_VALUE is missing"),
        (whole.replace(">-1000<", ">many<"), "BOA_ADD_OFFSET is 'many', and a number is wanted"),
        (whole.replace('band_id="1"', 'band_id="99"'), "BOA_ADD_OFFSET is about a band '99'"),
        (whole.replace("<n1", '<!DOCTYPE x [<!ENTITY a "b">]><n1', 1), "it has a document type"),
    ):
        metadata.write_text(text, encoding="utf-8")
        assert f"{metadata}: " in refused(scene, tmp_path)
        assert part in refused(scene, tmp_path)
    metadata.unlink()
    assert "holds no metadata of a product (MTD_MSIL1C.xml or MTD_MSIL2A.xml" in refused(scene, tmp_path)
    assert "gone.SAFE: not found (the scene's product)" in refused(Scene(product="gone.SAFE", bands=["B02"]), tmp_path)
    with pytest.raises(ValueError, match="leave nodata out"):
        Scene(product="x", bands=["B02"], nodata=0.0)
    with pytest.raises(ValueError, match="leave scale and offset out"):
        Scene(product="x", bands=["B02"], offset=-1000.0)
    with pytest.raises(ValueError, match="not both"):
        Scene(product="x", stack="y", bands=["B02"])


def test_a_cut_off_archive_is_named(tmp_path: Path) -> None:
    path = products.sentinel2(tmp_path, "L1C", "03.01", numbers(**SENTINEL2))
    packed = products.zipped(path)
    packed.write_bytes(packed.read_bytes()[:-200])
    assert f"{packed}: no whole zip or tar archive" in refused(Scene(product=packed.name, bands=["B02"]), tmp_path)
    tar = products.tarred(products.landsat(tmp_path, "L2SP", numbers(SR_B2=30)))
    tar.write_bytes(tar.read_bytes()[:3000])
    assert str(tar) in refused(Scene(product=tar.name, bands=["SR_B2"]), tmp_path)


def test_metadata_that_swell_are_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.SAFE/MTD_MSIL1C.xml", b" " * (33 << 20))
    assert bomb.stat().st_size < 100_000
    assert "larger than 32 MiB" in refused(Scene(product="bomb.zip", bands=["B02"]), tmp_path)


def test_an_archive_of_two_products_is_refused(tmp_path: Path) -> None:
    one = products.sentinel2(tmp_path / "a", "L1C", "03.01", numbers(**SENTINEL2))
    two = tmp_path / "two.zip"
    with zipfile.ZipFile(two, "w") as archive:
        for file in one.rglob("*.*"):
            for tile in ("A", "B"):
                inner = file.relative_to(one).as_posix().replace("GRANULE/L1C_", f"GRANULE/{tile}_L1C_")
                if file.is_file() and (tile == "A" or "GRANULE" in inner):
                    archive.write(file, f"{one.name}/{inner}")
    assert "has several files of band" in refused(Scene(product="two.zip", bands=["B02"]), tmp_path)


def test_landsat_of_another_collection_is_refused(tmp_path: Path) -> None:
    path = products.landsat(tmp_path, "L1TP", numbers(B2=30), metadata=("json",))
    file = next(path.glob("*_MTL.json"))
    whole = file.read_text()
    file.write_text(whole.replace('"COLLECTION_NUMBER": "02"', '"COLLECTION_NUMBER": "01"'))
    scene = Scene(product=path.name, bands=["B2"])
    assert "not of Landsat Collection 2" in refused(scene, tmp_path)
    file.write_text(whole[:300])
    assert f"{file}: the product's metadata are damaged" in refused(scene, tmp_path)
    file.write_text(whole.replace('"SUN_ELEVATION": "52', '"SUN_ELEVATION": "-52'))
    assert "the sun stood below the horizon" in refused(scene, tmp_path)


def test_products_are_known_by_their_files(tmp_path: Path) -> None:
    path = products.sentinel2(tmp_path, "L1C", "03.01", numbers(**SENTINEL2))
    image = next(path.rglob("*_B02.jp2"))
    assert is_product(path)
    assert is_product(products.zipped(path))
    assert not is_product(image)
    assert not is_product(image.parent)
    assert product_above(image) == path
    assert product_above(path) is None
