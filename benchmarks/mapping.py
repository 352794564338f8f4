"""The map stage against a plain torchgeo inference loop: the same model, scene, window and overlap.

torchgeo lives in an environment of its own (see torchgeo.txt), whose Python is named by `--torchgeo`. Both sides start
from a bundle and a GeoTIFF and end with a class map on the disk, in processes that take turns, so that noise of the
machine meets both alike; imports are outside the clock.

    python benchmarks/mapping.py [--quick] [--whole] [--torchgeo .venv-torchgeo/bin/python]

prints one JSON object. `over_torchgeo` is the ratio of megapixels per second (of the medians; `.low` and `.high` are
the quartiles turn by turn), `forward_share` the time of the forward passes alone, on the same windows and threads,
over that of the stage. `max_difference` is the largest difference of a class's probability where both predict from the
same window. With `--whole` ours also maps a scene of a Sentinel-2 tile's size: `whole.seconds` and `whole.peak_mib`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import torch
from numpy.typing import NDArray
from rasterio.transform import from_origin

from landbalance.bundle import Bundle, load_bundle, save_bundle
from landbalance.config.data import ClassInfo, Scene
from landbalance.config.learning import Map, Model
from landbalance.models import build_model
from landbalance.tiles import Normalisation
from sides import measured_by, peak_mib, spread

WINDOW, OVERLAP = 256, 64
STRIDE = WINDOW - 2 * OVERLAP
# The demo's model on Sentinel-2's 13 bands.
MODEL = Model(architecture="unet", encoder="resnet18", depth=3, width=16, spectral=64, norm="group")
BANDS = [f"B{number:02d}" for number in range(1, 14)]
CLASSES = 7
WHOLE = 10_980
"""Pixels along a side of a Sentinel-2 tile."""
# torchgeo's best of those tried here: larger batches leave the cache.
TORCHGEO_BATCH, TORCHGEO_READERS = 1, 1


def write_bundle(folder: Path) -> None:
    """Write a bundle with random weights, spread enough that all classes occur."""
    torch.manual_seed(0)
    network = build_model(MODEL, len(BANDS), CLASSES)
    classes = [ClassInfo(name=f"class {k}", colour=f"#0000{k:02x}", values=[k]) for k in range(CLASSES)]
    normalisation = Normalisation(mean=[1500.0] * len(BANDS), std=[400.0] * len(BANDS), missing=0.0)
    card = Bundle(
        format=1, task="segmentation", model=MODEL, bands=BANDS, classes=classes, tile_size=32, resolution=10.0,
        normalisation=normalisation, provenance={"experiment": "benchmark"},
    )  # fmt: skip
    save_bundle(folder, network, card)


def write_scene(path: Path, side: int) -> None:
    """Write a scene of `side` × `side` pixels: coarse patterns, finer ones and noise, as compressed GeoTIFF."""
    random = np.random.default_rng(0)
    place = {"crs": "EPSG:32633", "transform": from_origin(300_000, 5_900_000, 10, 10), "width": side, "height": side}
    layout = {"driver": "GTiff", "nodata": 0, "tiled": True, "blockxsize": 512, "blockysize": 512}
    layout |= {"compress": "deflate", "predictor": 2}
    with rasterio.open(path, "w", count=len(BANDS), dtype="uint16", **place, **layout) as file:
        file.descriptions = BANDS
        for number in range(1, len(BANDS) + 1):
            values = random.normal(1500, 30, (side, side))
            for cell in (8, 64):
                coarse = random.normal(0, 250, (-(-side // cell), -(-side // cell)))
                values += coarse.repeat(cell, 0).repeat(cell, 1)[:side, :side]
            file.write(np.clip(values, 1, 10_000).astype(np.uint16), number)


def mapped(folder: Path) -> dict[str, float]:
    """Map the scene by the map stage."""
    import segmentation_models_pytorch  # noqa: F401  torchgeo has imported it too when its clock starts

    from landbalance.map import run_bundle

    settings = Map(window=WINDOW, overlap=OVERLAP)
    began = time.perf_counter()
    run_bundle(folder / "bundle", [str(folder / "scene.tif")], settings, folder / "ours")
    return {"seconds": time.perf_counter() - began, "peak_mib": peak_mib()}


def stage(folder: Path) -> dict[str, float]:
    """Map the scene by the map stage, then run its forward passes alone."""
    from landbalance.map.windows import spans
    from landbalance.prediction import Predictor, in_order, open_predictors

    result = mapped(folder)
    predictors = open_predictors(folder / "bundle")
    with rasterio.open(folder / "scene.tif") as file:
        rows, columns = (
            len(spans(length, WINDOW, OVERLAP, 2**MODEL.depth, True)) for length in (file.height, file.width)
        )
    together = predictors[0].batch_size(WINDOW, WINDOW)
    assert together == 1, "one window at a time on CPUs"
    inputs = torch.randn(1, len(BANDS), WINDOW, WINDOW).to(predictors[0].device, memory_format=torch.channels_last)

    def forward(predictor: Predictor, _: int) -> None:
        with torch.inference_mode():
            predictor.network(inputs)

    began = time.perf_counter()
    for _ in in_order(predictors, range(rows * columns), forward):
        pass
    return {**result, "forward_seconds": time.perf_counter() - began}


def torchgeo_loop(folder: Path, probabilities: bool) -> dict[str, float]:
    """Map the scene by a torchgeo grid sampler: crop each window's middle, as its documentation advises."""
    from torch.utils.data import DataLoader
    from torchgeo.datasets import RasterDataset, stack_samples
    from torchgeo.samplers import GridGeoSampler

    began = time.perf_counter()
    network, card = load_bundle(folder / "bundle")
    dataset = RasterDataset(str(folder / "scene.tif"))
    sampler = GridGeoSampler(dataset, size=WINDOW, stride=STRIDE)
    loader = DataLoader(
        dataset, batch_size=TORCHGEO_BATCH, sampler=sampler, collate_fn=stack_samples, num_workers=TORCHGEO_READERS
    )
    mean = torch.tensor(card.normalisation.mean).reshape(1, -1, 1, 1)
    std = torch.tensor(card.normalisation.std).reshape(1, -1, 1, 1)
    with rasterio.open(folder / "scene.tif") as scene:
        profile, side, transform = scene.profile, scene.width, scene.transform
    codes = np.full((side, side), 255, np.uint8)
    kept = np.zeros((CLASSES, side, side), np.float32) if probabilities else None
    places = list(sampler)
    with torch.inference_mode():
        for number, batch in enumerate(loader):
            shares = network((batch["image"] - mean) / std).softmax(1)
            found = shares.argmax(1).to(torch.uint8).numpy()
            for k, one in enumerate(found):
                across, down = places[number * TORCHGEO_BATCH + k][:2]
                col, row = (round(value) for value in ~transform * (across.start, down.stop))
                top, bottom = (0 if row <= 0 else OVERLAP), (WINDOW if row + WINDOW >= side else WINDOW - OVERLAP)
                left, right = (0 if col <= 0 else OVERLAP), (WINDOW if col + WINDOW >= side else WINDOW - OVERLAP)
                codes[row + top : row + bottom, col + left : col + right] = one[top:bottom, left:right]
                if kept is not None:
                    kept[:, row + top : row + bottom, col + left : col + right] = shares[k, :, top:bottom, left:right]
    wanted = {**profile, "count": 1, "dtype": "uint8", "nodata": 255}
    with rasterio.open(folder / "torchgeo.tif", "w", **wanted) as file:
        file.write(codes, 1)
    result = {"seconds": time.perf_counter() - began, "peak_mib": peak_mib()}
    if kept is not None:
        np.save(folder / "torchgeo.npy", kept)
    return result


