"""A grid is a short way to write experiments, and nothing else."""

from pathlib import Path

import pytest
import yaml

from landbalance.cluster import load_cluster
from landbalance.config import load_config, parse_config

ROOT = Path(__file__).parents[2]
DEMO = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
GRID = {
    "datasets": ["havel"],
    "models": ["unet"],
    "training": "short",
    "nodes": ["ratio-2", "ratio-4"],
    "arms": ["equal", "balanced"],
    "seeds": [0, 7],
}


def test_every_combination_becomes_an_experiment() -> None:
    config = parse_config({**DEMO, "grids": {"g": GRID}})
    made = {name: item for name, item in config.experiments.items() if name not in DEMO["experiments"]}
    assert len(made) == 2 * 2 * 2
    chosen = made["havel-unet-ratio-4-balanced-7"]
    assert (chosen.arm, chosen.nodes, chosen.training) == ("balanced", ["ratio-4"], "short-7")
    assert set(DEMO["experiments"]) < set(config.experiments)


def test_seeds_differ_and_nothing_else() -> None:
    training = parse_config({**DEMO, "grids": {"g": GRID}}).training
    assert (training["short-0"].seed, training["short-7"].seed) == (0, 7)
    assert training["short-7"].model_copy(update={"seed": 0}) == training["short"]


def test_without_nodes_an_experiment_may_use_all() -> None:
    config = parse_config({**DEMO, "experiments": {}, "grids": {"g": {**GRID, "nodes": []}}})
    assert config.experiments["havel-unet-equal-0"].nodes == []


def test_what_a_run_keeps_of_its_configuration_reads_back_the_same() -> None:
    config = parse_config({**DEMO, "grids": {"g": GRID}})
    assert parse_config(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))) == config


@pytest.mark.parametrize(
    ("file", "site", "experiments"), [("arms", "ratios", 81), ("eurosat", "local", 1), ("ablation", "local", 19)]
)
def test_configurations_that_the_project_ships_fit_their_site(file: str, site: str, experiments: int) -> None:
    config = load_config(ROOT / "configs" / f"{file}.yaml")
    cluster = load_cluster(ROOT / "profiles" / site / "cluster.yaml")
    assert len(config.experiments) == experiments
    assert all(cluster.limited_to(experiment.nodes).nodes for experiment in config.experiments.values())
