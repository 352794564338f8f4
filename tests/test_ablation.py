"""The ablation of the EuroSAT recipe: what its program says of models that are there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from landbalance.bundle import Bundle, save_bundle
from landbalance.config import load_config
from landbalance.files import write_json
from landbalance.layout import Layout
from landbalance.models import build_model
from landbalance.tiles import open_tiles
from stores import write_store

ROOT = Path(__file__).parents[1]
TRAINING = {"epochs": 1, "batch_size": 8}


def described(folder: Path) -> Path:
    """Write a configuration of a recipe with two seeds and a variant."""
    config = {
        "datasets": {
            "d": {
                "task": "classification",
                "sources": [{"path": "nowhere", "licence": "none"}],
                "folders": {"path": "p", "bands": ["a", "b"]},
                "classes": [{"name": n, "colour": f"#00000{k}", "values": [n]} for k, n in enumerate("xyz")],
                "split": {"by": "sample"},
            }
        },
        "models": {"m": {"architecture": "resnet9", "width": 8}},
        "training": {"t": TRAINING, "t-1": {**TRAINING, "seed": 1}, "more": {**TRAINING, "epochs": 2}},
        "experiments": {
            name: {"dataset": "d", "model": "m", "training": training}
            for name, training in (("recipe", "t"), ("recipe-1", "t-1"), ("more", "more"))
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return folder / "config.yaml"


def printed(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "benchmarks" / "ablation.py"), "--config", str(folder / "config.yaml")]
    command += ["--results", str(folder / "results"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})


@pytest.fixture
def trained(tmp_path: Path) -> Any:
    """Return a folder whose recipe is trained with two seeds; its test split cannot be read."""
    config, layout = load_config(described(tmp_path)), Layout(tmp_path / "results")
    info = open_tiles(write_store(layout.tile("d"), task="classification", train=6, validation=12, test=0)).info
    for seed, name in enumerate(("recipe", "recipe-1")):
        torch.manual_seed(seed)
        card = Bundle(
            task="classification", model=config.models["m"], bands=info.bands, classes=info.classes,
            tile_size=info.tile_size, resolution=None, normalisation=info.normalisation, provenance={},
        )  # fmt: skip
        save_bundle(layout.train(name), build_model(card.model, len(info.bands), len(info.classes)), card)
        write_json(layout.train(name) / "run.json", {"seconds": 10.0 * (seed + 1)})
    return tmp_path


def test_seeds_are_one_variant_and_what_is_not_trained_is_left_out(trained: Path) -> None:
    done = printed(trained)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert {name.partition(".")[0] for name in figures} == {"recipe"}
    assert figures["recipe.seconds"] == 15
    assert (figures["recipe.gain"], figures["recipe.cost"]) == (0, 1)
    assert 12 * figures["recipe.accuracy"] * 2 == pytest.approx(np.rint(12 * figures["recipe.accuracy"] * 2))
    assert "recipe.accuracy.sd" in figures
    table = printed(trained, "--table").stdout.splitlines()
    assert len(table) == 3
    assert table[2].startswith("| recipe | 2 | ")


def test_nothing_trained_yet(tmp_path: Path) -> None:
    described(tmp_path)
    done = printed(tmp_path)
    assert done.returncode == 1
    assert "is not trained. Run Snakemake with --until train" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_ablation_that_the_project_ships_draws_the_splits_of_the_recipes_configuration() -> None:
    """So that no image that is tested there is learned from, or chosen by, here; and begins with its recipe."""
    of_recipe, ablation = (load_config(ROOT / "configs" / f"{name}.yaml") for name in ("eurosat", "ablation"))
    assert ablation.datasets["eurosat-short"].split == of_recipe.datasets["eurosat"].split
    assert ablation.models["resnet9"] == of_recipe.models["resnet9"]
    shortened = {"epochs": 10, "warmup_epochs": 1, "ema": 0.975, "rebalance": False}
    assert ablation.training["recipe"] == of_recipe.training["scratch"].model_copy(update=shortened)
    assert next(iter(ablation.experiments)) == "recipe"
