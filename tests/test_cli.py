"""The command line: quick help, clean messages, exit statuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from landbalance import __version__, cli

ROOT = Path(__file__).parents[1]
STAGES = ("download", "tile", "profile", "plan", "train", "evaluate", "map", "report")
HEAVY = ("torch", "pandas", "rasterio", "geopandas", "matplotlib", "sklearn", "pyarrow", "snakemake", "scipy")


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "landbalance", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "program",
    [
        "import landbalance",
        "import landbalance.cli",
        "import landbalance.config",
        "import landbalance.cluster",
        "import landbalance.workflow",
        "from landbalance.cli import main; main(['--help'])",
        "from landbalance.cli import main; main(['plan', '--help'])",
        "from landbalance.cli import main; main(['check'])",
    ],
)
def test_nothing_heavy_is_imported(program: str) -> None:
    """Help and checks come at once; a bare login node has no torch to import."""
    report = f"import atexit, sys; atexit.register(lambda: print('loaded', *({HEAVY!r} & sys.modules.keys())))"
    report = report.replace(repr(HEAVY), repr(set(HEAVY)))
    result = subprocess.run(
        [sys.executable, "-c", f"{report}\n{program}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded"


def test_train_needs_no_map_making_packages() -> None:
    """A compute node trains with the core dependencies alone."""
    extra = ("rasterio", "geopandas", "shapely", "snakemake", "matplotlib", "sklearn", "jinja2", "requests")
    blocked = f"import sys; sys.modules.update(dict.fromkeys({extra!r}))"
    program = f"{blocked}; import landbalance.train, landbalance.profile"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_help(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([stage, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: landbalance {stage}" in text
    assert "--config" in text
    assert "--results" in text


def test_help_lists_the_stages_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert " → ".join(STAGES) in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"landbalance {__version__}\n"


def test_unknown_command() -> None:
    result = run("tiles")
    assert result.returncode == 2
    assert "tiles" in result.stderr
    assert "Traceback" not in result.stderr


def test_check() -> None:
    result = run("check", "--cluster", "profiles/demo/cluster.yaml")
    assert result.returncode == 0
    assert result.stdout == ""
    assert "experiments havel, havel-equal" in result.stderr
    assert "emulated 3× slower" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["check", "--config", "gone.yaml"], ["gone.yaml: not found"]),
        (["check", "--cluster", "gone.yaml"], ["gone.yaml: not found"]),
        (["tile", "havle"], ["config.yaml: datasets has no havle", "allowed: havel"]),
        (["train", "havle"], ["config.yaml: experiments has no havle", "allowed: havel, havel-equal"]),
        (["map", "havel", "gone"], ["no scene gone", "allowed: havel-2017-02-16"]),
        (["profile", "havel", "unet", "gpu"], ["no node is called gpu", "allowed: local"]),
        (["profile", "havel", "resnet", "local"], ["models has no resnet", "allowed: unet"]),
        (["report", "havle"], ["experiments has no havle"]),
        (["evaluate", "havel", "--results", "nowhere"], ["nowhere/", "not found"]),
        (["plan", "havel", "--results", "nowhere"], ["nowhere/profile/havel/unet/local.json: not found"]),
    ],
)
def test_mistake_is_one_line(arguments: list[str], parts: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    line = result.stderr.splitlines()[-1]
    assert "error: " in line
    assert [part for part in parts if part not in line] == [], result.stderr
    assert not (ROOT / "nowhere").exists()


def test_names_of_a_closed_pipe(tmp_path: Path) -> None:
    """`landbalance … | head` ends quietly."""
    program = f'"{sys.executable}" -m landbalance --help | head -n 1'
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert "Traceback" not in result.stderr
    assert result.stdout.startswith("usage: landbalance")
