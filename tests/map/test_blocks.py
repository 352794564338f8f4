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
from landbalance.tiles import normalised

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


def test_windows_leave_no_seams(scenery: Any) -> None:
    scene = np.random.default_rng(1).integers(1, 50, (2, 150, 170)).astype(np.uint16)
    scenery.write(scene)
    network = Convolutions(2, 3)
    scenery.use(network)
    with torch.inference_mode():
        whole = network(torch.from_numpy(scene[None].astype(np.float32))).argmax(1)[0].numpy()
    edge = network.radius
    inside = (slice(edge, -edge), slice(edge, -edge))
    maps = [scenery.run(window=window, overlap=8) for window in (24, 40, 64, 100, 256)]
    for found in maps:
        assert (found[inside] == whole[inside]).all()
    assert len(np.unique(whole)) > 1
    # Without margins the seams show, so the comparison above can fail.
    assert (scenery.run(window=24, overlap=0)[inside] != whole[inside]).any()


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
    found = scenery.run(window=264, overlap=96)
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
