"""Tile stores made on the fly, for tests of the stages that read one."""

from pathlib import Path

import numpy as np
import pandas as pd

from landbalance.config.data import ClassInfo
from landbalance.files import write_json
from landbalance.tiles import IGNORED, Normalisation, Shard, StoreInfo, write_lookup

COLOURS = ("#1b7837", "#2166ac", "#d73027")


def write_store(
    folder: Path,
    task: str = "segmentation",
    train: int = 12,
    validation: int = 4,
    test: int = 4,
    size: int = 32,
    bands: int = 2,
    seed: int = 0,
    tiles_per_shard: int = 7,
) -> Path:
    """Write a store whose classes follow from the first band, with unlabelled pixels at random."""
    random = np.random.default_rng(seed)
    count = train + validation + test
    folder.mkdir(parents=True)
    kinds = random.integers(0, 3, (count, size // 8, size // 8)).repeat(8, 1).repeat(8, 2)
    if task == "classification":
        kinds = np.broadcast_to(random.integers(0, 3, (count, 1, 1)), (count, size, size))
    images = (random.normal(0, 60, (count, bands, size, size)) + 1000).astype(np.uint16)
    images[:, 0] = (kinds * 100 + 900 + random.normal(0, 30, kinds.shape)).astype(np.uint16)
    labels = kinds.astype(np.uint8)
    if task == "segmentation":
        labels = np.where(random.random(kinds.shape) < random.random((count, 1, 1)), labels, IGNORED).astype(np.uint8)
    else:
        labels = labels[:, 0, 0]
    shards = []
    for shard, start in enumerate(range(0, count, tiles_per_shard)):
        np.save(folder / f"images-{shard:03d}.npy", images[start : start + tiles_per_shard])
        shards.append(Shard(images=f"images-{shard:03d}.npy", count=len(images[start : start + tiles_per_shard])))
    np.save(folder / "labels.npy", labels)
    splits = ["train"] * train + ["validation"] * validation + ["test"] * test
    pd.DataFrame({"tile": range(count), "split": splits}).to_parquet(folder / "index.parquet")
    write_lookup(folder, splits, np.arange(count))
    info = StoreInfo(
        task=task,
        bands=[f"B{band:02d}" for band in range(bands)],
        classes=[ClassInfo(name=f"class {k}", colour=COLOURS[k], values=[k]) for k in range(3)],
        tile_size=size,
        resolution=10.0,
        tiles=count,
        shards=shards,
        normalisation=Normalisation(
            mean=images.mean((0, 2, 3)).tolist(), std=images.std((0, 2, 3)).tolist(), missing=0.0
        ),
        percentiles={},
        class_counts={
            split: [int((labels[np.array(splits) == split] == k).sum()) for k in range(3)]
            for split in ("train", "validation", "test")
        },
        nodata_share=0.0,
    )
    write_json(folder / "statistics.json", info.model_dump(mode="json"))
    return folder
