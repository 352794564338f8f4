"""Which device a worker gets, and that it is the one that was measured."""

from types import SimpleNamespace

import pytest
import torch

from landbalance.distributed.device import check_measured, cuda_device, device_name
from landbalance.errors import UserError


@pytest.fixture
def gpus(monkeypatch):
    """Let torch find two unlike GPUs."""
    names = ["Tesla A100", "Tesla V100"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(name=names[device.index], total_memory=80 * 2**30),
    )


def test_a_gpu_is_the_measured_one_when_name_and_memory_are(gpus):
    first, second = cuda_device(0, "big"), cuda_device(1, "big")
    assert device_name(second) == "Tesla V100, 80 GiB"
    check_measured(first, "Tesla A100, 80 GiB", "big")
    check_measured(second, "Tesla V100, 80 GiB", "big")
    check_measured(second, None, "big")
    with pytest.raises(
        UserError, match=r"is Tesla V100, 80 GiB, but node big .* measured on Tesla A100, 80.*forcerun profile"
    ):
        check_measured(second, "Tesla A100, 80 GiB", "big")


def test_any_processor_will_do():
    check_measured(torch.device("cpu"), "another", "big")


def test_a_gpu_that_is_not_there(gpus):
    with pytest.raises(UserError, match=r"GPU number 3, but torch finds 2 GPUs"):
        cuda_device(2, "big")
