import os
import re
import sys
from pathlib import Path

import pytest

from download_samples import sha256, zipped
from landbalance.download import package
from landbalance.download.package import fetch_wheel
from landbalance.errors import UserError

NAME = "landbalance_sample-1.0-py3-none-any.whl"
WHEEL = zipped(
    {
        "landbalance_sample/data.bin": b"data",
        "landbalance_sample-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: landbalance-sample\nVersion: 1.0\n"
        b"Requires-Python: <3\nRequires-Dist: landbalance-no-such-dependency\n",
        "landbalance_sample-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "landbalance_sample-1.0.dist-info/RECORD": b"",
    }
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the user's whole package index, by pip's own settings."""
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / NAME).write_bytes(WHEEL)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def test_the_wheel_comes_from_the_users_index_without_its_dependencies(index: Path, place: Path) -> None:
    wheel = fetch_wheel("landbalance-sample==1.0", sha256(WHEEL), place, "key")
    assert wheel == place / NAME
    assert wheel.read_bytes() == WHEEL
    assert [path.name for path in place.glob("*.whl")] == [NAME]


def test_a_wrong_checksum_names_both(index: Path, place: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(UserError, match=rf"^key: package landbalance-sample==1\.0: .*{sha256(WHEEL)}.*wants {wrong}"):
        fetch_wheel("landbalance-sample==1.0", wrong, place, "key")


def test_a_missing_version_is_named(index: Path, place: Path) -> None:
    with pytest.raises(UserError, match=r"key: package landbalance-sample==9\.9: no wheel of it.*pip config list"):
        fetch_wheel("landbalance-sample==9.9", sha256(WHEEL), place, "key")


def test_a_source_distribution_is_never_built(index: Path, place: Path) -> None:
    """Building one would run its code."""
    (index / NAME).unlink()
    (index / "landbalance_sample-1.0.tar.gz").write_bytes(b"whatever")
    with pytest.raises(UserError, match="no wheel of it"):
        fetch_wheel("landbalance-sample==1.0", sha256(b"whatever"), place, "key")


def test_an_environment_without_pip_is_named(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -S -I -m pip "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(package.sys, "executable", str(python))
    with pytest.raises(UserError, match="has no pip"):
        fetch_wheel("landbalance-sample==1.0", sha256(WHEEL), place, "key")


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "disk is full"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken\n"
            "ERROR: No matching distribution found for a==1\n",
            "index cannot be reached",
        ),
        ("ERROR: Something new.\n", r"pip says: Something new\."),
        ("", "pip failed without a word"),
    ],
)
def test_what_pip_says_is_explained(output: str, meaning: str) -> None:
    assert re.search(meaning, package._explained(output, "0" * 64))
