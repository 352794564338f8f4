"""The tile stage: a whole Sentinel-2 scene against reading it once, and EuroSAT's images.

The scene, 10980 × 10980 pixels in 13 bands, is made on the fly as a compressed GeoTIFF, and labelled everywhere: every
pixel is read, and every tile written. Both sides use all cores, in processes that take turns; imports are outside the
clock. Reading means that GDAL decodes each block once and nothing is done with it; copying, that the pixels are then
written to a file as they are, which is what any store of uncompressed tiles has to do.

    python benchmarks/tiling.py [--quick] [--eurosat EuroSAT_RGB.zip]

prints one JSON object. `scene.seconds_over_read` and `….seconds_over_copy` are ratios of the medians (`.low` and
`.high` are the quartiles turn by turn), `scene.peak_mib` the most memory that the stage had,
`eurosat.images_per_second` the pace of whole runs of the stage. Without the archive of EuroSAT, as many JPEGs of its
size and kind are made.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from PIL import Image
from rasterio.transform import from_origin

from sides import measured_by, peak_mib, spread

BANDS = [f"B{number:02d}" for number in range(1, 14)]
CLASSES = 6
FIELD = 150
"""Width of a labelled field in pixels."""
FOLDERS = (
    "AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial", "Pasture", "PermanentCrop", "Residential",
    "River", "SeaLake",
)  # fmt: skip


def write_scene(path: Path, side: int) -> None:
    """Write a scene of `side` × `side` pixels: coarse patterns, finer ones and noise, tiled and compressed."""
    random = np.random.default_rng(0)
    place = {"crs": "EPSG:32633", "transform": from_origin(300_000, 5_900_000, 10, 10), "width": side, "height": side}
    layout = {"driver": "GTiff", "nodata": 0, "tiled": True, "blockxsize": 512, "blockysize": 512, "interleave": "band"}
    layout |= {"compress": "deflate", "predictor": 2, "zlevel": 6, "num_threads": "all_cpus", "bigtiff": "yes"}
    # The same square over and over: no block is like its neighbours, and it takes a sixteenth of the time to make.
    part = -(-side // 4)
    with rasterio.open(path, "w", count=len(BANDS), dtype="uint16", **place, **layout) as file:
        for number in range(1, len(BANDS) + 1):
            values = random.normal(1500, 30, (part, part))
            for cell in (8, 64):
                coarse = random.normal(0, 250, (-(-part // cell), -(-part // cell)))
                values += coarse.repeat(cell, 0).repeat(cell, 1)[:part, :part]
            square = np.clip(values, 1, 10_000).astype(np.uint16)
            file.write(np.tile(square, (4, 4))[:side, :side], number)


def write_fields(path: Path, side: int) -> None:
    """Write polygons that cover the scene, each of a class."""
    import geopandas as gpd
    import shapely

    starts = np.arange(0, side, FIELD) * 10
    left, up = (values.ravel() for values in np.meshgrid(starts, starts))
    shapes = shapely.box(300_000 + left, 5_900_000 - up - FIELD * 10, 300_000 + left + FIELD * 10, 5_900_000 - up)
    kinds = np.random.default_rng(0).integers(0, CLASSES, len(shapes)).astype(str)
    gpd.GeoDataFrame({"kind": kinds}, geometry=shapes, crs="EPSG:32633").to_file(path)


def write_images(root: Path, archive: Path | None) -> int:
    """Write the images of EuroSAT below `root`, or as many alike; return how many there are."""
    if archive is not None:
        with zipfile.ZipFile(archive) as file:
            file.extractall(root)
        return sum(1 for _ in root.glob("2750/*/*.jpg"))
    random = np.random.default_rng(0)
    noise = random.normal(0, 12, (640, 640, 3))
    for kind in FOLDERS:
        (root / "2750" / kind).mkdir(parents=True)
        for number in range(2700):
            row, col = random.integers(0, 576, 2)
            coarse = random.normal(100, 30, (8, 8, 3)).repeat(8, 0).repeat(8, 1)
            image = np.clip(coarse + noise[row : row + 64, col : col + 64], 0, 255).astype(np.uint8)
            Image.fromarray(image).save(root / "2750" / kind / f"{kind}_{number}.jpg", quality=90)
    return 2700 * len(FOLDERS)


def scene_dataset() -> dict[str, Any]:
    """Return the settings of the scene's dataset."""
    classes = [{"name": f"class {k}", "colour": f"#0000{k:02x}", "values": [k]} for k in range(CLASSES)]
    return {
        "task": "segmentation",
        "sources": [{"path": "x", "licence": "CC0"}],
        "scenes": {"scene": {"bands": {name: f"scene.tif:{number}" for number, name in enumerate(BANDS, 1)}}},
        "labels": {"path": "fields.gpkg", "field": "kind"},
        "classes": classes,
        "tiles": {"size": 64},
        "split": {"by": "block", "size": 256, "buffer": 4},
    }


