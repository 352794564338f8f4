"""The commands of docs/accuracy.md, run as they stand there, on maps of a generated scene."""

import json
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pytest
import yaml

from landbalance.cli import main

WriteMap = Callable[..., Path]
ROOT = Path(__file__).parents[2]
SCENE = "havel-2017-02-16"
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "accuracy.md").read_text(), flags=re.DOTALL)
    for line in block.strip().splitlines()
]
NAMES = [item["name"] for item in yaml.safe_load((ROOT / "config.yaml").read_text())["datasets"]["havel"]["classes"]]


@pytest.fixture
def project(tmp_path: Path, write_map: WriteMap, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Make a working folder with the demo's configuration and two experiments' maps; return what is on the ground."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").symlink_to(ROOT / "config.yaml")
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 7, (60, 80)).repeat(3, 0).repeat(3, 1).astype(np.uint8)
    for name, share in (("havel", 0.3), ("havel-equal", 0.5)):
        mapped = np.where(generator.random(truth.shape) < share, generator.integers(0, 7, truth.shape), truth)
        folder = Path("results/map") / name
        folder.mkdir(parents=True)
        write_map(mapped.astype(np.uint8), names=dict(enumerate(NAMES))).replace(folder / f"{SCENE}.tif")
    accuracies = [{"name": name, "users_accuracy": None if name == "Scrub" else 0.8} for name in NAMES]
    Path("results/evaluate/havel").mkdir(parents=True)
    Path("results/evaluate/havel/metrics.json").write_text(json.dumps({"per_class": accuracies}))
    return truth


def label(path: Path, truth: np.ndarray) -> None:
    points = gpd.read_file(path, layer="points")
    row, col = ((5_800_000 - points.geometry.y) // 10).astype(int), ((points.geometry.x - 400_000) // 10).astype(int)
    points["reference"] = np.array(NAMES)[truth[row, col]]
    points.to_file(path, layer="points", driver="GPKG")


def run(*words: str) -> int:
    return main(words)


def test_the_documented_way(project: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.split()[1] for line in COMMANDS] == ["design", "assess", "assess", "design", "assess"]
    found: list[dict[str, Any]] = []
    for line in COMMANDS:
        _, command, *options = shlex.split(line)
        assert run(command, *options) == 0, line
        out = dict(pairwise(options)).get("--out")
        if command == "design":
            label(Path(out or "results/design/havel.gpkg"), project)
        else:
            path = Path(out or f"results/assess/{options[0]}.json")
            found.append(json.loads(path.read_text()))
            text = capsys.readouterr().out
            assert f"{found[-1]['overall_accuracy']['estimate']:.4f} ±" in text
            assert all(name in text for name in NAMES)
    assert [item["estimator"].split()[0] for item in found] == ["Olofsson", "Stehman", "Olofsson"]
    # A wrong pixel is right by chance once in seven times.
    for item, share in zip(found, (0.3, 0.5, 0.3), strict=True):
        overall = item["overall_accuracy"]
        assert abs(overall["estimate"] - (1 - share * 6 / 7)) < 3.5 * overall["standard_error"]
        assert 0.01 < overall["standard_error"] < 0.03
    assert found[2]["labelled_points"] == 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["design"], "Give the name of an experiment or --map"),
        (["assess", "havel", "--map", "a.tif"], "Give the name of an experiment or --map"),
        (["design", "--map", "a.tif"], "--out: say where the points"),
        (["assess", "--map", "a.tif", "--points", "a.gpkg"], "--points, --out: with --map"),
        (["design", "other"], "experiments has no other; allowed: havel, havel-equal"),
        (["assess", "havel"], "results/design/havel.gpkg: no file of points"),
    ],
)
def test_mistakes(
    project: np.ndarray,
    words: list[str],
    message: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(*words) == 1
    assert message in capfd.readouterr().err


def test_an_experiment_is_expected_to_be_as_accurate_as_on_its_test_split(
    project: np.ndarray, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("design", "havel") == 0
    rows = [line.split() for line in capfd.readouterr().err.splitlines()]
    expected = {row[0]: row[3] for row in rows if row and row[0] in NAMES}
    assert expected == {name: "0.50" if name == "Scrub" else "0.80" for name in NAMES}


def test_a_mosaic_stands_for_its_scenes(project: np.ndarray) -> None:
    """Scenes overlap as a rule; where their mosaic is, it is the population."""
    config = yaml.safe_load(Path("config.yaml").read_text())
    scenes = config["datasets"]["havel"]["scenes"]
    scenes["second"] = scenes[SCENE]
    Path("two.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    folder = Path("results/map/havel")
    (folder / "second.tif").write_bytes((folder / f"{SCENE}.tif").read_bytes())
    assert run("design", "havel", "--config", "two.yaml") == 1
    (folder / "mosaic.tif").write_bytes((folder / f"{SCENE}.tif").read_bytes())
    assert run("design", "havel", "--config", "two.yaml") == 0