def largest_difference(folder: Path, python: Path) -> float:
    """Return the largest difference of a probability between both, with windows cropped alike."""
    from landbalance.map.blocks import segmented
    from landbalance.prediction import open_predictors
    from landbalance.raster import open_scene

    measured_by(python, __file__, "torchgeo", str(folder), "--probabilities")
    wanted = np.load(folder / "torchgeo.npy")
    bands = {name: f"scene.tif:{number}" for number, name in enumerate(BANDS, 1)}
    found: NDArray[np.float32] = np.zeros_like(wanted)
    settings = Map(window=WINDOW, overlap=OVERLAP, join="crop")
    with open_scene(Scene(bands=bands), folder, None, "bilinear") as reader:
        for block in segmented(reader, open_predictors(folder / "bundle"), settings):
            height, width = block.valid.shape
            found[:, block.row : block.row + height, block.col : block.col + width] = block.probabilities
    return float(np.abs(found - wanted).max())


def figures(side: int, repeats: int, python: Path) -> dict[str, float]:
    """Return the figures from interleaved repeats on a scene of `side` × `side` pixels."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_bundle(folder / "bundle")
        write_scene(folder / "scene.tif", side)
        here = Path(sys.executable)
        turns = [
            (measured_by(here, __file__, "stage", str(folder)), measured_by(python, __file__, "torchgeo", str(folder)))
            for _ in range(repeats)
        ]
        write_scene(folder / "scene.tif", WINDOW + 2 * STRIDE)
        difference = largest_difference(folder, python)
    megapixels = side * side / 1e6
    ours, theirs = ([turn[k]["seconds"] for turn in turns] for k in (0, 1))
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    shares = [turn[0]["forward_seconds"] / turn[0]["seconds"] for turn in turns]
    return {
        "over_torchgeo": statistics.median(theirs) / statistics.median(ours),
        **spread("over_torchgeo", ratios),
        "forward_share": statistics.median(shares),
        **spread("forward_share", shares),
        "megapixels_per_second": megapixels / statistics.median(ours),
        "torchgeo_megapixels_per_second": megapixels / statistics.median(theirs),
        "peak_mib": max(turn[0]["peak_mib"] for turn in turns),
        "torchgeo_peak_mib": max(turn[1]["peak_mib"] for turn in turns),
        "max_difference": difference,
    }


def whole_figures() -> dict[str, float]:
    """Return what a scene of a Sentinel-2 tile's size takes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_bundle(folder / "bundle")
        write_scene(folder / "scene.tif", WHOLE)
        found = measured_by(Path(sys.executable), __file__, "whole", str(folder))
    return {f"whole.{name}": value for name, value in found.items()}