def images_dataset() -> dict[str, Any]:
    """Return the settings of EuroSAT's dataset."""
    classes = [{"name": kind, "colour": f"#0000{k:02x}", "values": [kind]} for k, kind in enumerate(FOLDERS)]
    return {
        "task": "classification",
        "sources": [{"path": "x", "licence": "MIT"}],
        "folders": {"path": "2750", "bands": ["R", "G", "B"]},
        "classes": classes,
        "split": {"by": "sample"},
    }


def stage(folder: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Run the tile stage once."""
    from landbalance.config import Dataset
    from landbalance.tile.stage import run

    dataset = Dataset.model_validate(settings)
    with tempfile.TemporaryDirectory(dir=folder) as target:
        began = time.perf_counter()
        run("benchmark", dataset, folder, Path(target) / "store")
        return {"seconds": time.perf_counter() - began, "peak_mib": peak_mib()}


def read(folder: Path, copied: bool) -> dict[str, float]:
    """Decode the scene once, a row of blocks after the other in each thread, the threads on bands of their own."""
    threads = len(os.sched_getaffinity(0))

    def decode(first: int) -> None:
        with rasterio.open(folder / "scene.tif") as file, (folder / f"copy-{first}").open("wb") as copy:
            for number in range(first + 1, len(BANDS) + 1, threads):
                for row in range(0, file.height, 512):
                    window = rasterio.windows.Window(0, row, file.width, min(512, file.height - row))
                    values: NDArray[np.uint16] = file.read(number, window=window)
                    assert values.shape[1] == file.width
                    if copied:
                        copy.write(values.data)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(decode, range(threads)))
    seconds = time.perf_counter() - began
    for path in folder.glob("copy-*"):
        path.unlink()
    return {"seconds": seconds, "peak_mib": peak_mib()}


def over(name: str, ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return how many times as long the stage takes."""
    title = f"scene.seconds_over_{name}"
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {title: statistics.median(ours) / statistics.median(theirs), **spread(title, ratios)}


def figures(side: int, repeats: int, archive: Path | None) -> dict[str, float]:
    """Return the figures from interleaved repeats."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def measured(side: str) -> dict[str, float]:
            found: dict[str, float] = measured_by(Path(sys.executable), __file__, side, str(folder))
            return found

        write_scene(folder / "scene.tif", side)
        write_fields(folder / "fields.gpkg", side)
        turns = [(measured("scene"), measured("read"), measured("copy")) for _ in range(repeats)]
        (folder / "scene.tif").unlink()
        count = write_images(folder, archive)
        paces = [count / measured("eurosat")["seconds"] for _ in range(repeats)]
    ours, reading, copying = ([turn[k]["seconds"] for turn in turns] for k in range(3))
    return {
        **over("read", ours, reading),
        **over("copy", ours, copying),
        "scene.seconds": statistics.median(ours),
        "scene.read_seconds": statistics.median(reading),
        "scene.copy_seconds": statistics.median(copying),
        "scene.peak_mib": max(turn[0]["peak_mib"] for turn in turns),
        "eurosat.images_per_second": statistics.median(paces),
        **spread("eurosat.images_per_second", paces),
    }


def main() -> None:
    """Measure and print, or be one of the sides."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller scene, fewer repeats")
    parser.add_argument("--eurosat", type=Path, help="the archive of EuroSAT RGB; images like its are made without it")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        folder = Path(options.side[1])
        sides = {
            "scene": lambda: stage(folder, scene_dataset()),
            "eurosat": lambda: stage(folder, images_dataset()),
            "read": lambda: read(folder, copied=False),
            "copy": lambda: read(folder, copied=True),
        }
        print(json.dumps(sides[options.side[0]]()))
        return
    from measuring import benchmark_result

    side, repeats = (3660, 3) if options.quick else (10980, 5)
    conditions: dict[str, Any] = {
        "scene": [side, side, len(BANDS)], "tile": 64, "compression": "deflate, predictor 2, blocks of 512 × 512",
        "eurosat": "real" if options.eurosat else "made", "repeats": repeats, "quick": options.quick,
    }  # fmt: skip
    print(json.dumps(benchmark_result("tiling", conditions, figures(side, repeats, options.eurosat)), indent=2))


if __name__ == "__main__":
    main()
