"""Batch norm as one of several workers computes it, for comparison with one process on the whole batch."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from landbalance.distributed.batchnorm import with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator

CHANNELS = 5


@dataclass(frozen=True)
class Layer:
    """What forward and backward through a layer give.

    Attributes
    ----------
    output, of_images : Tensor, shape (n, channels, height, width)
        The output, and the gradient of the input.
    of_parameters : list of Tensor
        Gradients of the parameters; those of workers are to be summed.
    statistics : list of Tensor
        Running mean and variance, and the number of batches.
    """

    output: Tensor
    of_images: Tensor
    of_parameters: list[Tensor]
    statistics: list[Tensor]


def batch_norm(dtype: torch.dtype) -> nn.Module:
    """Return the same batch norm wherever it is called."""
    norm = nn.BatchNorm2d(CHANNELS)
    generator = torch.Generator().manual_seed(1)
    for parameter in norm.parameters():
        nn.init.normal_(parameter, 1, 0.3, generator=generator)
    return norm.to(dtype)


def convolutions() -> nn.Module:
    """Return the same small network with a batch norm wherever it is called."""
    torch.manual_seed(3)
    first, last = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False), nn.Conv2d(CHANNELS, 3, 1)
    return nn.Sequential(first, batch_norm(torch.float32), nn.ReLU(), last)


def through(network: nn.Module, images: Tensor, downstream: Tensor, autocast: bool) -> Layer:
    """Return what `network` gives for `images`, and for the gradient `downstream` of its output."""
    inputs = images.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = network(inputs)
    output.backward(downstream.to(output.dtype))
    assert inputs.grad is not None
    of_parameters = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return Layer(output.detach(), inputs.grad, of_parameters, [buffer.clone() for buffer in network.buffers()])


def on_this_worker(
    images: Tensor, downstream: Tensor, counts: list[int], dtype: torch.dtype | None, autocast: bool
) -> Layer:
    """Return what this worker's part of the batch gives: a batch norm of `dtype`, or `convolutions` if it is None."""
    group = dist.group.WORLD
    assert isinstance(group, dist.ProcessGroup)
    network = convolutions() if dtype is None else batch_norm(dtype)
    network = with_global_batch_norm(network, Communicator(Clock(torch.device("cpu")), group))
    rank = dist.get_rank()
    return through(network, images.split(counts)[rank], downstream.split(counts)[rank], autocast)
