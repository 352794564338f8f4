"""C27: a stage that fails inside a pipe fails its rule, and its log is kept."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.workflow.conftest import Clone

ROOT = Path(__file__).parents[2]
RULES = [ROOT / "Snakefile", *sorted((ROOT / "workflow").rglob("*.smk"))]


def test_C27_a_training_that_fails_in_its_pipe_fails_the_rule(clean: Clone, tmp_path: Path) -> None:
    clone = clean.copy(tmp_path / "clone")
    for name in (
        "settings/train/havel.txt",
        "tile/havel/index.parquet",
        "tile/havel/statistics.json",
        "plan/havel.json",
    ):
        path = clone.root / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    weights = clone.root / "results/train/havel/model.safetensors"
    chosen = ("--allowed-rules", "train", "--profile", "local", str(weights.relative_to(clone.root)))
    result = clone.snakemake(*chosen, environment={"STUB_FAILS": "train"})
    assert result.status == 1
    assert "Error in rule train" in result.output
    assert not weights.exists()
    log = (clone.root / "logs/train/havel.log").read_text(encoding="utf-8")
    assert log == "stub: train havel\nerror: as the test wants it\n"


def test_a_scene_that_fails_is_named_and_stops_no_other(done: Clone, tmp_path: Path) -> None:
    clone = done.copy(tmp_path / "clone")
    config = yaml.safe_load((clone.root / "config.yaml").read_text(encoding="utf-8"))
    scenes = config["datasets"]["havel"]["scenes"]
    first = next(iter(scenes.values()))
    scenes.update({name: copy.deepcopy(first) for name in ("broken", "later")})
    (clone.root / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    index = "results/tile/havel/index.parquet"
    chosen = ("--profile", "local", "--keep-going", "--allowed-rules", "tile", "tile_scene", "--", index)
    result = clone.snakemake(*chosen, environment={"STUB_FAILS": "tile broken"})
    assert result.status == 1
    assert "Error in rule tile_scene" in result.output
    assert "logs/tile/havel/broken.log" in result.output
    assert (clone.root / "results/tile/havel/scenes/later.json").exists()
    assert not (clone.root / "results/tile/havel/scenes/broken.json").exists()
    assert "error: as the test wants it" in (clone.root / "logs/tile/havel/broken.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_C27_no_rule_weakens_the_strict_shell_of_snakemake(path: Path) -> None:
    """Snakemake runs each shell line under `set -euo pipefail`, as long as nobody takes that away."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"pipefail|set \+|\|\| *true|shell\.(prefix|executable)|shell_exec", text)
    # What a stage says goes to its log and to the screen; a signal must not end `tee` before the stage has spoken.
    for pipe in re.findall(r"[^\n]*\| tee[^\n]*", text):
        assert pipe.endswith('2>&1 | tee -i {log:q}"')
