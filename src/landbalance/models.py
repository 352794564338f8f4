"""Networks by name, for any number of bands and classes."""

from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.nn.functional import avg_pool2d

from landbalance.config.learning import Model
from landbalance.errors import UserError

_GROUPS = 8
_AROUND = 7


def build_model(model: Model, bands: int, classes: int) -> nn.Module:
    """Return the network that `model` describes, with fresh weights from torch's random generator.

    It maps float32 images of shape (n, bands, height, width) to logits of shape
    (n, classes, height, width) for segmentation, (n, classes) for classification.

    Raises
    ------
    UserError
        When there is no such architecture or encoder.
    """
    own = {"unet": _unet, "resnet9": _resnet9}
    network = own.get(model.architecture, _torchvision)(model, bands, classes)
    if model.norm == "group":
        network = _with_group_norm(network)
    return network.to(memory_format=torch.channels_last)


@torch.no_grad()
def check_tile_size(network: nn.Module, model: Model, bands: int, size: int) -> None:
    """Raise a `UserError` when `network`, built from `model`, cannot take tiles of `size` × `size` pixels."""
    parameter = next(network.parameters())
    training = network.training
    try:
        network.eval()(torch.zeros(1, bands, size, size, device=parameter.device, dtype=parameter.dtype))
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:
        raise UserError(
            f"models.….architecture: {model.architecture} cannot take tiles of {size} × {size} pixels "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}). Change tiles.size (or the "
            "images' size), or choose another architecture."
        ) from error
    network.train(training)


