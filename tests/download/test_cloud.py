"""Object stores, spoken to as they are: by HTTP requests to a server on this machine; and file addresses."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from download_samples import Server, sha256, tree
from landbalance.config import Source
from landbalance.download import cloud, run
from landbalance.errors import UserError

Build = Callable[..., list[Source]]

CONTENT = os.urandom(500_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "download" / "d"


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server that the library for object stores takes for S3."""
    pytest.importorskip("obstore")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT": server.root, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cloud, "_BLOCK", 200_000)
    # An object store states these.
    server.headers = {"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", "ETag": '"1"'}
    server.content = CONTENT
    return server


def test_an_object_comes_by_ranges(bucket: Server, sources: Build, folder: Path) -> None:
    run("d", sources({"url": "s3://bucket/scenes/x y.tif", "sha256": sha256(CONTENT)}), folder)
    assert (folder / "x y.tif").read_bytes() == CONTENT
    assert set(bucket.paths) == {"/bucket/scenes/x%20y.tif"}
    assert bucket.asked == ["bytes=0-199999", "bytes=200000-399999", "bytes=400000-499999"]


def test_a_broken_transfer_goes_on_where_it_broke(bucket: Server, sources: Build, folder: Path) -> None:
    partial = folder.parent / ".partial" / f"d-{sha256(CONTENT)[:16]}.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:350_000])
    run("d", sources({"url": "s3://bucket/x.tif", "sha256": sha256(CONTENT)}), folder)
    assert bucket.asked == ["bytes=350000-499999"]
    assert (folder / "x.tif").read_bytes() == CONTENT


def test_a_busy_store_is_asked_again(bucket: Server, sources: Build, folder: Path) -> None:
    bucket.statuses = [(503, {})] * 3  # more than the library itself puts up with
    run("d", sources({"url": "s3://bucket/x.tif", "sha256": sha256(CONTENT)}), folder)
    assert (folder / "x.tif").read_bytes() == CONTENT


def test_a_wrong_object_is_refused(bucket: Server, sources: Build, folder: Path) -> None:
    with pytest.raises(UserError, match=rf"s3://bucket/x\.tif: fetched twice, and its sha256 is {sha256(CONTENT)}"):
        run("d", sources({"url": "s3://bucket/x.tif", "sha256": "0" * 64}), folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "there is no such file"), (403, "access refused.*AWS_ACCESS_KEY_ID"), (401, "access refused")],
)
def test_a_refusal_says_what_to_do(bucket: Server, sources: Build, folder: Path, status: int, said: str) -> None:
    bucket.statuses = [(status, {})] * 2
    with pytest.raises(UserError, match=rf"s3://bucket/x\.tif: {said}"):
        run("d", sources({"url": "s3://bucket/x.tif", "sha256": sha256(CONTENT)}), folder)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_without_the_library_its_extra_is_named(
    sources: Build, folder: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UserError, match=rf"{scheme}:// needs a package .*pip install 'landbalance\[cloud\]'"):
        run("d", sources({"url": f"{scheme}://bucket/x.tif", "sha256": sha256(CONTENT)}), folder)


def test_a_file_address_is_copied_and_checked(sources: Build, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "my scene.tif").write_bytes(CONTENT)
    url = (tmp_path / "my scene.tif").as_uri()
    run("d", sources({"url": url, "sha256": sha256(CONTENT)}), folder)
    assert tree(folder) == ["manifest.json", "my scene.tif"]
    assert not (folder / "my scene.tif").is_symlink()
    assert (folder / "my scene.tif").read_bytes() == CONTENT


@pytest.mark.parametrize(("name", "said"), [("gone", "there is no such file"), ("", "Is a directory")])
def test_a_file_address_that_leads_to_no_file(
    sources: Build, folder: Path, tmp_path: Path, name: str, said: str
) -> None:
    url = (tmp_path / name).as_uri()
    with pytest.raises(UserError, match=said):
        run("d", sources({"url": url, "sha256": sha256(CONTENT)}), folder)