def main() -> None:
    """Measure and print, or be one of the sides."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller scene, fewer repeats")
    parser.add_argument("--whole", action="store_true", help=f"map a scene of {WHOLE} × {WHOLE} pixels, too")
    parser.add_argument("--torchgeo", type=Path, default=Path(".venv-torchgeo/bin/python"), help="its Python")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--probabilities", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side, folder = options.side[0], Path(options.side[1])
        loop = partial(torchgeo_loop, probabilities=options.probabilities)
        sides = {"stage": stage, "whole": mapped, "torchgeo": loop}
        print(json.dumps(sides[side](folder)))
        return
    if not options.torchgeo.is_file():
        sys.exit(f"{options.torchgeo}: not found. benchmarks/torchgeo.txt says how to make torchgeo's environment.")
    from measuring import benchmark_result

    side, repeats = (WINDOW + 4 * STRIDE, 3) if options.quick else (WINDOW + 14 * STRIDE, 7)
    conditions: dict[str, Any] = {
        "scene": [side, side, len(BANDS)], "window": WINDOW, "overlap": OVERLAP, "repeats": repeats,
        "model": MODEL.model_dump(mode="json"), "quick": options.quick,
        "torchgeo": {"batch_size": TORCHGEO_BATCH, "num_workers": TORCHGEO_READERS},
    }  # fmt: skip
    found = figures(side, repeats, options.torchgeo)
    if options.whole:
        found |= whole_figures()
    print(json.dumps(benchmark_result("mapping", conditions, found), indent=2))


if __name__ == "__main__":
    main()
