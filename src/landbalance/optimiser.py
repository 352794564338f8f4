"""How weights follow gradients, and how the learning rate moves."""

import math

import torch
from torch import nn

from landbalance.config.learning import Optimiser, Training


def build_optimiser(network: nn.Module, settings: Optimiser) -> torch.optim.Optimizer:
    """Return the optimiser of `network`'s parameters.

    Biases and the parameters of norms are not decayed.
    """
    decayed = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=settings.momentum, foreach=True)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def learning_rate(settings: Training, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of the global step `step`, from 0.

    It rises linearly over the warm-up; then it stays, or falls as half a cosine to 0 at the end
    (Loshchilov and Hutter 2017, eq. 5, without restarts).
    """
    highest = settings.optimiser.learning_rate
    warmup = settings.warmup_epochs * steps_per_epoch
    if step < warmup:
        return highest * (step + 1) / (warmup + 1)
    if settings.schedule == "constant":
        return highest
    whole = settings.epochs * steps_per_epoch
    return highest * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(whole - warmup, 1)))
