"""Files appear whole or not at all."""

import errno
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from landbalance import files
from landbalance.errors import UserError


def test_placed_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "a.txt"
    with files.placed(target) as temporary:
        assert temporary.parent == target.parent
        temporary.write_text("whole", encoding="utf-8")
        assert not target.exists()
    assert target.read_text(encoding="utf-8") == "whole"
    assert list(target.parent.iterdir()) == [target]


def test_placed_folder_replaces_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "store"
    target.mkdir()
    (target / "old").touch()
    with files.placed(target) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt(), UserError("a mistake")])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_half_written(tmp_path: Path, error: BaseException, kind: str) -> None:
    """After an error the older result is untouched, and nothing lies beside it."""
    target = tmp_path / "a"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(type(error)), files.placed(target) as temporary:
        if kind == "file":
            temporary.write_text("half", encoding="utf-8")
        else:
            temporary.mkdir()
            (temporary / "half").touch()
        raise error
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_full_disk(tmp_path: Path) -> None:
    """The message names the file, the reason, the room that is left and the way out."""
    with pytest.raises(UserError) as caught, files.placed(tmp_path / "map.tif") as temporary:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(temporary))
    message = str(caught.value)
    assert "map.tif" in message
    assert "No space left on device" in message
    assert "MiB free in" in message
    assert "Make room" in message
    assert list(tmp_path.iterdir()) == []


def test_a_forbidden_folder_is_not_a_full_disk(tmp_path: Path) -> None:
    message = r"Permission denied .*Allow writing there or choose another folder"
    with pytest.raises(UserError, match=message), files.placed(tmp_path / "map.tif") as temporary:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(temporary))


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(UserError, match="cannot be written"):
        files.write_text(tmp_path / "results" / "a.txt", "text")


@pytest.mark.parametrize("value", [{"ä": [1, None, 0.1]}, [], "text", {"a": {"b": [True]}}])
def test_json_round_trip(tmp_path: Path, value: Any) -> None:
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json") == value
    assert (tmp_path / "a.json").read_text(encoding="utf-8").endswith("\n")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_refuses_what_is_no_number(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"kappa": value})
    assert list(tmp_path.iterdir()) == []


def test_json_missing_or_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(UserError, match=r"plan\.json: not found\. Run the stage that writes it first"):
        files.read_json(path)
    path.write_text(json.dumps({"a": 1})[:-1], encoding="utf-8")
    with pytest.raises(UserError, match=r"plan\.json: not valid JSON .*Delete it and run its stage again"):
        files.read_json(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not valid JSON"):
        files.read_json(path)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, (1 << 20) + 7])
@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_digest(tmp_path: Path, size: int, algorithm: str) -> None:
    content = bytes(index % 251 for index in range(size))
    (tmp_path / "a").write_bytes(content)
    assert files.digest(tmp_path / "a", algorithm) == hashlib.new(algorithm, content).hexdigest()


def test_remove(tmp_path: Path) -> None:
    """A link to a folder is removed, not what it leads to."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    files.remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "kept").exists()
    files.remove(tmp_path / "folder")
    files.remove(tmp_path / "never there")
    assert list(tmp_path.iterdir()) == []
