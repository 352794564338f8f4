"""Everything the stages would leave of small experiments, written by their contracts."""

from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import rasterio
from rasterio.shutil import copy as copy_raster
from rasterio.transform import from_origin
from shapely.geometry import box

from landbalance.config import Config, parse_config
from landbalance.files import write_json
from landbalance.layout import Layout
from landbalance.plans import Plan
from landbalance.profiles import NodeProfile
from landbalance.tiles import StoreInfo
from report.metrics_samples import CLASSES, HOSTILE, metrics, patch_metrics, write_predictions

Changed = Callable[[Path, Callable[[Any], Any]], None]
"""Changes the content of a JSON file."""
WIDTH, HEIGHT, PIXEL = 120, 90, 10.0
TRANSFORM = from_origin(300_000, 5_850_000, PIXEL, PIXEL)
CRS = "EPSG:32633"
NODATA_ROWS = 9
"""Rows at the top of the scene without data."""

SOURCE = {"path": "data", "licence": "CC0", "attribution": "Example & Sons"}
RAW: dict[str, Any] = {
    "datasets": {
        "valley": {
            "task": "segmentation",
            "sources": [SOURCE],
            "scenes": {
                "valley-2020": {
                    "acquired": "2020-06-01",
                    "bands": {"B02": "blue.tif", "B03": "stack.tif:1", "B04": "stack.tif:2", "B11": "coarse.tif"},
                }
            },
            "labels": {"path": "labels.gpkg", "field": "code"},
            "display": ["B04", "B03", "B02"],
            "classes": CLASSES,
            "tiles": {"size": 30},
            "split": {"by": "block", "size": 30, "train": 0.6, "validation": 0.2, "test": 0.2, "seed": 5},
        },
        "patches": {
            "task": "classification",
            "sources": [{"path": "patches", "licence": "CC0"}],
            "folders": {"path": "patches", "bands": ["R", "G", "B"]},
            "classes": CLASSES[:2],
            "split": {"by": "sample"},
        },
    },
    "models": {"unet": {"architecture": "unet"}, "resnet": {"architecture": "resnet18"}},
    "training": {
        "full": {"epochs": 12, "batch_size": 16, "seed": 7},
        "short": {"epochs": 3, "batch_size": 16},
    },
    "experiments": {
        "valley": {"dataset": "valley", "model": "unet", "training": "full", "arm": "balanced"},
        "valley-equal": {"dataset": "valley", "model": "unet", "training": "short", "arm": "equal"},
        "valley-later": {"dataset": "valley", "model": "unet", "training": "short", "arm": "unweighted"},
        "patches": {"dataset": "patches", "model": "resnet", "training": "short", "arm": "balanced"},
    },
    "map": {"uncertainty": ["confidence"]},
    "report": {"title": "Land cover of a valley", "picture_pixels": 60},
}


@dataclass(frozen=True)
class Results:
    """A configuration and the folder of its results."""

    config: Config
    layout: Layout

    def html(self, name: str) -> str:
        return self.layout.report(name).read_text(encoding="utf-8")


def write_evaluation(layout: Layout, name: str, hits: list[int]) -> None:
    """Write what the evaluate stage says of an experiment; `hits` tell which of six test samples are right."""
    write_json(layout.evaluate(name) / "metrics.json", metrics())
    write_predictions(layout.evaluate(name) / "predictions.parquet", "block", hits)


