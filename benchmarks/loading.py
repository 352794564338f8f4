"""Loading training batches: the tile store against an image folder, and a store of a million tiles.

All sides give shuffled batches of 128 as normalised float32 tensors, of the same JPEGs, with two workers: torchvision's
ImageFolder and torchgeo's NonGeoClassificationDataset under a DataLoader of two worker processes; ours with two of the
threads that read ahead in training, one for each worker. They take turns, in processes of their own; a first batch is
outside the clock. The million tiles of 64 × 64 pixels in 13 bands of uint16 are a sparse file: nothing but zeros is
read, and no disk filled.

    python benchmarks/loading.py [--quick] [--eurosat EuroSAT_RGB.zip] [--torchgeo .venv-torchgeo/bin/python]

prints one JSON object. `over_imagefolder` and `over_torchgeo` are ratios of images per second (of the medians; `.low`
and `.high` are the quartiles turn by turn); the latter is left out without torchgeo's Python (see torchgeo.txt).
`augmented_images_per_second` is our pace when images are turned, mirrored and moved, too, as in training.
`index_million.seconds` is the time to open the store, list its training tiles and shuffle them. `.worker_mib` is by how
much more a worker's own memory then grows than with a hundredth of the tiles, while it reads batches: what holds the
order of an epoch (mapped pages of files, which a machine drops when it needs room, do not count).
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sides import measured_by, memory_mib, spread

BATCH = 128
BANDS, SIZE = 13, 64
MEAN, STD = (0.344, 0.380, 0.408), (0.2, 0.136, 0.115)


def write_large_store(folder: Path, count: int) -> None:
    """Write a store of `count` tiles of which only the index and the splits are there, the rest being holes."""
    import pandas as pd

    from landbalance.config.data import ClassInfo
    from landbalance.files import write_json
    from landbalance.tiles import Normalisation, Shard, StoreInfo, write_lookup

    folder.mkdir()
    for name, shape, dtype in (("images.npy", (BANDS, SIZE, SIZE), "<u2"), ("labels.npy", (SIZE, SIZE), "|u1")):
        with (folder / name).open("wb") as file:
            header = {"descr": dtype, "fortran_order": False, "shape": (count, *shape)}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + count * int(np.prod(shape)) * np.dtype(dtype).itemsize)
    splits = np.random.default_rng(0).choice(["train", "validation", "test"], count, p=[0.6, 0.2, 0.2])
    frame = pd.DataFrame({"tile": np.arange(count), "scene": "s", "split": splits, "label": 0, "labelled": SIZE * SIZE})
    frame.to_parquet(folder / "index.parquet")
    write_lookup(folder, splits, np.arange(count))
    info = StoreInfo(
        task="segmentation", bands=[f"B{k:02d}" for k in range(BANDS)],
        classes=[ClassInfo(name=name, colour=f"#00000{k}", values=[name]) for k, name in enumerate("ab")],
        tile_size=SIZE, resolution=10.0, tiles=count, shards=[Shard(images="images.npy", count=count)],
        normalisation=Normalisation(mean=[1.0] * BANDS, std=[1.0] * BANDS, missing=0.0), percentiles={},
        class_counts={"train": [1, 1], "validation": [1, 1], "test": [1, 1]}, nodata_share=0.0,
    )  # fmt: skip
    write_json(folder / "statistics.json", info.model_dump(mode="json"))


def open_large(folder: Path) -> dict[str, float]:
    """Open a store and read some shuffled batches, as a worker does."""
    from landbalance.batches import BatchReader
    from landbalance.tiles import open_tiles
    from landbalance.train.order import epoch_order

    before = memory_mib("RssAnon")
    began = time.perf_counter()
    store = open_tiles(folder)
    order = epoch_order(store.ids("train"), 0, 0)
    seconds = time.perf_counter() - began
    reader = BatchReader(store, None, augment=False, seed=0)
    for start in range(0, 20 * BATCH, BATCH):
        reader.batch(np.sort(order[start : start + BATCH]), 0)
    return {"seconds": seconds, "mib": memory_mib("RssAnon") - before}


def timed(batches: Iterator[Any], count: int) -> dict[str, float]:
    """Return the images per second of `count` batches; the first, at which workers start, is not among them."""
    next(batches)
    began = time.perf_counter()
    for _ in range(count):
        images = next(batches)
        assert tuple(images.shape) == (BATCH, 3, SIZE, SIZE)
        assert str(images.dtype) == "torch.float32"
    return {"images_per_second": count * BATCH / (time.perf_counter() - began)}


def ours(folder: Path, count: int, augment: bool = False) -> dict[str, float]:
    """Load batches as two workers do in training, each on a core; turned, mirrored and moved if `augment`."""
    import torch

    from landbalance.allocator import keep_freed_memory
    from landbalance.batches import BatchReader, prefetched
    from landbalance.tiles import open_tiles
    from landbalance.train.order import epoch_order

    torch.set_num_threads(1)
    keep_freed_memory()
    store = open_tiles(folder / "store")
    reader, ids = BatchReader(store, None, augment, seed=0, shift=4 if augment else 0), store.ids("train")

    def batches(worker: int) -> Iterator[Any]:
        for epoch in range(1000):
            order = epoch_order(ids, 0, epoch)
            for start in range(worker * BATCH, len(order) - BATCH + 1, 2 * BATCH):
                yield reader.batch(order[start : start + BATCH], epoch).images

    workers = [prefetched(batches(worker)) for worker in range(2)]
    return timed((images for both in zip(*workers, strict=True) for images in both), 20 * count)


def augmented(folder: Path, count: int) -> dict[str, float]:
    """Load augmented batches."""
    return ours(folder, count, augment=True)


def loader(dataset: Any, key: Any) -> Iterator[Any]:
    """Yield the images of shuffled batches for ever."""
    from torch.utils.data import DataLoader

    batches = DataLoader(dataset, BATCH, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True)
    while True:
        yield from (batch[key] for batch in batches)


def imagefolder(folder: Path, count: int) -> dict[str, float]:
    """Load batches with torchvision's ImageFolder."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    return timed(loader(ImageFolder(str(folder / "2750"), steps), 0), count)


