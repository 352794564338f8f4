"""What the README promises, done: its commands, its links, and its example on a scene whose right answer is known."""

import os
import re
import subprocess
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from shapely.geometry import box

from landbalance.files import read_json

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PIXELS, PER_FIELD = 192, 24


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")), ids=lambda p: p.name)
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_make_targets_are_there():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make (\w+)", "\n".join(blocks("bash"))))
    assert named == {"demo", "test"}
    assert all(re.search(rf"^{name}:", makefile, flags=re.MULTILINE) for name in named)


def write_scene(folder: Path) -> np.ndarray:
    """Write fields of three classes, told by their bands, and polygons of two thirds of them; return the truth."""
    random = np.random.default_rng(0)
    fields = random.integers(0, 3, (PIXELS // PER_FIELD,) * 2)
    truth = fields.repeat(PER_FIELD, 0).repeat(PER_FIELD, 1)
    spectra = np.array([[300, 500, 400, 2500], [600, 500, 300, 100], [900, 1200, 1500, 2000]])
    image = spectra[truth].transpose(2, 0, 1) + random.normal(0, 80, (4, PIXELS, PIXELS))
    transform = from_origin(400000, 5800000, 10, 10)
    folder.mkdir()
    with rasterio.open(
        folder / "scene.tif", "w", driver="GTiff", width=PIXELS, height=PIXELS, count=4, dtype="uint16",
        crs="EPSG:32633", transform=transform, nodata=0,
    ) as scene:  # fmt: skip
        scene.write(image.clip(1).astype(np.uint16))
    names = {0: ["forest", "wood"], 1: ["water"], 2: ["farm"]}
    rows = []
    for row, col in np.ndindex(fields.shape):
        if random.random() < 2 / 3:
            left, top = transform * (col * PER_FIELD, row * PER_FIELD)
            side = PER_FIELD * 10
            values = names[int(fields[row, col])]
            rows.append({"landuse": values[col % len(values)], "geometry": box(left, top - side, left + side, top)})
    # In another CRS than the scene's, as people have it.
    gpd.GeoDataFrame(rows, crs="EPSG:32633").to_crs("EPSG:4326").to_file(folder / "labels.gpkg")
    return truth


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder that looks like a clone, with the README's configuration and a generated scene."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("Snakefile", "workflow", "profiles", "local", "slurm", "src", "config.yaml"):
        (folder / name).symlink_to(ROOT / name)
    (example,) = blocks("yaml")
    (folder / "mine.yaml").write_text(example)
    return folder, write_scene(folder / "data")


def run(command, folder):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LANDBALANCE")}
    return subprocess.run(
        command, cwd=folder, shell=True, executable="/bin/bash", env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.slow
def test_the_example_maps_a_scene_whose_right_answer_is_known(project):
    folder, truth = project
    commands = [line for line in blocks("bash")[1].splitlines() if not line.startswith("source")]
    assert len(commands) == 2
    for command in commands:
        done = run(command, folder)
        assert done.returncode == 0, done.stdout
    with rasterio.open(folder / "results" / "map" / "mine" / "summer.tif") as opened:
        found = opened.read(1)
        assert opened.colormap(1)[1] == (0x21, 0x66, 0xAC, 255)
        assert (opened.crs.to_epsg(), opened.shape) == (32633, (PIXELS, PIXELS))
    assert (found == truth).mean() > 0.9
    metrics = read_json(folder / "results" / "evaluate" / "mine" / "metrics.json")
    assert metrics["overall_accuracy"] > 0.9
    assert (folder / "results" / "report" / "mine.html").exists()

    again = run(commands[-1], folder)
    assert "Nothing to be done" in again.stdout
    archived = run(f"{commands[-1]} --report report.html", folder)
    assert archived.returncode == 0, archived.stdout
    assert (folder / "report.html").stat().st_size > 10_000
