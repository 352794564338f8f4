"""A scene that cannot be read, in a real run: the others are done, the run and the overview say which failed."""

import os
import subprocess
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import yaml
from rasterio.transform import from_origin
from shapely.geometry import box

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SIDE = 64
CONFIG = {
    "datasets": {
        "mine": {
            "task": "segmentation",
            "sources": [{"path": "data", "licence": "none"}],
            "scenes": {name: {"bands": {"nir": f"data/{name}.tif"}} for name in ("whole", "cut-off")},
            "labels": {"path": "data/labels.gpkg", "field": "kind"},
            "classes": [
                {"name": "Wood", "colour": "#1b7837", "values": ["wood"]},
                {"name": "Lake", "colour": "#2166ac", "values": ["lake"]},
            ],
            "tiles": {"size": 16},
            "split": {"by": "block", "size": 16, "buffer": 0},
        }
    },
    "models": {"unet": {"architecture": "unet", "depth": 3, "width": 8}},
    "training": {"short": {"epochs": 1, "batch_size": 4}},
    "experiments": {"mine": {"dataset": "mine", "model": "unet", "training": "short"}},
}


def write_data(folder: Path) -> None:
    folder.mkdir()
    rows = []
    for number, name in enumerate(CONFIG["datasets"]["mine"]["scenes"]):
        left, top = 400_000 + number * 10_000, 5_800_000
        image = np.random.default_rng(number).integers(1, 2000, (1, SIDE, SIDE), np.uint16)
        with rasterio.open(
            folder / f"{name}.tif", "w", driver="GTiff", width=SIDE, height=SIDE, count=1, dtype="uint16",
            crs="EPSG:32633", transform=from_origin(left, top, 10, 10),
        ) as scene:  # fmt: skip
            scene.write(image)
        for row in range(8):
            kind = ("wood", "lake")[row % 2]
            rows.append({"kind": kind, "geometry": box(left, top - 80 * (row + 1), left + 640, top - 80 * row)})
    gpd.GeoDataFrame(rows, crs="EPSG:32633").to_file(folder / "labels.gpkg")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("Snakefile", "workflow", "profiles", "local", "slurm", "src", "config.yaml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    write_data(tmp_path / "data")
    return tmp_path


def snakemake(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LANDBALANCE")}
    return subprocess.run(
        ["snakemake", *arguments, "--profile", "local", "--configfile", "mine.yaml"],
        cwd=folder, env=environment, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_a_scene_that_fails_is_listed_and_the_others_are_done(project: Path) -> None:
    broken = project / "data" / "cut-off.tif"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 3])
    result = snakemake(project, "--keep-going")
    assert result.returncode != 0
    scenes = project / "results" / "tile" / "mine" / "scenes"
    assert sorted(path.name for path in scenes.iterdir()) == ["cut-off.json.failed", "whole", "whole.json"]
    assert "Scenes that failed:\n  scene cut-off of dataset mine was not cut into tiles: " in result.stdout
    index = project / "results" / "report" / "index.html"
    page = index.read_text(encoding="utf-8")
    assert "scene cut-off of dataset mine was not cut into tiles: " in page
    assert "cut-off.tif: cannot be read" in page
    assert "not run yet" in page
    assert index.stat().st_mtime == 1  # so the next run writes it anew, whatever that finds
    broken.write_bytes(whole)
    result = snakemake(project, "results/tile/mine/index.parquet")
    assert result.returncode == 0, result.stdout
    assert sorted(path.name for path in scenes.iterdir()) == ["cut-off", "cut-off.json", "whole", "whole.json"]
    assert "Scenes that failed" not in result.stdout
