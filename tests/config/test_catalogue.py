"""The catalogue: every entry is right in itself, and a configuration takes it over as its documentation says."""

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import scipy.io
import yaml
from PIL import Image

from landbalance import cli, workflow
from landbalance.config import Dataset, catalogue, load_config, parse_config
from landbalance.config.checks import read_yaml
from landbalance.download import run as download
from landbalance.errors import UserError
from landbalance.tile.stage import run as tile
from landbalance.tiles import open_tiles

ROOT = Path(__file__).parents[2]
ENTRIES = catalogue.names()
TILED = [name for name in ENTRIES if catalogue.entry(name, "test").fetch_only is None]


def config(**dataset: Any) -> dict[str, Any]:
    return {
        "datasets": {"d": dataset},
        "models": {"m": {"architecture": "resnet18"}},
        "training": {"t": {"epochs": 1, "batch_size": 8}},
        "experiments": {"e": {"dataset": "d", "model": "m", "training": "t"}},
    }


def parsed(**dataset: Any) -> Dataset:
    return parse_config(config(**dataset), "my.yaml").datasets["d"]


# What comes with the package


def test_all_that_the_project_promises_is_there() -> None:
    assert ENTRIES == [
        "aid", "bigearthnet-s2", "eurosat-msi", "eurosat-rgb", "indian-pines", "loveda", "patternnet",
        "pavia-university", "resisc45", "salinas", "so2sat-lcz42", "uc-merced",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_complete(name: str) -> None:
    entry = catalogue.entry(name, "test")
    assert entry.homepage.startswith(("https://", "http://"))
    assert len(entry.dataset["classes"]) >= 2
    if entry.by_hand is not None:
        return
    sources = catalogue.sources(name, "test")
    unverified = [source.url for source in sources if source.unverified]
    # Their publisher states no checksums.
    assert all(re.match(r"https://www\.ehu\.eus/ccwintco/", url or "") for url in unverified)
    assert {source.licence for source in sources} == {entry.licence}


@pytest.mark.parametrize("name", [name for name in TILED if "by: list" in (catalogue.entry(name, "test").splits or "")])
def test_the_split_that_an_entry_tells_of_can_be_set(name: str) -> None:
    splits = catalogue.entry(name, "test").splits or ""
    split = yaml.safe_load(splits[splits.index("{") :])
    assert {source.name for source in parsed(catalogue=name, split=split).sources} >= {*split["train"], *split["test"]}


@pytest.mark.parametrize("name", TILED)
def test_an_entry_is_a_dataset(name: str) -> None:
    catalogue.details(name)  # which checks that


def test_published_facts() -> None:
    """Numbers of the papers, against slips in lists of classes."""
    counts = {name: len(catalogue.entry(name, "test").dataset["classes"]) for name in ENTRIES}
    assert counts == {
        "aid": 30, "bigearthnet-s2": 19, "eurosat-msi": 10, "eurosat-rgb": 10, "indian-pines": 16, "loveda": 7,
        "patternnet": 38, "pavia-university": 9, "resisc45": 45, "salinas": 16, "so2sat-lcz42": 17, "uc-merced": 21,
    }  # fmt: skip


# How a configuration takes an entry over


def test_a_name_is_enough() -> None:
    dataset = parsed(catalogue="eurosat-rgb")
    assert dataset.bands == ["B04", "B03", "B02"]
    assert dataset.sources[0].md5 == "c8fa014336c82ac7804f0398fcb19387"
    assert dataset.sources[0].licence == "MIT"
    assert "Helber" in (dataset.sources[0].attribution or "")


def test_own_keys_come_first() -> None:
    dataset = parsed(
        catalogue="eurosat-rgb",
        sources=[{"path": "mine.zip"}, {"path": "more", "licence": "own"}],
        folders={"path": "elsewhere"},
        split={"by": "sample", "train": 0.8, "validation": 0.0, "test": 0.2},
    )
    assert [(source.path, source.licence) for source in dataset.sources] == [("mine.zip", "MIT"), ("more", "own")]
    assert dataset.folders is not None
    assert (dataset.folders.path, dataset.folders.bands) == ("elsewhere", ["B04", "B03", "B02"])
    assert dataset.split.train == 0.8
    assert len(dataset.classes) == 10


def test_what_a_run_keeps_needs_no_catalogue_to_say_the_same(tmp_path: Path) -> None:
    first = parse_config(config(catalogue="eurosat-msi", tiles={"size": 32}))
    workflow.freeze(first, tmp_path)
    kept = tmp_path / workflow.frozen(first)[0]
    assert load_config(kept) == first
    values = read_yaml(kept)
    del values["datasets"]["d"]["catalogue"]
    assert parse_config(values).datasets["d"] == first.datasets["d"].model_copy(update={"catalogue": None})


@pytest.mark.parametrize(
    ("dataset", "parts"),
    [
        ({"catalogue": "eurosatrgb"}, ["my.yaml: datasets.d.catalogue", "did you mean eurosat-rgb?", "loveda"]),
        ({"catalogue": "so2sat-lcz42"}, ["cannot be cut into tiles yet", "HDF5", "landbalance download so2sat-lcz42"]),
        ({"catalogue": "aid"}, ["my.yaml: datasets.d.sources", "by hand", "captain-whu.github.io/AID"]),
        ({"catalogue": "gone.yaml"}, ["gone.yaml: not found"]),
        ({"catalogue": 3}, ["datasets.d.catalogue: found 3"]),
        ({"catalogue": "eurosat-rgb", "folder": {}}, ["datasets.d.folder: no such setting", "did you mean folders?"]),
        ({"catalogue": "eurosat-rgb", "sources": "a.zip"}, ["datasets.d.sources: found 'a.zip'"]),
    ],
)
def test_a_mistake_is_named(dataset: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parsed(**dataset)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_by_hand_goes_with_a_source_of_ones_own() -> None:
    dataset = parsed(catalogue="aid", sources=[{"path": "AID"}])
    assert len(dataset.classes) == 30
    assert "Google Earth" in dataset.sources[0].licence


def test_an_entry_of_ones_own_needs_no_code(tmp_path: Path) -> None:
    values = read_yaml(ROOT / "src/landbalance/config/datasets/eurosat-rgb.yaml")
    values["dataset"]["folders"]["path"] = "mine"
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(values))
    dataset = parsed(catalogue=str(own))
    assert dataset.folders is not None and dataset.folders.path == "mine"
    assert f"{{catalogue: {own}}}" in catalogue.details(str(own))
    own.write_text(yaml.safe_dump({**values, "citations": "x"}))
    with pytest.raises(UserError, match=r"own\.yaml: citations: no such setting \(did you mean citation\?\)"):
        parsed(catalogue=str(own))
    values["dataset"]["task"] = "guessing"
    own.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match=r"own\.yaml: task: found 'guessing'"):
        catalogue.details(str(own))


