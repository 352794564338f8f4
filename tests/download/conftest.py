from collections.abc import Callable, Iterator
from typing import Any

import pytest

from download_samples import Server
from landbalance.config import Dataset
from landbalance.download import transfer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once, and no proxy of this machine stands between test and server."""
    monkeypatch.setattr(transfer, "_FIRST_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def dataset() -> Callable[..., Dataset]:
    """Return a dataset with the given sources; the rest of it plays no part in this stage."""

    def build(*sources: dict[str, Any]) -> Dataset:
        return Dataset.model_validate(
            {
                "task": "classification",
                "sources": [{"licence": "CC0"} | source for source in sources],
                "folders": {"path": "data", "bands": ["red"]},
                "classes": [
                    {"name": "Water", "colour": "#0000ff", "values": ["w"]},
                    {"name": "Forest", "colour": "#00ff00", "values": ["f"]},
                ],
                "split": {"by": "sample"},
            }
        )

    return build


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
