"""A grid of two arms on tiny images, from the files to the comparison, by the real stages."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
import yaml
from rasterio.errors import NotGeoreferencedWarning

from landbalance.files import read_json

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore", category=NotGeoreferencedWarning)]

ROOT = Path(__file__).parents[2]
CONFIG = {
    "datasets": {
        "images": {
            "task": "classification",
            "sources": [{"path": "images", "licence": "none"}],
            "folders": {"path": "images", "bands": ["red", "green", "blue"]},
            "classes": [
                {"name": "Dark", "colour": "#000000", "values": ["dark"]},
                {"name": "Light", "colour": "#ffffff", "values": ["light"]},
            ],
            "split": {"by": "sample", "train": 0.5, "validation": 0.25, "test": 0.25},
        }
    },
    "models": {"small": {"architecture": "resnet9", "width": 2}},
    "training": {"short": {"epochs": 2, "batch_size": 8, "optimiser": {"learning_rate": 0.01}, "rebalance": False}},
    "grids": {
        "arms": {
            "datasets": ["images"],
            "models": ["small"],
            "training": "short",
            "nodes": ["half"],
            "arms": ["equal", "balanced"],
        }
    },
    "profile": {"seconds": 2.0, "tolerance": 0.5, "repeats": 3},
    "evaluate": {"baseline": False, "orientations": 8, "resamples": 100},
}
CLUSTER = {
    "nodes": [
        {"name": "unused", "workers": [{"device": "cpu", "count": 9}]},
        {"name": "half", "workers": [{"device": "cpu"}, {"device": "cpu", "slowdown": 2}]},
    ]
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("Snakefile", "workflow", "profiles", "local", "src", "config.yaml"):
        (folder / name).symlink_to(ROOT / name)
    random = np.random.default_rng(0)
    for name, level in (("dark", 60), ("light", 180)):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(32):
            pixels = random.normal(level, 30, (3, 16, 16)).clip(0, 255).astype(np.uint8)
            with rasterio.open(
                folder / "images" / name / f"{number}.png",
                "w",
                driver="PNG",
                width=16,
                height=16,
                count=3,
                dtype="uint8",
            ) as file:
                file.write(pixels)
    (folder / "arms.yaml").write_text(yaml.safe_dump(CONFIG))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    return folder


def test_a_grid_becomes_one_table_and_one_picture(project: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LANDBALANCE")}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "snakemake"), "compare", "--profile", "local", "--configfile", "arms.yaml"],
        cwd=project, env={**environment, "LANDBALANCE_CLUSTER": "cluster.yaml"}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    equal, balanced = read_json(project / "results/compare/arms.json")["cells"]
    assert (equal["arm"], equal["shares"], balanced["arm"]) == ("equal", "4 + 4", "balanced")
    assert all(cell["missing"] == [] and cell["emulated"] and cell["nodes"] == "half" for cell in (equal, balanced))
    assert all(cell["samples_per_second"] > 0 and cell["accuracy"] is not None for cell in (equal, balanced))
    assert (project / "results/compare/arms.svg").stat().st_size > 1000
    assert "emulated" in (project / "results/compare/index.html").read_text(encoding="utf-8")
    assert not (project / "results/report").exists()
    assert not (project / "results/profile/images/small/unused.json").exists()