def torchgeo(folder: Path, count: int) -> dict[str, float]:
    """Load batches with torchgeo's NonGeoClassificationDataset."""
    import torch
    from torchgeo.datasets import NonGeoClassificationDataset

    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, STD))

    def normalise(sample: dict[str, Any]) -> dict[str, Any]:
        sample["image"] = (sample["image"].float() / 255 - mean) / std
        return sample

    return timed(loader(NonGeoClassificationDataset(str(folder / "2750"), normalise), "image"), count)


def figures(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures from interleaved repeats."""
    from landbalance.config import Dataset
    from landbalance.tile.stage import run
    from tiling import images_dataset, write_images

    here, repeats, count = Path(sys.executable), 3 if options.quick else 7, 40 if options.quick else 120
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_images(folder, options.eurosat)
        run("benchmark", Dataset.model_validate(images_dataset()), folder, folder / "store")
        sides = {"ours": here, "augmented": here, "imagefolder": here}
        if options.torchgeo is not None:
            sides["torchgeo"] = options.torchgeo
        paces: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(repeats):
            for side, python in sides.items():
                paces[side].append(measured_by(python, __file__, side, str(folder), str(count))["images_per_second"])
        for side in list(sides)[2:]:
            name = f"over_{side}"
            result[name] = statistics.median(paces["ours"]) / statistics.median(paces[side])
            result |= spread(name, [a / b for a, b in zip(paces["ours"], paces[side], strict=True)])
        result |= {f"{side}_images_per_second": statistics.median(values) for side, values in paces.items()}
        opened = {}
        for tiles in (10_000, 1_000_000):
            write_large_store(folder / str(tiles), tiles)
            turns = [measured_by(here, __file__, "large", str(folder / str(tiles)), "0") for _ in range(repeats)]
            opened[tiles] = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    result["index_million.seconds"] = opened[1_000_000]["seconds"]
    result["index_million.worker_mib"] = opened[1_000_000]["mib"] - opened[10_000]["mib"]
    return result


def main() -> None:
    """Measure and print, or be one of the sides."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer batches and repeats")
    parser.add_argument("--eurosat", type=Path, help="the archive of EuroSAT RGB; images like its are made without it")
    parser.add_argument("--torchgeo", type=Path, help="the Python of an environment with torchgeo")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side, folder, count = options.side[0], Path(options.side[1]), int(options.side[2])
        sides = {"ours": ours, "augmented": augmented, "imagefolder": imagefolder, "torchgeo": torchgeo}
        print(json.dumps(open_large(folder) if side == "large" else sides[side](folder, count)))
        return
    from measuring import benchmark_result

    conditions: dict[str, Any] = {
        "batch": BATCH, "image": [3, SIZE, SIZE], "workers": 2, "eurosat": "real" if options.eurosat else "made",
        "quick": options.quick,
    }  # fmt: skip
    print(json.dumps(benchmark_result("loading", conditions, figures(options)), indent=2))


if __name__ == "__main__":
    main()
