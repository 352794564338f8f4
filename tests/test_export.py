"""A bundle as ONNX: the same answers as torch on real tiles, and what surrounds the network inside the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from landbalance import export
from landbalance.bundle import CARD, Bundle, save_bundle
from landbalance.cli import main
from landbalance.config import Model
from landbalance.errors import UserError
from landbalance.models import build_model
from landbalance.prediction import Predictor
from landbalance.tiles import open_tiles
from stores import write_store

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a bundle, a store of tiles that it fits, and the ONNX file that the command made."""
    folder = tmp_path_factory.mktemp("export")
    info = open_tiles(write_store(folder / "tiles")).info
    card = Bundle(
        format=1, task=info.task, model=Model(architecture="unet", depth=3, width=8), bands=info.bands,
        classes=info.classes, tile_size=info.tile_size, resolution=None, normalisation=info.normalisation,
        provenance={},
    )  # fmt: skip
    torch.manual_seed(0)
    network = build_model(card.model, len(card.bands), len(card.classes))
    save_bundle(folder / "bundle", network, card)
    assert main(["export", str(folder / "bundle"), "--tiles", str(folder / "tiles")]) == 0
    return folder, card, network.eval()


def test_answers_are_those_of_torch_for_other_numbers_and_sizes(made: Any) -> None:
    folder, card, network = made
    session = onnxruntime.InferenceSession(folder / "bundle" / "model.onnx")
    images, _ = open_tiles(folder / "tiles").read(np.arange(3))
    wide = np.concatenate([images, images[..., ::-1]], axis=3).astype(np.float32)
    wide[:, :, :2] = card.normalisation.missing or 0
    for batch in (wide, wide[:1, :, :16]):
        wanted = Predictor(network, card, torch.device("cpu"), 1 << 18).probabilities(batch)
        (found,) = session.run(["probabilities"], {"images": batch})
        assert np.abs(found - wanted).max() < 1e-4
    assert len(np.unique(wanted.argmax(1))) > 1


def test_card_is_inside(made: Any) -> None:
    folder, _, _ = made
    session = onnxruntime.InferenceSession(folder / "bundle" / "model.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["landbalance"]) == json.loads((folder / "bundle" / CARD).read_text())
    assert metadata["multiple"] == "8"


def test_a_model_that_differs_is_not_written(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, card, _ = made
    monkeypatch.setattr(export, "_write", lambda *parts: parts[-1].write_bytes(b"onnx"))
    monkeypatch.setattr(export, "_answers", lambda path, images: np.zeros((len(images), len(card.classes), 32, 32)))
    with pytest.raises(UserError, match=r"differ by up to .* so it was not written"):
        export.export_onnx(folder / "bundle", tmp_path / "model.onnx", None)
    assert list(tmp_path.iterdir()) == []