def _unet(model: Model, bands: int, classes: int) -> nn.Module:
    import segmentation_models_pytorch as smp

    widths = [model.width * 2**level for level in range(model.depth - 2, -1, -1)] + [max(1, model.width // 2)]
    try:
        network: nn.Module = smp.Unet(
            model.encoder,
            encoder_weights=None,
            encoder_depth=model.depth,
            decoder_channels=widths,
            in_channels=bands,
            classes=classes,
        )
    except (KeyError, RuntimeError, ValueError) as error:
        raise UserError(
            f"models.….encoder: {model.encoder} is no encoder for {bands} bands and depth {model.depth} "
            f"({str(error.args[0]).splitlines()[0] if error.args else error}); allowed: "
            f"{', '.join(sorted(smp.encoders.encoders))}."
        ) from error
    # An encoder of less than full depth keeps its unused stages; DDP would wait for their gradients.
    used = _parameters_in_use(network, torch.zeros(1, bands, 64, 64))
    _drop_unused(network, used)
    return _WithSpectralBranch(network, bands, model.spectral, classes) if model.spectral else network


class _WithSpectralBranch(nn.Module):
    """Adds the logits of a network that sees a pixel and the mean around it to those of one that sees shapes.

    An encoder halves the resolution at once; what the many bands of a single pixel tell gets lost in it.
    """

    def __init__(self, spatial: nn.Module, bands: int, channels: int, classes: int) -> None:
        super().__init__()
        self.spatial = spatial
        layers: list[nn.Module] = []
        for inputs in (2 * bands, channels):
            layers += [nn.Conv2d(inputs, channels, 1), _PixelNorm(channels), nn.ReLU(inplace=True)]
        self.spectral = nn.Sequential(*layers, nn.Conv2d(channels, classes, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (n, classes, height, width)."""
        around = avg_pool2d(images, _AROUND, 1, _AROUND // 2, count_include_pad=False)
        logits: torch.Tensor = self.spatial(images) + self.spectral(torch.cat([images, around], 1))
        return logits


class _PixelNorm(nn.LayerNorm):
    """Layer norm over the channels of each pixel: unlike group norm it keeps what a whole tile has in common."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return `images` (n, channels, height, width), normalised."""
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _parameters_in_use(network: nn.Module, images: torch.Tensor) -> set[int]:
    network.eval()
    network(images).sum().backward()
    used = {id(parameter) for parameter in network.parameters() if parameter.grad is not None}
    network.zero_grad(set_to_none=True)
    network.train()
    return used


class _Unused(nn.Identity):
    """Stands where a module was that adds nothing to the output; some encoders call it all the same."""

    def forward(self, images: torch.Tensor, *_: object) -> torch.Tensor:
        return images


def _drop_unused(network: nn.Module, used: set[int]) -> None:
    for name, child in network.named_children():
        parameters = list(child.parameters())
        if parameters and not any(id(parameter) in used for parameter in parameters):
            setattr(network, name, _Unused())
        else:
            _drop_unused(child, used)


def _resnet9(model: Model, bands: int, classes: int) -> nn.Module:
    """Return a ResNet-9 after Page (2018), How to train your ResNet, for tiles of 64 pixels instead of 32.

    The first convolution halves the resolution, and each of the three stages after it does so again: all five costly
    convolutions take the same number of operations. Pooling comes before the norm, which then has a quarter to do.
    """
    width = model.width
    return nn.Sequential(
        _convolution(bands, width, stride=2),
        _convolution(width, 2 * width, pool=True),
        _Residual(2 * width),
        _convolution(2 * width, 4 * width, pool=True),
        _convolution(4 * width, 8 * width, pool=True),
        _Residual(8 * width),
        _Maximum(),
        nn.Flatten(),
        nn.Linear(8 * width, classes),
    )


def _convolution(inputs: int, outputs: int, stride: int = 1, pool: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)]
    layers += [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class _Maximum(nn.Module):
    """Takes the maximum over the pixels; the gradient of `AdaptiveMaxPool2d` does not repeat to the bit on a GPU."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the maxima of `images`, as images of one pixel."""
        return images.amax((-2, -1), keepdim=True)


class _Residual(nn.Module):
    """Adds two convolutions to what comes in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_convolution(channels, channels), _convolution(channels, channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return features of the shape of `images`."""
        features: torch.Tensor = images + self.layers(images)
        return features


def load_starting_weights(network: nn.Module, path: Path, classes: int) -> list[str]:
    """Load the weights in a safetensors file into `network`; return the names of tensors that start afresh.

    Names and shapes must be those of the network. Only a tensor with a row for each class (the first dimension is
    `classes`, and differs in the file while all else agrees) keeps its fresh weights: that of the last layer.

    Raises
    ------
    UserError
        When the file is missing, damaged, or of another network.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"models.….weights: {path} cannot be read as safetensors ({str(error).splitlines()[0]}). Name another file."
        ) from error
    wanted = network.state_dict()
    if unlike := sorted(wanted.keys() ^ found.keys()):
        raise UserError(
            f"models.….weights: {path} is of another network: {unlike[0]} stands only "
            f"{'there' if unlike[0] in found else 'in this one'} ({len(unlike)} such tensors). Take the architecture, "
            "norm and other settings of the model that the file is of."
        )
    fresh = []
    for name, tensor in wanted.items():
        here, there = tuple(tensor.shape), tuple(found[name].shape)
        if here == there:
            continue
        if not (here and here[0] == classes and there[1:] == here[1:]):
            raise UserError(
                f"models.….weights: {path}: {name} has the shape {there}, but {here} is wanted. Only the number of "
                "classes may differ; take the bands, width and other settings of the model that the file is of."
            )
        fresh.append(name)
    network.load_state_dict({**wanted, **{name: found[name] for name in wanted if name not in fresh}})
    return fresh


def _torchvision(model: Model, bands: int, classes: int) -> nn.Module:
    from torchvision import models as torchvision_models
    from torchvision.models import get_model, list_models

    names = list_models(module=torchvision_models)
    if model.architecture not in names:
        raise UserError(
            f"models.….architecture: no torchvision model is called {model.architecture}; allowed: unet, "
            f"resnet9, {', '.join(names)}."
        )
    options = {"aux_logits": False} if model.architecture in ("googlenet", "inception_v3") else {}
    if options:
        options["init_weights"] = True
    network = get_model(model.architecture, weights=None, num_classes=classes, **options)
    return network if bands == 3 else _with_bands(network, bands)


def _with_bands(network: nn.Module, bands: int) -> nn.Module:
    """Return `network` with its first convolution, made for 3 bands, replaced by one for `bands`."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d) and module.in_channels == 3:
            fresh = nn.Conv2d(
                bands,
                module.out_channels,
                cast(tuple[int, int], module.kernel_size),
                cast(tuple[int, int], module.stride),
                cast(tuple[int, int], module.padding),
                bias=module.bias is not None,
            )
            nn.init.kaiming_normal_(fresh.weight, mode="fan_out", nonlinearity="relu")
            network.set_submodule(name, fresh)
            return network
    raise AssertionError("every torchvision classification model begins with a convolution of 3 bands")


def _with_group_norm(network: nn.Module) -> nn.Module:
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            channels = module.num_features
            groups = next(count for count in range(min(_GROUPS, channels), 0, -1) if channels % count == 0)
            group_norm = nn.GroupNorm(groups, channels, eps=module.eps)
            # timm's batch norm holds the dropout and the activation that follow it.
            following = [child for key, child in module.named_children() if key in ("drop", "act")]
            network.set_submodule(name, nn.Sequential(group_norm, *following) if following else group_norm)
    return network
