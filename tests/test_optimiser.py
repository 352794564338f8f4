import pytest
from torch import nn

from landbalance.config.learning import Optimiser, Training
from landbalance.optimiser import build_optimiser, learning_rate


def training(**settings):
    return Training(epochs=10, batch_size=8, optimiser=Optimiser(learning_rate=1.0), **settings)


def test_the_cosine_rises_over_the_warm_up_and_falls_to_zero():
    settings = training(warmup_epochs=1.0)
    rates = [learning_rate(settings, step, steps_per_epoch=10) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.5)
    assert rates[-1] < 1e-3


def test_a_constant_rate_stays():
    assert {learning_rate(training(schedule="constant"), step, 10) for step in range(100)} == {1.0}


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_norms_and_biases_are_not_decayed(name):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    optimiser = build_optimiser(network, Optimiser(name=name, weight_decay=0.1))
    decay = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    assert decay[id(network[0].weight)] == 0.1
    assert [decay[id(p)] for p in (network[0].bias, network[1].weight, network[1].bias)] == [0, 0, 0]
