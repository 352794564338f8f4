"""MATLAB files become rasters: their numbers, bands and pixels, and what is none is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import scipy.io

from download_samples import sha256
from landbalance.config import Source
from landbalance.download import run
from landbalance.errors import UserError

Build = Callable[..., list[Source]]

RANDOM = np.random.default_rng(0)
CUBE = RANDOM.integers(0, 9000, (12, 7, 5)).astype(np.uint16)
LABELS = RANDOM.integers(0, 4, (12, 7)).astype(np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scene.mat"
    more = {"names": np.array([["a", "b"]], object), "four": np.ones((2, 2, 2, 2))}
    scipy.io.savemat(path, {"cube": CUBE, "labels": LABELS, "halves": CUBE / 2, **more}, do_compression=True)
    return path


def source(file: Path, variable: str, **more: Any) -> dict[str, Any]:
    return {"path": str(file), "array": {"variable": variable, "pixel": 1.3}, **more}


@pytest.mark.parametrize(("variable", "values"), [("cube", CUBE), ("halves", CUBE / 2), ("labels", LABELS[..., None])])
def test_an_array_becomes_a_raster(
    file: Path, tmp_path: Path, sources: Build, variable: str, values: np.ndarray
) -> None:
    run("d", sources(source(file, variable, name="july/B.mat")), tmp_path / "d")
    with rasterio.open(tmp_path / "d" / "july" / "B.tif") as raster:
        assert np.array_equal(raster.read(), np.moveaxis(values, 2, 0))
        assert raster.read().dtype == values.dtype
        assert raster.descriptions == (("B001", "B002", "B003", "B004", "B005") if values.shape[2] > 1 else (None,))
        assert raster.crs.is_projected
        assert raster.transform[:6] == (1.3, 0, 0, 0, -1.3, 0)
    assert not (tmp_path / "d" / "july" / "B.mat").exists()
    listed = (tmp_path / "d" / "manifest.json").read_text()
    assert sha256((tmp_path / "d" / "july" / "B.tif").read_bytes()) in listed
    assert sha256(file.read_bytes()) in listed


@pytest.mark.parametrize(
    ("variable", "part"),
    [
        ("gone", "array.variable: found gone; the file holds cube, labels"),
        ("names", "names holds no plain numbers"),
        ("four", "four is 2 × 2 × 2 × 2; wanted are rows × columns"),
    ],
)
def test_what_is_no_array_is_named(file: Path, tmp_path: Path, sources: Build, variable: str, part: str) -> None:
    with pytest.raises(UserError, match=r"datasets\.d\.sources\.0") as caught:
        run("d", sources(source(file, variable)), tmp_path / "d")
    assert part in str(caught.value)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("content", [b"no MATLAB file", b"MATLAB 7.3" + bytes(600), b""])
def test_other_files_are_named(tmp_path: Path, sources: Build, content: bytes) -> None:
    (tmp_path / "scene.mat").write_bytes(content)
    with pytest.raises(UserError, match=r"scene.mat|MATLAB"):
        run("d", sources(source(tmp_path / "scene.mat", "cube")), tmp_path / "d")


def test_a_file_that_ends_early_is_named(tmp_path: Path, sources: Build) -> None:
    file = tmp_path / "scene.mat"
    scipy.io.savemat(file, {"cube": CUBE}, do_compression=True)
    whole = file.read_bytes()
    for length in range(1, len(whole) - 16, len(whole) // 40):  # a checksum is last
        file.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"damaged|found cube"):
            run("d", sources(source(file, "cube")), tmp_path / "d")


def test_an_array_that_swells_is_refused(
    file: Path, tmp_path: Path, sources: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landbalance.download.arrays.size_limit", lambda _: 1000)
    with pytest.raises(UserError, match="cube would swell to more than 1,000 bytes"):
        run("d", sources(source(file, "cube")), tmp_path / "d")


def test_an_array_is_no_member_of_an_archive(sources: Build) -> None:
    with pytest.raises(ValueError, match="array: only for a file of its own"):
        sources(source(Path("scene.zip"), "cube", members=["*.mat"]))
