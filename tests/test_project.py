"""What holds the project together: pins, links, licence, structure."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from landbalance import __version__

ROOT = Path(__file__).parents[1]


def normal(name: str) -> str:
    """Return a package's name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    """Return the version of each package in constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def declared(project: dict[str, Any], *extras: str) -> list[Requirement]:
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def needed(project: dict[str, Any]) -> set[str]:
    """Return the names of all packages that an installation here consists of, from their own metadata."""
    todo, seen = declared(project, "workflow", "dev"), set()
    while todo:
        requirement = todo.pop()
        place = (normal(requirement.name), frozenset(requirement.extras))
        if place in seen:
            continue
        seen.add(place)
        for line in metadata.distribution(requirement.name).requires or []:
            inner = Requirement(line)
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
                todo.append(inner)
    return {name for name, _ in seen}


def test_every_package_is_pinned(project: dict[str, Any], pins: dict[str, str]) -> None:
    assert sorted(needed(project) - set(pins)) == []


def test_pins_are_those_that_the_tests_run_with(project: dict[str, Any], pins: dict[str, str]) -> None:
    installed = {name: metadata.version(name) for name in needed(project)}
    assert {name: pins[name] for name in installed} == installed


def test_pins_fit_what_is_declared(project: dict[str, Any], pins: dict[str, str]) -> None:
    for requirement in declared(project, "workflow", "dev"):
        assert requirement.specifier.contains(pins[normal(requirement.name)]), requirement


def test_conda_environment_has_the_same_pins(project: dict[str, Any], pins: dict[str, str]) -> None:
    environment = yaml.safe_load((ROOT / "envs" / "landbalance.yaml").read_text(encoding="utf-8"))
    listed = environment["dependencies"][-1]["pip"]
    found = {normal(name): version for name, version in (line.split("==") for line in listed)}
    assert found == {normal(item.name): pins[normal(item.name)] for item in declared(project, "workflow")}
    python = next(line for line in environment["dependencies"] if str(line).startswith("python="))
    assert python.removeprefix("python=") in project["requires-python"]


def test_version_is_in_the_changelog() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_licence(project: dict[str, Any]) -> None:
    text = (ROOT / project["license-files"][0]).read_text(encoding="utf-8")
    assert project["license"] == "MIT"
    assert text.startswith("MIT License\n")
    assert "landbalance contributors" in text


@pytest.mark.parametrize("name", ["local", "slurm"])
def test_profiles_are_found_by_their_bare_names(name: str) -> None:
    """Snakemake looks `--profile slurm` up in the working folder: links lead to profiles/."""
    assert Path(os.readlink(ROOT / name)) == Path("profiles", name)
    assert (ROOT / name / "config.yaml").is_file()
    assert (ROOT / name / "cluster.yaml").is_file()


def test_no_stage_imports_another() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_linter_reads_the_contracts() -> None:
    """Every stage stands in the contract that keeps stages apart."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    apart = next(contract for contract in settings["contracts"] if contract["type"] == "independence")
    rules = {path.stem for path in (ROOT / "workflow" / "rules").glob("*.smk")}
    stages = {f"landbalance.{name}" for name in rules - {"common", "paths", "resources", "sites"}}
    assert set(apart["modules"]) == stages


def test_modules_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "src").rglob("*.py")}
    lengths[ROOT / "workflow/rules/common.smk"] = len((ROOT / "workflow/rules/common.smk").read_text().splitlines())
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > 400} == {}


def test_files_beside_the_code_are_packaged() -> None:
    """What a module reads beside itself (templates, styles) is installed with it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    package = ROOT / "src" / "landbalance"
    packaged = {path for pattern in settings["package-data"]["landbalance"] for path in package.glob(pattern)}
    beside = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert beside == packaged


@pytest.mark.parametrize("target", ["demo", "test", "test-slurm", "lint", "clean"])
def test_make_help_names_the_targets(target: str) -> None:
    result = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"^{target} +\S", result.stdout, flags=re.MULTILINE)


def test_ci_runs_the_same_commands() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert lines[-1] == "make test"  # so that pytest's closing line is the last
    assert "make lint" in lines
