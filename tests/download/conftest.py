from collections.abc import Callable, Iterator
from typing import Any

import pytest

from download_samples import Server
from landbalance.config import Source
from landbalance.download import transfer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once; no proxy and no cache of this machine stands between test and server."""
    monkeypatch.setattr(transfer, "_FIRST_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("LANDBALANCE_CACHE", raising=False)
    monkeypatch.delenv("LANDBALANCE_OFFLINE", raising=False)


@pytest.fixture
def sources() -> Callable[..., list[Source]]:
    """Return what makes typed sources of plain values."""

    def build(*values: dict[str, Any]) -> list[Source]:
        return [Source.model_validate({"licence": "CC0"} | value) for value in values]

    return build


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
