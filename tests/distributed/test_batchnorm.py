"""Global batch norm in one process; over several workers see test_batchnorm_workers.py."""

import pytest
import torch
from torch import nn

from landbalance.distributed.batchnorm import GlobalBatchNorm2d, with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator
from landbalance.errors import UserError

ALONE = Communicator(Clock(torch.device("cpu")))


def pair(channels=5, dtype=torch.float64):
    torch.manual_seed(0)
    ours, theirs = nn.BatchNorm2d(channels).to(dtype), nn.BatchNorm2d(channels).to(dtype)
    for layer in (ours, theirs):
        nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
    return with_global_batch_norm(ours, ALONE), theirs


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_forward_backward_and_running_statistics_are_those_of_torch(offset, memory):
    ours, theirs = pair()
    images = (torch.randn(4, 5, 6, 7, dtype=torch.float64) + offset).contiguous(memory_format=memory)
    down = torch.randn_like(images)
    results = []
    for layer in (ours, theirs):
        inputs = images.clone().requires_grad_()
        output = layer(inputs)
        output.backward(down)
        results.append((output.detach(), inputs.grad, layer.weight.grad, layer.bias.grad, *layer.buffers()))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_the_gradient_is_that_of_finite_differences():
    ours, _ = pair(channels=2)
    inputs = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ours(x), (inputs,))


def test_in_autocast_statistics_keep_their_precision():
    ours, theirs = pair(dtype=torch.float32)
    images = (torch.randn(8, 5, 16, 16) * 3 + 20).bfloat16()
    inputs = images.clone().requires_grad_()
    output = ours(inputs)
    output.backward(torch.ones_like(output))
    theirs(images.float())
    assert output.dtype == inputs.grad.dtype == torch.bfloat16
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-4, atol=1e-4)


def test_names_of_parameters_stay_and_evaluation_is_ordinary():
    ours, theirs = pair()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    images = torch.randn(2, 5, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))
    assert isinstance(ours, GlobalBatchNorm2d)


def test_one_pixel_in_the_whole_batch_is_an_error():
    ours, _ = pair()
    with pytest.raises(UserError, match=r"single sample.*batch_size"):
        ours(torch.randn(1, 5, 1, 1, dtype=torch.float64))


def test_a_layer_with_statistics_of_its_own_kind_is_refused():
    class Fancy(nn.BatchNorm2d):
        pass

    with pytest.raises(UserError, match=r"layer 0 is a Fancy.*norm: group"):
        with_global_batch_norm(nn.Sequential(Fancy(3)), ALONE)