def test_an_editor_takes_a_dataset_with_a_name_and_no_more() -> None:
    schema = json.loads((ROOT / "workflow/schemas/config.schema.json").read_text())
    jsonschema.validate(config(catalogue="eurosat-rgb"), schema)
    with pytest.raises(jsonschema.ValidationError, match="'task' is a required property"):
        jsonschema.validate(config(resolution=10), schema)


# To the end


def test_from_an_archive_of_ones_own_to_tiles(tmp_path: Path) -> None:
    """An archive laid out as the catalogue says comes out as tiles of all its classes."""
    random = np.random.default_rng(0)
    folders = [item["values"][0] for item in catalogue.entry("eurosat-rgb", "test").dataset["classes"]]
    for folder in folders:
        (tmp_path / "2750" / folder).mkdir(parents=True)
        for number in range(5):
            pixels = random.integers(0, 255, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "2750" / folder / f"{folder}_{number}.jpg")
    dataset = parsed(catalogue="eurosat-rgb", sources=[{"path": str(tmp_path / "2750")}])
    download("d", dataset.sources, tmp_path / "download" / "d")
    tile("d", dataset, tmp_path / "download" / "d", tmp_path / "tile" / "d")
    store = open_tiles(tmp_path / "tile" / "d")
    assert {name: len(store.ids(name)) for name in ("train", "validation", "test")} == {
        "train": 30, "validation": 10, "test": 10,
    }  # fmt: skip


