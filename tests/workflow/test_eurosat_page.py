"""What docs/eurosat.md says to type, announced by Snakemake in a copy of the project."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from landbalance.config import parse_config

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.workflow.conftest import Clone

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "eurosat.md").read_text(encoding="utf-8")
LEARNING = {"download", "tile", "profile", "plan", "train"}


@pytest.fixture(scope="module")
def clone(clean: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    copied = clean.copy(tmp_path_factory.mktemp("eurosat") / "clone")
    shutil.copytree(ROOT / "configs", copied.root / "configs")
    return copied


def due(clone: Clone, config: str) -> set[str]:
    """Return the commands that the page's line with a configuration would run."""
    (line,) = set(re.findall(rf"^snakemake .*configs/{config}\.yaml.*$", PAGE, re.MULTILINE))
    return clone.due(*shlex.split(line)[1:])


def test_the_run_trains_judges_and_maps_and_cuts_no_scene(clone: Clone) -> None:
    found = due(clone, "eurosat")
    assert {"tile eurosat", "train eurosat", "evaluate eurosat", "map eurosat havel-2017-02-16"} <= found
    assert "tile eurosat havel-2017-02-16" not in found


def test_the_ablation_runs_nothing_that_reads_the_test_split(clone: Clone) -> None:
    found = due(clone, "ablation")
    assert {command.partition(" ")[0] for command in found} == LEARNING
    assert len([command for command in found if command.startswith("train ")]) == 19


def test_a_copy_of_the_archive_takes_the_place_of_the_address() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    source = yaml.safe_load(block.replace("…", "ab" * 32))["datasets"]["eurosat"]["sources"][0]
    config = yaml.safe_load((ROOT / "configs" / "eurosat.yaml").read_text(encoding="utf-8"))
    config["datasets"]["eurosat"]["sources"][0] = source
    assert parse_config(config).datasets["eurosat"].sources[0].path == "EuroSAT_RGB.zip"
