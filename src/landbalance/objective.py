"""What training minimises: a loss as a *sum* over labelled elements, beside the weight it is a sum of."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from landbalance.tiles import IGNORED


def summed_loss(logits: Tensor, labels: Tensor, class_weights: Tensor | None, label_smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy summed over labelled elements, each times the weight of its class.

    It is 0, with gradient 0, when no element carries a label. With label smoothing (Szegedy et al. 2016, Rethinking
    the Inception architecture, section 7) the target is spread over the classes; torch weighs each class's part, while
    what a mean is divided by stays the weight of the labels, `summed_weight`. So sums still add up over any split.

    Parameters
    ----------
    logits : Tensor, shape (n, classes, height, width) or (n, classes)
    labels : Tensor of int64, shape (n, height, width) or (n,); 255 is ignored
    class_weights : Tensor, shape (classes,), or None for 1 each
    label_smoothing : float
        The part of each target that is spread evenly over all classes.
    """
    if not labels.numel():
        return logits.sum() * 0.0
    wide = logits if logits.dtype == torch.float64 else logits.float()
    weights = None if class_weights is None else class_weights.to(wide)
    if wide.is_cuda and wide.ndim == 4 and torch.are_deterministic_algorithms_enabled():
        # GPUs have no repeatable kernel for the loss of images, but one for that of rows.
        wide, labels = wide.movedim(1, -1).flatten(0, -2), labels.flatten()
    return cross_entropy(wide, labels, weights, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing)


def summed_weight(labels: Tensor, class_weights: Tensor | None) -> Tensor:
    """Return the sum of the weights of labelled elements: a float64 scalar."""
    if class_weights is None:
        return torch.count_nonzero(labels != IGNORED).double()
    counts = torch.bincount(labels.flatten(), minlength=IGNORED + 1)[: len(class_weights)]
    return counts.double() @ class_weights.double()


def balanced_class_weights(counts: list[int]) -> Tensor:
    """Return weights inverse to class frequency, with mean 1 over the elements; shape (classes,).

    A class without elements gets weight 0. Weights are n / (k · n_c) for n elements in k classes,
    as in King and Zeng (2001).
    """
    frequencies = torch.tensor(counts, dtype=torch.float64)
    present = frequencies > 0
    weights = torch.zeros_like(frequencies)
    weights[present] = frequencies.sum() / (present.sum() * frequencies[present])
    return weights.float()