def test_archives_side_by_side_and_a_published_split(tmp_path: Path) -> None:
    """LoveDA: two archives unpacked into one folder, a mask per image, Train to train on and Val to test."""
    random = np.random.default_rng(0)
    sources = []
    for part in ("Train", "Val"):
        with zipfile.ZipFile(tmp_path / f"{part}.zip", "w") as archive:
            for number in range(4):
                for folder, shape, most in (("images_png", (64, 64, 3), 255), ("masks_png", (64, 64), 8)):
                    buffer = io.BytesIO()
                    Image.fromarray(random.integers(0, most, shape, np.uint8)).save(buffer, "PNG")
                    archive.writestr(f"{part}/Rural/{folder}/{number}.png", buffer.getvalue())
        sources.append({"path": str(tmp_path / f"{part}.zip"), "name": f"LoveDA/{part}.zip"})
    raw = config(catalogue="loveda", sources=sources, tiles={"size": 64})
    raw["models"]["m"]["architecture"] = "unet"
    dataset = parse_config(raw).datasets["d"]
    download("d", dataset.sources, tmp_path / "download" / "d")
    tile("d", dataset, tmp_path / "download" / "d", tmp_path / "tile" / "d")
    store = open_tiles(tmp_path / "tile" / "d")
    assert {name: len(store.ids(name)) for name in ("train", "validation", "test")} == {
        "train": 4, "validation": 0, "test": 4,
    }  # fmt: skip


def test_the_example_of_the_documentation() -> None:
    (example,) = re.findall(r"```yaml\n(datasets:.*?)```", (ROOT / "docs" / "data.md").read_text(), re.DOTALL)
    written = yaml.safe_load(example)["datasets"]
    assert parsed(**written["eurosat"]) == parsed(catalogue="eurosat-rgb")
    assert parsed(**written["eurosat-here"]).sources[0].path == "/data/EuroSAT.zip"


def test_datasets_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["datasets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(ENTRIES) + 1
    assert re.search(r"^eurosat-rgb +94 MB +classification +10 +3 +fetch, tile +MIT$", "\n".join(lines), re.MULTILINE)
    assert re.search(r"^aid .* by hand ", "\n".join(lines), re.MULTILINE)
    assert cli.main(["datasets", "aid", "so2sat-lcz42"]) == 0
    text = capsys.readouterr().out
    assert "datasets: {aid: {catalogue: aid, sources: [{path: FOLDER}]}}" in text
    assert "No tiles: the patches stand in HDF5 files" in text


def test_a_data_set_can_be_fetched_without_a_configuration_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANDBALANCE_CACHE", str(tmp_path))
    options = ["--config", str(ROOT / "config.yaml"), "--results", str(tmp_path / "results"), "--offline"]
    for name, said in (
        ("so2sat-lcz42", "training.h5 (looked for"),
        ("aid", "AID must be fetched by hand"),
        ("gone", "datasets has no gone"),
    ):
        assert cli.main(["download", name, *options]) == 1
        assert said in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert cli.main(["download", "eurosat-rgb", "--offline"]) == 1
    assert "EuroSAT.zip (looked for" in capsys.readouterr().err


def test_a_hyperspectral_scene_is_tiled(tmp_path: Path) -> None:
    """With numbers of ours: the scene's size, bands and classes are the real one's."""
    classes = np.random.default_rng(0).integers(0, 17, (19, 19)).repeat(8, 0).repeat(8, 1)[:145, :145].astype(np.uint8)
    cube = (classes[..., None].astype(np.uint16) * 100 + np.arange(1, 201)).astype(np.uint16)
    scipy.io.savemat(tmp_path / "Indian_pines_corrected.mat", {"indian_pines_corrected": cube})
    scipy.io.savemat(tmp_path / "Indian_pines_gt.mat", {"indian_pines_gt": classes})
    wanted = catalogue.entry("indian-pines", "test").dataset["sources"]
    local = [
        {"path": str(tmp_path / Path(source["url"]).name), "licence": "x", "array": source["array"]}
        for source in wanted
    ]
    settings = config(catalogue="indian-pines", sources=local)
    settings["models"]["m"]["architecture"] = "unet"
    dataset = parse_config(settings).datasets["d"]
    download("d", dataset.sources, tmp_path / "download")
    tile("d", dataset, tmp_path / "download", tmp_path / "tiles")
    store = open_tiles(tmp_path / "tiles")
    images, labels = store.read(store.ids("train"))
    inside = labels < 16
    assert images.shape[1:] == (200, 8, 8)
    assert inside.any()
    assert np.array_equal(images[:, 6][inside], (labels[inside].astype(int) + 1) * 100 + 7)
    assert {len(store.ids(split)) > 0 for split in ("train", "validation", "test")} == {True}
