import errno
import os
import shutil
from collections import namedtuple
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from download_samples import Server
from landbalance.download import transfer
from landbalance.download.transfer import Transfer
from landbalance.errors import UserError

CONTENT = os.urandom(700_000)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses that were asked for; none is made."""
    pauses: list[float] = []
    monkeypatch.setattr(transfer.time, "sleep", pauses.append)
    return pauses


def fetch(url: str, partial: Path) -> float:
    """Fetch `url` and return by how many bytes the progress went on."""
    steps: list[float] = []
    transfer.fetch(Transfer(url, partial, "x", steps.append))
    return sum(steps)


def fetched(server: Server, tmp_path: Path) -> bytes:
    partial = tmp_path / "x.part"
    before = partial.stat().st_size if partial.exists() else 0
    advanced = fetch(server.url("x.zip"), partial)
    assert before + advanced == partial.stat().st_size
    return partial.read_bytes()


def test_the_whole_file_comes(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT
    assert fetched(server, tmp_path) == CONTENT
    assert server.asked == [None]


def test_a_cut_connection_is_resumed_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.content, server.cuts = CONTENT, [300_000, 200_000]
    assert fetched(server, tmp_path) == CONTENT
    assert len(server.asked) == 3
    first, second, third = server.asked
    assert first is None
    assert second is not None and third is not None
    begun = [int(wanted.removeprefix("bytes=").removesuffix("-")) for wanted in (second, third)]
    assert 0 < begun[0] <= 300_000 < begun[1] <= 500_000


def test_a_server_without_ranges_is_asked_from_the_start(server: Server, tmp_path: Path) -> None:
    server.content, server.cuts, server.ranges = CONTENT, [300_000], False
    assert fetched(server, tmp_path) == CONTENT
    assert len(server.asked) == 2


def test_a_transfer_of_a_killed_run_is_resumed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(CONTENT[:1000])
    server.content = CONTENT
    assert fetched(server, tmp_path) == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_transfer_that_was_complete_is_left_as_it_is(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(CONTENT)
    server.content = CONTENT
    assert fetched(server, tmp_path) == CONTENT
    assert server.asked == [f"bytes={len(CONTENT)}-"]


def test_a_transfer_longer_than_the_file_is_begun_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(CONTENT + b"more")
    server.content = CONTENT
    assert fetched(server, tmp_path) == CONTENT


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path, status: int) -> None:
    server.content, server.statuses = CONTENT, [(status, {}), (status, {})]
    assert fetched(server, tmp_path) == CONTENT
    assert len(server.asked) == 3


def test_the_pause_grows_unless_the_server_says_how_long(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr(transfer, "_FIRST_PAUSE", 1.0)
    server.content = CONTENT
    server.statuses = [(503, {}), (503, {}), (503, {}), (429, {"Retry-After": "17"}), (429, {"Retry-After": "86400"})]
    assert fetched(server, tmp_path) == CONTENT
    assert waits == [1, 2, 4, 17, 300]


def test_retry_after_may_be_a_date() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    seconds = transfer._retry_after(format_datetime(later, usegmt=True))
    assert seconds is not None and 3500 < seconds <= 3600
    assert transfer._retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert transfer._retry_after("soon") is None
    assert transfer._retry_after(None) is None


def test_a_server_that_stays_busy_is_given_up_with_its_answer(server: Server, tmp_path: Path) -> None:
    server.statuses = [(503, {})] * 20
    with pytest.raises(UserError, match=r"x: cannot be fetched: the server answered 503 .*tried 6 times"):
        fetched(server, tmp_path)
    assert len(server.asked) == 6


def test_a_server_that_always_breaks_off_and_never_resumes_is_given_up(server: Server, tmp_path: Path) -> None:
    server.content, server.cuts, server.ranges = CONTENT, [300_000] * 20, False
    with pytest.raises(UserError, match=r"x: cannot be fetched: Connection broken[^']*bytes are kept"):
        fetched(server, tmp_path)
    assert len(server.asked) <= 7
    assert 0 < (tmp_path / "x.part").stat().st_size <= 300_000


@pytest.mark.parametrize(("status", "hint"), [(404, "Check the address"), (401, r"~/\.netrc"), (403, r"~/\.netrc")])
def test_a_refusal_is_final(server: Server, tmp_path: Path, status: int, hint: str) -> None:
    server.statuses = [(status, {})]
    with pytest.raises(UserError, match=f"x: the server answered {status} .*{hint}"):
        fetched(server, tmp_path)
    assert len(server.asked) == 1


def test_an_unreachable_server_is_named_with_the_cause(server: Server, tmp_path: Path) -> None:
    url = server.url("x.zip")
    server._http.server_close()  # nobody listens any more
    with pytest.raises(UserError, match=r"x: cannot be fetched: .*[Rr]efused.*tried 6 times.*https_proxy"):
        fetch(url, tmp_path / "x.part")


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://exa mple/x"])
def test_a_malformed_address_is_final(tmp_path: Path, url: str, waits: list[float]) -> None:
    with pytest.raises(UserError, match="Check the address"):
        fetch(url, tmp_path / "x.part")
    assert waits == []


def test_a_server_that_calls_an_archive_encoded_is_not_believed(server: Server, tmp_path: Path) -> None:
    """Some servers send .tar.gz files with Content-Encoding: gzip; the file is what counts, not its content."""
    server.content, server.headers = CONTENT, {"Content-Encoding": "gzip"}
    assert fetched(server, tmp_path) == CONTENT


def test_a_file_that_does_not_fit_is_refused_before_it_is_fetched(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 1000))
    server.content = CONTENT
    with pytest.raises(UserError, match=r"x: 1 MiB are to be fetched, but only 0 MiB are free in"):
        fetched(server, tmp_path)
    assert not (tmp_path / "x.part").exists()


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(response: requests.Response) -> Iterator[Any]:
        yield response.raw.read(1000)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "_blocks", full)
    server.content = CONTENT
    with pytest.raises(UserError, match=r"x\.part: cannot be written: No space left on device"):
        fetched(server, tmp_path)
    assert not (tmp_path / "x.part").exists()
    assert len(server.asked) == 1
