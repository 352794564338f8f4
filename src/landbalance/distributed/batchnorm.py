"""Batch norm over the global batch, whatever the split and the backend.

`torch.nn.SyncBatchNorm` refuses CPU tensors; this one needs nothing but a gather of each worker's
mean, variance and count forward, and a sum of two vectors backward. Workers may hold different
numbers of samples, or none.

Every pixel of every sample counts, labelled or not: which pixels carry labels says nothing about
what the network sees.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from landbalance.distributed.group import Communicator
from landbalance.errors import UserError


class SinglePixelError(UserError):
    """Batch statistics of a single pixel were asked for."""


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose statistics are those of all workers' samples together.

    In evaluation mode it is an ordinary `torch.nn.BatchNorm2d`, and so are its parameters' names.
    """

    communicator: Communicator

    def forward(self, images: Tensor) -> Tensor:
        """Return `images` (n, channels, height, width), normalised; n may be 0 on some workers."""
        if not self.training:
            return super().forward(images)
        mean, variance, count = global_statistics(images, self.communicator)
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return cast(
            Tensor,
            _Normalise.apply(images, self.weight, self.bias, mean, variance, count, self.eps, self.communicator),
        )


def with_global_batch_norm(network: nn.Module, communicator: Communicator) -> nn.Module:
    """Return `network` with every `torch.nn.BatchNorm2d` made global over `communicator`'s workers.

    Raises
    ------
    UserError
        When a layer has batch statistics of its own kind, which would stay local.
    """
    for name, module in network.named_modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = GlobalBatchNorm2d
        if isinstance(module, GlobalBatchNorm2d):
            module.communicator = communicator
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"models: layer {name} is a {type(module).__name__}, whose statistics cannot be global. "
                "Choose another architecture or encoder (those of torchvision and the ResNets work), or norm: group."
            )
    return network


def global_statistics(images: Tensor, communicator: Communicator) -> tuple[Tensor, Tensor, float]:
    """Return mean and variance per channel, and the number of pixels, over all workers.

    Means and squared deviations are merged as Chan, Golub and LeVeque (1979, eq. 2.1) do, which
    keeps precision where a sum of squares would lose it.

    Parameters
    ----------
    images : Tensor, shape (n, channels, height, width)

    Returns
    -------
    mean, variance : Tensor, shape (channels,), float32 (float64 for float64 images)
    count : float
        Pixels per channel.

    Raises
    ------
    SinglePixelError
        When all workers together have one pixel: then there is no variance.
    """
    channels = images.shape[1]
    wide = torch.float64 if images.dtype == torch.float64 else torch.float32
    local = torch.zeros(2 * channels + 1, dtype=wide, device=images.device)
    local[-1] = images.numel() // channels
    if images.numel():
        # Running statistics in the wide type make the kernel accumulate and answer in it.
        scratch = torch.zeros(channels, dtype=wide, device=images.device)
        mean, variance = torch.batch_norm_update_stats(images.detach(), scratch, scratch.clone(), 0.0)
        local[:channels], local[channels:-1] = mean, variance
    parts = communicator.gather(local)
    counts = parts[:, -1:]
    total = counts.sum()
    count = float(total)
    if count <= 1:
        raise SinglePixelError(
            "models: batch norm has nothing to compare: the global batch is a single sample (the last one of an epoch "
            "may be), and a layer leaves a single pixel of it. Change training.….batch_size so that no single sample "
            "is left over, take larger tiles, or norm: group."
        )
    means, variances = parts[:, :channels], parts[:, channels:-1]
    mean = (means * counts).sum(0) / total
    variance = ((variances + (means - mean).square()) * counts).sum(0) / total
    return mean, variance, count


class _Normalise(torch.autograd.Function):
    """Normalises with given statistics; its backward pass knows that they came from all samples."""

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: float,
        eps: float,
        communicator: Communicator,
    ) -> Tensor:
        ctx.save_for_backward(images, weight, mean, variance)
        ctx.count, ctx.eps, ctx.communicator = count, eps, communicator
        if not images.numel():
            return torch.empty_like(images)
        return batch_norm(images, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients by eq. in Ioffe and Szegedy (2015, section 3), with sums over all workers.

        With x̂ = (x - mean)·r and r = 1/√(variance + eps), the gradient of x is
        γ·r·(dy - Σdy/N - x̂·Σ(dy·x̂)/N), where sums and N run over the global batch. The gradients of
        γ and β stay local: the gradient reduction sums them.
        """
        (gradient,) = gradients
        images, weight, mean, variance = ctx.saved_tensors
        channels = images.shape[1]
        scale = torch.rsqrt(variance + ctx.eps)
        sums = torch.zeros(2 * channels, dtype=mean.dtype, device=images.device)
        if images.numel():
            _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
                gradient, images, weight, mean, variance, mean, scale, False, ctx.eps, [False, True, True]
            )
            sums[:channels], sums[channels:] = of_bias, of_weight
        of_bias, of_weight = sums[:channels].clone(), sums[channels:].clone()
        total_bias, total_weight = (ctx.communicator.sum(sums) / ctx.count).split(channels)
        if not images.numel():
            return torch.zeros_like(images), of_weight, of_bias, None, None, None, None, None
        factor = weight * scale
        slope = -factor * scale * total_weight
        shift = -factor * total_bias - slope * mean
        per_channel = (1, -1, 1, 1)
        result = torch.addcmul(shift.view(per_channel), images, slope.view(per_channel))
        result = result.addcmul_(gradient, factor.view(per_channel)).to(images.dtype)
        return result, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None, None, None, None


def collectives_per_step(network: nn.Module) -> int:
    """Return how many small collectives the batch norms of `network` need in a training step."""
    return 2 * sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())
