import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from landbalance.bundle import CARD, WEIGHTS, Bundle, load_bundle, read_card, save_bundle
from landbalance.config import ClassInfo, Model
from landbalance.errors import UserError
from landbalance.models import build_model
from landbalance.tiles import Normalisation


def card(**options: dict[str, Any]) -> Any:
    return Bundle(
        **{
            "task": "classification",
            "model": Model(architecture="squeezenet1_1"),
            "bands": ["B02", "B03"],
            "classes": [
                ClassInfo(name="Wald & Wiese", colour="#1b7837", values=["forest", 10]),
                ClassInfo(name="Água", colour="#2166ac", values=[20]),
            ],
            "tile_size": 64,
            "resolution": 10.0,
            "normalisation": Normalisation(mean=[1000.5, 900.0], std=[0.1, 3.0], missing=0.0),
            "provenance": {"experiment": "e", "workers": [{"title": "cpu"}], "seconds": 1.25, "commit": None},
            **options,
        }
    )


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    torch.manual_seed(0)
    network = build_model(card().model, 2, 2).eval()
    save_bundle(tmp_path / "bundle", network, card())
    return tmp_path / "bundle", network


def test_round_trip(saved: Any) -> None:
    folder, network = saved
    loaded, found = load_bundle(folder)
    assert found == card()
    images = torch.randn(3, 2, 64, 64)
    assert not loaded.training
    assert torch.equal(loaded(images), network(images))
    assert sorted(path.name for path in folder.iterdir()) == [CARD, WEIGHTS]


def test_card_is_plain_json_with_original_names_and_values(saved: Any) -> None:  # C07
    raw = json.loads((saved[0] / CARD).read_text(encoding="utf-8"))
    assert raw["classes"][0] == {"name": "Wald & Wiese", "colour": "#1b7837", "values": ["forest", 10]}
    assert read_card(saved[0]) == card()


def test_batch_norm_statistics_are_saved(tmp_path: Path) -> None:
    network = build_model(Model(architecture="resnet18"), 2, 2).train()
    network(torch.randn(4, 2, 64, 64))
    save_bundle(tmp_path, network, card(model=Model(architecture="resnet18")))
    images = torch.randn(2, 2, 64, 64)
    assert torch.equal(load_bundle(tmp_path)[0](images), network.eval()(images))


def test_trained_by_workers_of_any_kind_used_on_one_cpu(tmp_path: Path) -> None:  # C19
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        network = DistributedDataParallel(build_model(card().model, 2, 2))
        save_bundle(tmp_path / "bundle", network, card())
    finally:
        distributed.destroy_process_group()
    with safe_open(tmp_path / "bundle" / WEIGHTS, "pt") as file:
        assert not [key for key in file.keys() if key.startswith("module.")]  # noqa: SIM118
    loaded, _ = load_bundle(tmp_path / "bundle")
    assert {parameter.device.type for parameter in loaded.parameters()} == {"cpu"}


@pytest.mark.gpu
def test_trained_on_a_gpu_used_on_the_cpu(tmp_path: Path) -> None:  # C19
    network = build_model(card().model, 2, 2).eval().cuda()
    save_bundle(tmp_path, network, card())
    images = torch.randn(2, 2, 64, 64)
    found = load_bundle(tmp_path)[0](images)
    assert torch.allclose(found, network(images.cuda()).cpu(), atol=1e-2)


def test_old_bundle_stays_when_saving_fails(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, network = saved
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("pathlib.Path.write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(UserError, match="No space left"):
        save_bundle(folder, network, card())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_missing_bundle(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.json: not found"):
        load_bundle(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_damaged_weights(saved: Any, damage: str) -> None:
    folder, _ = saved
    path = folder / WEIGHTS
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        (folder / CARD).write_text(json.dumps(card(bands=["B02"]).model_dump(mode="json")))
    with pytest.raises(UserError, match=r"model\.safetensors: damaged, missing or of another model"):
        load_bundle(folder)


def test_card_of_a_later_version(saved: Any) -> None:
    raw = {**json.loads((saved[0] / CARD).read_text()), "format": 2}
    (saved[0] / CARD).write_text(json.dumps(raw))
    with pytest.raises(UserError, match="format: found 2"):
        read_card(saved[0])
