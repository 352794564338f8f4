"""A stage runs again when code changes that decides what it writes: the table of modules is complete."""

import ast
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
STAGES = ("download", "tile", "profile", "plan", "train", "evaluate", "map", "report")

# These only check, name, place or tell; what they pass on stands among the settings, or is a file.
INERT = {"cluster", "config", "errors", "files", "layout", "progress", "table"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("landbalance", exclude_type_checking_imports=True, cache_dir=None)


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    tree = ast.parse((ROOT / "workflow" / "rules" / "common.smk").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHARED_MODULES":
            return {stage: names.split() for stage, names in ast.literal_eval(node.value).items()}
    raise AssertionError("common.smk has no SHARED_MODULES")


def imported(graph: grimp.ImportGraph, stage: str) -> set[str]:
    """Return the top-level modules that a stage imports, directly or through others, lazily or not."""
    own = graph.find_descendants(f"landbalance.{stage}") | {f"landbalance.{stage}"}
    upstream = set().union(*(graph.find_upstream_modules(module) for module in own))
    return {name.split(".")[1] for name in upstream if "." in name} - {stage}


def test_every_stage_is_in_the_table(table: dict[str, list[str]]) -> None:
    assert tuple(table) == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_table_names_what_a_stage_imports(graph: grimp.ImportGraph, table: dict[str, list[str]], stage: str) -> None:
    assert table[stage] == sorted(imported(graph, stage) - INERT)


def test_the_graph_sees_lazy_imports(graph: grimp.ImportGraph) -> None:
    """The check above can only be as good as the graph: imports inside functions count."""
    assert "models" in imported(graph, "evaluate")  # bundle.load_bundle imports it when called


@pytest.mark.parametrize("stage", STAGES)
def test_one_word_per_stage(stage: str) -> None:
    """The rule, its file, the subcommand and the package have the same name."""
    rules = (ROOT / "workflow" / "rules" / f"{stage}.smk").read_text(encoding="utf-8")
    assert f"rule {stage}:" in rules
    assert f'"landbalance {stage} {{wildcards.' in rules
    assert (ROOT / "src" / "landbalance" / stage / "__init__.py").is_file()
