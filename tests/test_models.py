from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from landbalance.config import Model
from landbalance.errors import UserError
from landbalance.models import build_model, check_tile_size, load_starting_weights


def unet(**options: dict[str, Any]) -> Any:
    return Model(architecture="unet", **{"width": 16, **options})


@pytest.mark.parametrize(("depth", "norm"), [(3, "batch"), (4, "group"), (5, "batch")])
def test_unet_gives_a_score_per_class_and_pixel(depth: int, norm: str) -> None:
    network = build_model(unet(depth=depth, norm=norm), bands=13, classes=7)
    assert network(torch.zeros(2, 13, 64, 96)).shape == (2, 7, 64, 96)


@pytest.mark.parametrize("bands", [1, 3, 13])
@pytest.mark.parametrize(
    "architecture", ["resnet9", "resnet18", "mobilenet_v3_small", "squeezenet1_1", "convnext_tiny", "googlenet"]
)
def test_classifiers_give_a_score_per_class(architecture: str, bands: int) -> None:
    network = build_model(Model(architecture=architecture), bands, classes=10).eval()
    assert network(torch.zeros(2, bands, 64, 64)).shape == (2, 10)


@pytest.mark.parametrize("encoder", ["resnet18", "efficientnet-b0", "mobilenet_v2", "timm-efficientnet-b0", "mit_b0"])
def test_every_parameter_of_a_shallow_unet_is_trained(encoder: str) -> None:
    """DDP waits for the gradient of every parameter: an unused one would hang a job."""
    network = build_model(unet(encoder=encoder, depth=3), bands=4, classes=3).train()
    network(torch.randn(2, 4, 64, 64)).square().sum().backward()
    assert [name for name, parameter in network.named_parameters() if parameter.grad is None] == []


def test_dropping_unused_stages_changes_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    lean = build_model(unet(encoder="efficientnet-b0", depth=3), bands=4, classes=3).eval()
    monkeypatch.setattr("landbalance.models._drop_unused", lambda *_: None)
    torch.manual_seed(0)
    full = build_model(unet(encoder="efficientnet-b0", depth=3), bands=4, classes=3).eval()
    images = torch.randn(1, 4, 64, 64)
    assert torch.equal(lean(images), full(images))
    assert len(list(lean.parameters())) < len(list(full.parameters()))


@pytest.mark.parametrize("encoder", ["resnet18", "timm-efficientnet-b0"])
def test_group_norm_leaves_no_batch_norm_and_keeps_activations(encoder: str) -> None:
    batch, group = (build_model(unet(encoder=encoder, depth=3, norm=norm), 3, 2) for norm in ("batch", "group"))
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in group.modules())
    kinds = (nn.ReLU, nn.SiLU)
    assert sum(isinstance(m, kinds) for m in group.modules()) == sum(isinstance(m, kinds) for m in batch.modules())
    with torch.no_grad():
        pair = torch.randn(2, 3, 64, 64, dtype=torch.float64)
        assert torch.allclose(group.double()(pair)[:1], group(pair[:1]))  # no statistics across samples


def test_same_seed_same_weights() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(7)
        states.append(build_model(Model(architecture="resnet18"), 13, 5).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_width_of_one() -> None:
    assert build_model(unet(width=1, depth=3), 2, 2)(torch.zeros(2, 2, 64, 64)).shape == (2, 2, 64, 64)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (unet(encoder="resnet"), r"encoder: resnet is no encoder.*allowed: .*resnet18"),
        (unet(encoder="tu-nothing"), r"encoder: tu-nothing is no encoder"),
        (
            Model(architecture="resnet19"),
            r"no torchvision model is called resnet19; allowed: unet, resnet9, .*resnet18",
        ),
    ],
)
def test_unknown_names(model: Model, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_model(model, 3, 2)


@pytest.mark.parametrize(("architecture", "size"), [("vit_b_16", 64), ("inception_v3", 64), ("maxvit_t", 64)])
def test_a_network_that_cannot_take_the_tiles_says_so(architecture: str, size: int) -> None:
    model = Model(architecture=architecture)
    network = build_model(model, bands=3, classes=2)
    with pytest.raises(UserError, match=rf"{architecture} cannot take tiles of {size} × {size} pixels"):
        check_tile_size(network, model, 3, size)


def test_a_network_that_takes_the_tiles_stays_in_training() -> None:
    network = build_model(unet(depth=3), bands=3, classes=2).train()
    check_tile_size(network, unet(depth=3), 3, 32)
    assert network.training


def weights_of(network: nn.Module, path: Path) -> Path:
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, path)
    return path


def resnet(classes: int, bands: int = 3) -> nn.Module:
    return build_model(Model(architecture="resnet9", width=4), bands, classes)


def test_training_starts_from_the_weights_in_a_file(tmp_path: Path) -> None:
    given, network = resnet(5), resnet(5)
    assert load_starting_weights(network, weights_of(given, tmp_path / "w.safetensors"), 5) == []
    assert all(torch.equal(value, given.state_dict()[name]) for name, value in network.state_dict().items())


def test_the_last_layer_of_other_classes_starts_afresh(tmp_path: Path) -> None:
    given, network = resnet(5), resnet(7)
    fresh = network.state_dict()["8.weight"].clone()
    assert load_starting_weights(network, weights_of(given, tmp_path / "w.safetensors"), 7) == ["8.weight", "8.bias"]
    assert torch.equal(network.state_dict()["8.weight"], fresh)
    assert torch.equal(network.state_dict()["0.0.weight"], given.state_dict()["0.0.weight"])


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    path = weights_of(resnet(5, bands=4), tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=r"0\.0\.weight has the shape \(4, 4, 3, 3\), but \(4, 3, 3, 3\) is wanted"):
        load_starting_weights(resnet(5), path, 5)
    with pytest.raises(UserError, match=r"is of another network: .* stands only"):
        load_starting_weights(build_model(Model(architecture="resnet18"), 3, 5), path, 5)
    (tmp_path / "broken").write_bytes(b"no weights")
    with pytest.raises(UserError, match=r"broken cannot be read as safetensors"):
        load_starting_weights(resnet(5), tmp_path / "broken", 5)


def test_resnet9_has_only_gradients_that_repeat_on_a_gpu() -> None:
    """See the list in torch.use_deterministic_algorithms, which stops a training on a GPU at one that does not."""
    waiting, names = [resnet(5).train()(torch.randn(2, 3, 64, 64)).grad_fn], set()
    while waiting:
        if (node := waiting.pop()) is not None:
            names.add(node.name())
            waiting += [before for before, _ in node.next_functions]
    assert {"AmaxBackward0", "MaxPool2DWithIndicesBackward0"} <= names
    assert not {name for name in names if "Adaptive" in name or "Pool3D" in name or "Upsample" in name}


def test_resnet9_refuses_tiles_that_pooling_leaves_nothing_of() -> None:
    model = Model(architecture="resnet9", width=4)
    check_tile_size(build_model(model, 3, 5), model, 3, 16)
    with pytest.raises(UserError, match="resnet9 cannot take tiles of 8 × 8 pixels"):
        check_tile_size(build_model(model, 3, 5), model, 3, 8)