def write_results(root: Path) -> Results:
    """Write all results below `root`; experiment valley-later has none."""
    made = Results(parse_config(RAW), Layout(root))
    write_scene(made.layout.download("valley"))
    for dataset in ("valley", "patches"):
        write_manifest(made.layout.download(dataset), dataset)
    write_store(made.layout.tile("valley"))
    write_patch_store(made.layout.tile("patches"))
    write_map(made.layout.map("valley", "valley-2020"))
    write_map(made.layout.map("valley-equal", "valley-2020"))
    for name in ("valley", "valley-equal"):
        write_confidence(made.layout.map_product(name, "valley-2020", "confidence.tif"))
    write_json(made.layout.profile("valley", "unet", "local"), profile().model_dump(mode="json"))
    write_experiment(made.layout, "valley", "balanced", shares=(12, 4), step=0.30, epochs=12)
    write_experiment(made.layout, "valley-equal", "equal", shares=(8, 8), step=0.54, epochs=3)
    write_experiment(made.layout, "patches", "balanced", shares=(12, 4), step=0.30, epochs=3)
    write_json(made.layout.evaluate("patches") / "metrics.json", patch_metrics())
    write_predictions(made.layout.evaluate("patches") / "predictions.parquet", "tile", [])
    return made


def class_picture() -> np.ndarray:
    """Return class indices: left half Forest, right half hostile, a lake of 20 x 20, no data at the top."""
    codes = np.zeros((HEIGHT, WIDTH), np.uint8)
    codes[:, WIDTH // 2 :] = 1
    codes[40:60, 50:70] = 2
    codes[:NODATA_ROWS] = 255
    return codes


def write_scene(folder: Path) -> None:
    rng = np.random.default_rng(0)
    codes = class_picture()
    base = {0: (400, 700, 300), 1: (900, 1000, 1200), 2: (800, 500, 250), 255: (0, 0, 0)}
    bands = np.zeros((3, HEIGHT, WIDTH))
    for code, values in base.items():
        for band, value in enumerate(values):
            bands[band][codes == code] = value
    bands += rng.normal(0, 30, bands.shape)
    bands = np.clip(bands, 1, None)
    bands[:, codes == 255] = 0
    images = bands.astype(np.uint16)
    write_raster(folder / "blue.tif", images[:1])
    write_raster(folder / "stack.tif", images[1:])
    write_raster(folder / "coarse.tif", images[:1, ::2, ::2], pixel=2 * PIXEL)


def write_raster(path: Path, images: np.ndarray, pixel: float = PIXEL) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    profile = {
        "driver": "GTiff",
        "crs": CRS,
        "transform": from_origin(TRANSFORM.c, TRANSFORM.f, pixel, pixel),
        "count": len(images),
        "height": images.shape[1],
        "width": images.shape[2],
        "dtype": images.dtype,
        "nodata": 0,
    }
    with rasterio.open(path, "w", **profile) as target:
        target.write(images)


def write_map(path: Path, classes: list[dict[str, Any]] = CLASSES, codes: np.ndarray | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.with_suffix(".plain.tif")
    profile = {"driver": "GTiff", "crs": CRS, "transform": TRANSFORM, "count": 1, "dtype": "uint8", "nodata": 255}
    with rasterio.open(plain, "w", height=HEIGHT, width=WIDTH, **profile) as target:
        target.write(class_picture() if codes is None else codes, 1)
        colours = [tuple(int(item["colour"][at : at + 2], 16) for at in (1, 3, 5)) for item in classes]
        target.write_colormap(1, {code: (*colour, 255) for code, colour in enumerate(colours)} | {255: (0, 0, 0, 0)})
    copy_raster(plain, path, driver="COG")
    plain.unlink()


def write_confidence(path: Path) -> None:
    """Write a layer that is sure (0.9) on the left half and unsure (0.4) on the right."""
    steps = np.where(np.arange(WIDTH) < WIDTH // 2, 225, 100).astype(np.uint8)
    values = np.where(class_picture() == 255, 255, steps)
    profile = {"driver": "GTiff", "crs": CRS, "transform": TRANSFORM, "count": 1, "dtype": "uint8", "nodata": 255}
    with rasterio.open(path, "w", height=HEIGHT, width=WIDTH, **profile) as target:
        target.write(values.astype(np.uint8), 1)


def write_manifest(folder: Path, dataset: str) -> None:
    files = [{"path": f"part-{number}.tif", "bytes": 1000 + number, "sha256": f"{number:064x}"} for number in range(70)]
    source = {
        "source": "data",
        "sha256": "ab" * 32,
        "bytes": 4_650_792,
        "licence": "worded otherwise when it was fetched",
        "attribution": None,
        "retrieved": "2025-01-02T03:04:05+00:00",
        "files": files if dataset == "valley" else files[:1],
    }
    write_json(folder / "manifest.json", {"dataset": dataset, "sources": [source]})


def write_store(folder: Path) -> None:
    rows = []
    splits = ["train"] * 12
    for tile, split in ((2, "test"), (6, "test"), (8, "test"), (4, "validation")):
        splits[tile] = split
    for tile, split in enumerate(splits):
        row, col = (value * 30 for value in divmod(tile, 4))
        left, top = TRANSFORM @ (col, row)
        right, bottom = TRANSFORM @ (col + 30, row + 30)
        rows.append(
            {"tile": tile, "scene": "valley-2020", "row": row, "col": col, "height": 30, "width": 30, "block": tile}
            | {"split": split, "label": 0, "labelled": 900, "geometry": box(left, bottom, right, top)}
        )
    folder.mkdir(parents=True, exist_ok=True)
    gpd.GeoDataFrame(rows, crs=CRS).to_crs("EPSG:4326").to_parquet(folder / "index.parquet")
    write_statistics(folder, CLASSES, "segmentation", ["B02", "B03", "B04", "B11"], 12)


def write_patch_store(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"tile": range(4), "split": ["train", "train", "validation", "test"]}).to_parquet(
        folder / "index.parquet"
    )
    write_statistics(folder, CLASSES[:2], "classification", ["R", "G", "B"], 4)


def write_statistics(folder: Path, classes: list[dict[str, Any]], task: str, bands: list[str], tiles: int) -> None:
    info = StoreInfo.model_validate(
        {
            "task": task,
            "bands": bands,
            "classes": classes,
            "tile_size": 30,
            "resolution": 10.0,
            "tiles": tiles,
            "shards": [{"images": "images.npy", "count": tiles}],
            "normalisation": {"mean": [0.0] * len(bands), "std": [1.0] * len(bands), "missing": 0.0},
            "percentiles": {"2": [0.0] * len(bands), "98": [1.0] * len(bands)},
            "class_counts": {
                split: [1234 + k for k in range(len(classes))] for split in ("train", "validation", "test")
            },
            "nodata_share": 0.1,
        }
    )
    write_json(folder / "statistics.json", info.model_dump(mode="json"))


def planned(rank: int | None, share: int, slowdown: float = 1.0, left_out: str | None = None) -> dict[str, Any]:
    title = "cpu, 1 thread" + (f", emulated {slowdown:g}× slower" if slowdown > 1 else "")
    return {
        "rank": rank,
        "node": "local",
        "node_index": 0,
        "local_index": 2 if rank is None else rank,
        "title": title,
        "device": "cpu",
        "threads": 1,
        "slowdown": slowdown,
        "emulated": slowdown > 1,
        "share": share,
        "micro_batch": None,
        "speed": 45.0 / slowdown,
        "predicted_seconds": 0.27,
        "left_out": left_out,
    }


def plan(experiment: str, arm: str, shares: tuple[int, int]) -> Plan:
    step = 0.54 if arm == "equal" else 0.28
    workers = [
        planned(0, shares[0]),
        planned(1, shares[1], slowdown=3),
        planned(None, 0, slowdown=50, left_out="its use would make a step 0.2 s longer"),
    ]
    predicted = {
        "step_seconds": step,
        "communication_seconds": 0.01,
        "epoch_seconds": 3.0,
        "equal_step_seconds": 0.54,
        "fastest_alone_step_seconds": 0.36,
        "speedup_over_equal": 0.54 / step,
        "speedup_over_equal_limit": 2.0,
        "speedup_over_fastest": 0.36 / step,
        "speedup_over_fastest_limit": 4 / 3,
        "fraction_of_total_speed": 0.95 * 0.28 / step,
    }
    return Plan.model_validate(
        {"experiment": experiment, "arm": arm, "batch_size": 16, "workers": workers, "predicted": predicted}
    )


def timing(shares: tuple[int, int], step: float, epochs: int) -> pd.DataFrame:
    """Return 5 steps an epoch: the run's first is slow, the last of each epoch is smaller and fast."""
    rows = []
    for epoch in range(epochs):
        for number in range(5):
            small = number == 4
            seconds = 5.0 if (epoch, number) == (0, 0) else step / 4 if small else step
            for rank, share in enumerate(shares):
                compute = (0.9 if rank == 1 else 0.8) * seconds
                rows.append(
                    {"epoch": epoch, "step": number, "rank": rank, "samples": share // 4 if small else share}
                    | {"compute_seconds": compute, "wait_seconds": seconds - compute, "step_seconds": seconds}
                )
    return pd.DataFrame(rows)


def write_experiment(layout: Layout, name: str, arm: str, shares: tuple[int, int], step: float, epochs: int) -> None:
    write_json(layout.plan(name), plan(name, arm, shares).model_dump(mode="json"))
    folder = layout.train(name)
    folder.mkdir(parents=True, exist_ok=True)
    timing(shares, step, epochs).to_parquet(folder / "timing.parquet")
    numbers = np.arange(1, epochs + 1)
    history = {
        "epoch": numbers,
        "learning_rate": 0.001,
        "train_loss": 2 / numbers,
        "validation_loss": 2.2 / numbers,
        "validation_accuracy": 1 - 0.7 / numbers,
        "seconds": 3.1 * numbers + 2,
    }
    pd.DataFrame(history).to_parquet(folder / "history.parquet")
    run = {
        "experiment": name,
        "arm": arm,
        "started": "2025-01-02T04:00:00+00:00",
        "finished": "2025-01-02T04:03:12+00:00",
        "seconds": 192.4,
        "resumed": 1,
        "workers": [],
        "versions": {"landbalance": "0.1.0", "torch": "2.14.1"},
        "commit": "0123abcd",
        "settings": {"training": {"epochs": epochs, "clip_norm": None}, "note": HOSTILE},
        "measured": {"step_seconds": step, "samples_per_second": 16 / step},
    }
    write_json(folder / "run.json", run)
    write_evaluation(layout, name, [1, 1, 0, 1, 1, 0] if arm == "equal" else [1, 1, 1, 1, 1, 0])


def profile() -> NodeProfile:
    curve = {"title": "cpu, 1 thread", "device": "cpu", "device_name": "Example CPU", "count": 1, "emulated": False}
    return NodeProfile.model_validate(
        {
            "dataset": "valley",
            "model": "unet",
            "node": "local",
            "measured": "2025-01-02T03:30:00+00:00",
            "machine": {
                "processor": "Example CPU 9000",
                "cores": 8,
                "memory_bytes": 16 * 2**30,
                "python": "3.11",
                "torch": "2.14.1",
            },
            "bands": 4,
            "tile_size": 30,
            "curves": [curve | {"batch_sizes": [1, 16], "seconds": [[0.02] * 3, [0.36] * 3], "largest_batch": None}],
            "allreduce": None,
        }
    )


APART = {"br", "dd", "dt", "li", "p", "td", "th"}
"""What a reader sees apart from what stands before."""
VOID = {"meta", "img", "input", "source", "br", "link", "hr"}


class Page(HTMLParser):
    """The tags of a page, its text by section, and whether its tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.section = ""
        self.text: dict[str, str] = {}
        self.scripts: list[str] = []
        self.feed(html)
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if tag == "section":
            self.section = values.get("id") or ""
        if tag in APART:
            self.text[self.section] = self.text.get(self.section, "") + " "
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text[self.section] = self.text.get(self.section, "") + data.replace("\u00a0", " ")

    def said(self, section: str) -> str:
        return " ".join(self.text[section].split())
