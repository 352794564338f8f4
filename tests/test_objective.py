import pytest
import torch

from landbalance.objective import balanced_class_weights, summed_loss, summed_weight
from landbalance.tiles import IGNORED


def by_hand(logits, labels, weights):
    total = torch.zeros((), dtype=torch.float64)
    for row, label in zip(logits.double(), labels, strict=True):
        if label != IGNORED:
            weight = 1.0 if weights is None else float(weights[label])
            total += weight * (torch.logsumexp(row, 0) - row[label])
    return total


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 0.0])])
def test_the_loss_is_a_sum_over_labelled_elements(weights):
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, IGNORED] * 5)
    assert float(summed_loss(logits, labels, weights)) == pytest.approx(
        float(by_hand(logits, labels, weights)), rel=1e-5
    )


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 1.0])])
def test_a_smoothed_loss_adds_up_over_any_split_to_that_of_a_mean(weights):
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, IGNORED] * 5)
    parts = [summed_loss(logits[part], labels[part], weights, 0.2) for part in (slice(0, 1), slice(1, 7), slice(7, 20))]
    given = None if weights is None else weights.double()
    mean = torch.nn.CrossEntropyLoss(given, ignore_index=IGNORED, label_smoothing=0.2)(logits, labels)
    assert float(sum(parts) / summed_weight(labels, weights)) == pytest.approx(float(mean), rel=1e-12)
    assert float(sum(parts)) > float(summed_loss(logits, labels, weights)) * 1.01


def test_the_sum_of_weights_leaves_ignored_elements_out():
    labels = torch.tensor([[0, 1, IGNORED], [IGNORED, 2, 2]])
    assert float(summed_weight(labels, None)) == 4
    assert float(summed_weight(labels, torch.tensor([1.0, 10.0, 100.0]))) == 211


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (0, 3, 4, 4)])
def test_without_labelled_elements_loss_and_gradient_are_zero(shape):
    logits = torch.randn(shape, requires_grad=True)
    labels = torch.full((shape[0], *shape[2:]), IGNORED)
    loss = summed_loss(logits, labels, None)
    loss.backward()
    assert float(loss) == 0
    assert torch.equal(logits.grad, torch.zeros(shape))
    assert float(summed_weight(labels, None)) == 0


def test_balanced_weights_give_each_present_class_the_same_say():
    counts = [10, 0, 30]
    weights = balanced_class_weights(counts)
    assert (weights * torch.tensor(counts)).tolist() == pytest.approx([20, 0, 20])
    assert float((weights * torch.tensor(counts)).sum()) == pytest.approx(sum(counts))
