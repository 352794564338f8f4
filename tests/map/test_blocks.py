"""What the map says, pixel by pixel."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from numpy.typing import NDArray
from torch import nn

from landbalance import prediction
from landbalance.config import Model
from landbalance.errors import UserError
from landbalance.tiles import normalised

pytestmark = pytest.mark.slow

SceneOf = Callable[..., NDArray[np.uint16]]


def codes_of(height: int, width: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 3, (height, width), dtype=np.uint8)


@pytest.mark.parametrize(
    ("height", "width", "window", "overlap"),
    [
        (600, 600, 512, 128),  # C01
        (56, 67, 128, 16),  # C02
        (100, 101, 64, 8),  # C03
        (256, 512, 256, 0),  # C29
        (1, 1, 16, 0),
        (3, 300, 16, 7),
    ],
)
def test_map_has_every_pixel_of_the_scene_and_its_grid(
    scenery: Any, scene_of: SceneOf, height: int, width: int, window: int, overlap: int
) -> None:
    codes = codes_of(height, width)
    scenery.write(scene_of(codes))
    scenery.use_nearest()
    assert (scenery.run(window=window, overlap=overlap) == codes).all()
    with rasterio.open(scenery.target) as found, rasterio.open(scenery.source / "scene.tif") as scene:
        assert (found.transform, found.crs, found.shape) == (scene.transform, scene.crs, (height, width))


@pytest.mark.parametrize("task", ["segmentation", "classification"])
def test_nodata_in_nodata_out(scenery: Any, scene_of: SceneOf, task: str) -> None:  # C04
    codes = np.zeros((64, 64), np.uint8)
    scene = scene_of(codes)
    scene[:, 8:40, 16:] = 65535
    scene[1, 50, 3] = 65535  # missing in one band is missing
    scenery.write(scene, nodata=65535)
    scenery.use_nearest(task)
    expected = codes.copy()
    expected[8:40, 16:] = expected[50, 3] = 200
    assert (scenery.run(window=16, overlap=0, nodata=200) == expected).all()


@pytest.mark.parametrize(("task", "computed"), [("segmentation", 2), ("classification", 3 * 5)])
def test_window_without_data_is_not_computed(scenery: Any, scene_of: SceneOf, task: str, computed: int) -> None:
    scenery.write(scene_of(codes_of(64, 64), (slice(0, 40), slice(None))), nodata=0)
    network = scenery.use_nearest(task, tile_size=32)
    scenery.run(window=32, overlap=0)
    # Windows lie 32 apart; tiles 8 apart, those that begin at rows 16, 24 and 32 reach below row 40.
    assert sum(shape[0] for shape in network.seen) == computed


def test_scene_without_any_data(scenery: Any, scene_of: SceneOf) -> None:
    scenery.write(scene_of(codes_of(40, 40), (slice(None), slice(None))), nodata=0)
    network = scenery.use_nearest()
    assert (scenery.run(window=16, overlap=0) == 255).all()
    assert network.seen == []


@pytest.mark.parametrize(("own", "configured"), [(float("nan"), None), (-9999.0, None), (None, -1.0), (None, None)])
def test_float_scene_with_nodata(
    scenery: Any, scene_of: SceneOf, own: float | None, configured: float | None
) -> None:  # C10
    codes = codes_of(30, 50)
    scene = scene_of(codes).astype(np.float32)
    missing = next((value for value in (own, configured) if value is not None), float("nan"))
    scene[:, 4:9, 5:20] = missing
    scenery.write(scene, nodata=own, configured_nodata=configured)
    scenery.use_nearest()
    codes[4:9, 5:20] = 255
    assert (scenery.run(window=16, overlap=4) == codes).all()


def test_bands_are_matched_by_name(scenery: Any, scene_of: SceneOf) -> None:
    codes = codes_of(20, 20)
    informative, constant = scene_of(codes)
    scenery.write(np.stack([constant, constant, informative]), names=["B08", "B04", "B02"])
    scenery.use_nearest(bands=["B02", "B08"])
    assert (scenery.run() == codes).all()


class Convolutions(nn.Module):
    """Three 3 × 3 convolutions with whole weights: sums are exact, and a pixel sees 3 pixels around."""

    radius = 3

    def __init__(self, bands: int, classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = [bands, 4, 4, classes]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise(widths))
        for layer in self.layers:
            nn.init.zeros_(layer.bias)
            with torch.no_grad():
                layer.weight.copy_(torch.randint(-2, 3, layer.weight.shape))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            images = layer(images)
        return images


@pytest.mark.parametrize(("join", "overlap"), [("crop", 8), ("blend", 16)])
def test_windows_leave_no_seams(scenery: Any, join: str, overlap: int) -> None:
    scene = np.random.default_rng(1).integers(1, 50, (2, 150, 170)).astype(np.uint16)
    scenery.write(scene)
    network = Convolutions(2, 3)
    scenery.use(network)
    with torch.inference_mode():
        whole = network(torch.from_numpy(scene[None].astype(np.float32))).argmax(1)[0].numpy()
    edge = network.radius
    inside = (slice(edge, -edge), slice(edge, -edge))
    for window in (40, 64, 100, 256):
        found = scenery.run(window=window, overlap=overlap, join=join)
        assert (found[inside] == whole[inside]).all()
    assert len(np.unique(whole)) > 1
    # Without margins the seams show, so the comparison above can fail.
    assert (scenery.run(window=24, overlap=0)[inside] != whole[inside]).any()


@pytest.mark.parametrize("join", ["crop", "blend"])
def test_workers_and_panels_change_nothing(scenery: Any, join: str, monkeypatch: pytest.MonkeyPatch) -> None:  # C18
    scene = np.random.default_rng(4).integers(0, 900, (2, 90, 150)).astype(np.uint16)
    scene[:, 20:50, 40:70] = 0
    scenery.write(scene, nodata=0)
    scenery.save()
    files = []
    for workers, bytes_ in ((1, 1 << 20), (2, 1 << 20), (5, 1 << 20), (2, 40_000), (3, 20_000)):
        monkeypatch.setattr("landbalance.map.blocks._STRIP_BYTES", bytes_)
        scenery.run(window=32, overlap=8, join=join, probability=True, workers=workers)
        files.append([scenery.target.read_bytes(), scenery.target.with_name("scene.probability.tif").read_bytes()])
    assert all(each == files[0] for each in files)
    assert len(set(files[0][0])) > 100  # a map worth comparing


def test_blended_probabilities_are_the_weighted_mean_of_the_windows(scenery: Any) -> None:
    """Two windows side by side, against a mean written out by hand."""
    scene = np.random.default_rng(5).integers(1, 900, (2, 32, 48)).astype(np.uint16)
    scenery.write(scene)
    network = scenery.save()
    scenery.run(window=32, overlap=8, probability=True)
    with rasterio.open(scenery.target.with_name("scene.probability.tif")) as raster:
        found = raster.read() * 0.004
    images = torch.from_numpy(normalised(scene[None], scenery.card().normalisation))
    with torch.inference_mode():
        left, right = (network(images[..., start : start + 32]).softmax(1)[0].numpy() for start in (0, 16))
    # The windows share columns 16 … 31; the outer 4 of each do not count, the 8 between go over from left to right.
    weight = np.clip((28 - (np.arange(48) + 0.5)) / 8, 0, 1)
    wanted = np.zeros((3, 32, 48))
    wanted[..., :32] += left * weight[:32]
    wanted[..., 16:] += right * (1 - weight[16:])
    assert np.abs(found - wanted).max() < 0.0021
    assert np.abs(left[..., 16:] - right[..., :16]).max() > 0.01


@pytest.mark.parametrize("kind", ["reader", "network"])
def test_an_error_in_a_thread_ends_the_stage(scenery: Any, scene_of: SceneOf, kind: str) -> None:
    scenery.write(scene_of(codes_of(60, 60)))
    network = scenery.use_nearest()

    def fail(*_: Any) -> Any:
        raise RuntimeError("broken")

    target = (network, "forward") if kind == "network" else ("landbalance.raster.SceneReader", "read")
    scenery.monkeypatch.setattr(*(target if kind == "network" else (".".join(target),)), fail)
    with pytest.raises(RuntimeError, match="broken"):
        scenery.run(window=16, overlap=0)
    assert not scenery.target.exists()


def test_memory_grows_with_the_window_not_with_the_scene(scenery: Any) -> None:
    """What Python holds while mapping: a scene four times as high, and as wide, takes no more than another panel."""
    import tracemalloc

    peaks = []
    for side in (256, 1024):
        scenery.write(np.full((2, side, side), 7, np.uint16))
        scenery.use_nearest()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("landbalance.map.blocks._STRIP_BYTES", 256 * 64 * (2 * 2 + 4 * 3))
            tracemalloc.start()
            scenery.run(window=64, overlap=8, workers=1)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + (1 << 20)


def test_a_unet_pools_the_same_pixels_in_every_window(scenery: Any) -> None:
    generator = np.random.default_rng(2)
    scene = np.kron(generator.integers(1, 9, (2, 34, 38)), np.ones((8, 8))).astype(np.float32)
    scene += generator.random(scene.shape).astype(np.float32)
    scene[:, 269:], scene[:, :, 299:] = 0, 0  # padding of the scene to what the network takes
    scenery.write(scene[:, :269, :299])
    network = scenery.save()
    with torch.inference_mode():
        images = torch.from_numpy(normalised(scene[None], scenery.card().normalisation))
        logits = network(images)[0, :, :269, :299]
    first, second = logits.topk(2, dim=0).values
    clear = ((first - second) > 1e-4).numpy()  # apart from ties within rounding
    assert clear.mean() > 0.99
    found = scenery.run(window=264, overlap=96, join="crop")
    assert (found == logits.argmax(0).numpy())[clear].all()


@pytest.mark.parametrize("task", ["segmentation", "classification"])
def test_batch_size_changes_nothing(
    scenery: Any, scene_of: SceneOf, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # C18, C24
    scenery.write(scene_of(codes_of(50, 60), (slice(0, 30), slice(20, 60))), nodata=0)
    options = {"model": Model(architecture="squeezenet1_1"), "tile_size": 32} if task == "classification" else {}
    scenery.save(task=task, **options)
    files = []
    for pixels in (1, 5_000, 1_000_000):
        monkeypatch.setitem(prediction._PIXELS_PER_BATCH, "cpu", pixels)
        scenery.run(window=32, overlap=8)
        files.append(scenery.target.read_bytes())
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 30), (29, 33), (64, 40), (3, 2)])
@pytest.mark.parametrize("tile", [2, 8, 11])
def test_votes_equal_the_mean_probability_of_covering_tiles(scenery: Any, height: int, width: int, tile: int) -> None:
    scene = np.random.default_rng(height * tile).uniform(1, 3, (1, height, width)).astype(np.float32)
    scene[:, height // 2 :, : width // 4] = np.nan
    scenery.write(scene)
    network = scenery.use_nearest("classification", tile_size=tile)
    expected = brute_force(scene, network, tile)
    assert (scenery.run() == expected).all()


def brute_force(scene: NDArray[np.float32], network: Any, tile: int) -> Any:
    _, height, width = scene.shape
    stride = max(1, tile // 4)
    padded = np.zeros((1, max(height, tile), max(width, tile)), np.float32)
    padded[:, :height, :width] = np.nan_to_num(scene)
    total, count = np.zeros((3, *padded.shape[1:])), np.zeros(padded.shape[1:])
    last_row, last_col = padded.shape[1] - tile, padded.shape[2] - tile
    for row in sorted({*range(0, last_row + 1, stride), last_row}):
        for col in sorted({*range(0, last_col + 1, stride), last_col}):
            place = (slice(row, row + tile), slice(col, col + tile))
            if not padded[0][place].any():
                continue
            shares = network(torch.from_numpy(padded[(slice(None), *place)][None])).softmax(1)[0].numpy()
            total[(slice(None), *place)] += shares[:, None, None]
            count[place] += 1
    found = (total / np.maximum(count, 1)).argmax(0).astype(np.uint8)[:height, :width]
    found[np.isnan(scene[0])] = 255
    return found


def test_a_class_per_tile_follows_the_land(scenery: Any, scene_of: SceneOf) -> None:
    codes = np.repeat([0, 1, 2], [40, 40, 40]).astype(np.uint8)[None].repeat(60, axis=0)
    scenery.write(scene_of(codes))
    scenery.use_nearest("classification")
    found = scenery.run()
    sure = np.abs(np.arange(120)[:, None] - [40, 80]).min(axis=1) > 8
    assert (found[:, sure] == codes[:, sure]).all()


def test_stride_of_votes(scenery: Any, scene_of: SceneOf) -> None:
    scenery.write(scene_of(codes_of(64, 64)))
    network = scenery.use_nearest("classification", tile_size=32)
    scenery.run(stride=16)
    assert sum(shape[0] for shape in network.seen) == 3 * 3
    with pytest.raises(UserError, match=r"map\.stride: 33 is more than a tile .*allowed: 1 … 32"):
        scenery.run(stride=33)
