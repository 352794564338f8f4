"""A network at work: batches, precision, devices."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from landbalance.bundle import Bundle, save_bundle
from landbalance.config import ClassInfo, Model
from landbalance.cores import cores
from landbalance.errors import UserError
from landbalance.models import build_model
from landbalance.prediction import Predictor, in_order, model_input, open_predictor, open_predictors
from landbalance.tiles import Normalisation, normalised


def card(**options: Any) -> Bundle:
    return Bundle(
        **{
            "task": "segmentation",
            "model": Model(architecture="unet", depth=3, width=8),
            "bands": ["a", "b"],
            "classes": [ClassInfo(name=name, colour=f"#00000{name}", values=[name]) for name in "012"],
            "tile_size": 32,
            "resolution": None,
            "normalisation": Normalisation(mean=[10.0, 20.0], std=[2.0, 4.0], missing=0.0),
            "provenance": {},
            **options,
        }
    )


class Called(nn.Module):
    """Remembers its input and answers with what a function makes of it."""

    def __init__(self, answer: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.answer, self.inputs = answer, []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.inputs.append(images)
        return self.answer(images)


def three_bands(images: torch.Tensor) -> torch.Tensor:
    return torch.cat([images, images.sum(1, keepdim=True)], dim=1)


def predictor(network: nn.Module, pixels_per_batch: int = 2**16, **options: Any) -> Predictor:
    return Predictor(network.eval(), card(**options), torch.device("cpu"), pixels_per_batch)


def test_input_is_normalised_and_missing_pixels_are_the_mean() -> None:
    network = Called(three_bands)
    images = np.array([[[[14, 0, 0]], [[16, 0, 8]]]], np.uint16)
    found = predictor(network).classes(images)
    assert network.inputs[0].tolist() == [[[[2.0, 0.0, -5.0]], [[-1.0, 0.0, -3.0]]]]
    assert found.tolist() == [[[0, 0, 1]]]
    assert found.dtype == np.uint8


def test_batches_are_no_larger_than_allowed_and_change_nothing() -> None:
    images = np.random.default_rng(0).integers(1, 40, (7, 2, 8, 8)).astype(np.int16)
    whole, parts = Called(three_bands), Called(three_bands)
    assert (predictor(whole).classes(images) == predictor(parts, 130).classes(images)).all()
    assert [len(batch) for batch in whole.inputs] == [7]
    assert [len(batch) for batch in parts.inputs] == [2, 2, 2, 1]
    assert predictor(parts, 1).batch_size(8, 8) == 1


def test_probabilities_sum_to_one_per_class_axis() -> None:
    found = predictor(Called(three_bands)).probabilities(np.full((3, 2, 4, 4), 13, np.float32))
    assert (found.shape, found.dtype) == ((3, 3, 4, 4), np.float32)
    assert np.allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize(("precision", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_precision_is_the_cards(precision: str, expected: torch.dtype) -> None:
    network = nn.Conv2d(2, 3, 1)
    seen = []
    network.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    options = {"model": Model(architecture="unet", precision=precision)}
    found = predictor(network, **options).probabilities(np.ones((1, 2, 4, 4), np.float32))
    assert seen == [expected]
    assert found.dtype == np.float32


def test_no_gradients_are_kept() -> None:
    network = nn.Conv2d(2, 3, 1)
    kept = []
    network.register_forward_hook(lambda module, inputs, output: kept.append(output.requires_grad))
    predictor(network).classes(np.ones((1, 2, 4, 4), np.float32))
    assert kept == [False]


def test_memory_that_runs_out() -> None:
    def full(_: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(UserError, match=r"no memory left for 1 images of 4 × 4 pixels.*lower map\.window"):
        predictor(Called(full)).classes(np.ones((1, 2, 4, 4), np.float32))


def test_opened_bundle_predicts_as_the_saved_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = build_model(card().model, 2, 3).eval()
    save_bundle(tmp_path, network, card())
    images = np.random.default_rng(0).integers(1, 40, (2, 2, 32, 32)).astype(np.float32)
    with torch.inference_mode():
        logits = network(
            (torch.from_numpy(images) - torch.tensor([10.0, 20]).view(2, 1, 1)) / torch.tensor([2.0, 4]).view(2, 1, 1)
        )
    found = open_predictor(tmp_path)
    assert np.allclose(found.probabilities(images), logits.softmax(1).numpy(), atol=1e-3)


def test_eight_orientations_are_averaged_and_turned_back(tmp_path: Path) -> None:
    """A turned image then has the turned map, and the probabilities are the mean of those of single predictions."""
    torch.manual_seed(0)
    save_bundle(tmp_path, build_model(card().model, 2, 3).eval(), card())
    image = np.random.default_rng(0).integers(1, 40, (2, 32, 48)).astype(np.float32)
    one, eight = open_predictor(tmp_path), open_predictor(tmp_path, orientations=8)
    parts = []
    for mirrored in (False, True):
        for turns in range(4):
            turned = np.rot90(image[..., ::-1] if mirrored else image, turns, (-2, -1))
            found = np.rot90(one.probabilities(turned[None].copy())[0], -turns, (-2, -1))
            parts.append(found[..., ::-1] if mirrored else found)
    mean = eight.probabilities(image[None])[0]
    assert np.allclose(mean, np.mean(parts, axis=0), atol=1e-5)
    assert np.abs(parts[0] - mean).max() > 1e-3
    assert (eight.classes(image[None])[0] == mean.argmax(0)).all()
    turned = eight.probabilities(np.rot90(image, 1, (-2, -1))[None].copy())[0]
    assert np.allclose(turned, np.rot90(mean, 1, (-2, -1)), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("missing", [0.0, None])
def test_model_input_is_what_training_saw(dtype: Any, missing: float | None) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 3, (2, 3, 9, 7)).astype(dtype)
    normalisation = Normalisation(mean=[1.1, 0.3, 7.0], std=[0.3, 1.7, 2.9], missing=missing)
    found = model_input(images, normalisation, torch.device("cpu"))
    assert (images == 0).all(axis=1).any()
    assert (found.numpy() == normalised(images, normalisation)).all()
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_results_come_in_the_order_of_the_tasks_from_as_many_threads_as_predictors() -> None:
    one = predictor(Called(three_bands))
    gate = threading.Barrier(3, timeout=20)  # passes only when three work at once
    threads = []

    def work(_: Predictor, task: int) -> int:
        threads.append(torch.get_num_threads())
        if task < 3:
            gate.wait()
        time.sleep(0.01 * (task % 3 == 0))
        return task * 10

    assert list(in_order([one] * 3, range(9), work)) == [(task, task * 10) for task in range(9)]
    assert set(threads) == {max(1, cores() // 3)}


def test_few_tasks_are_taken_ahead() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for task in range(100):
            taken.append(task)
            yield task

    results = in_order([predictor(Called(three_bands))] * 2, tasks(), lambda _, task: task)
    assert next(results) == (0, 0)
    assert len(taken) <= 6
    results.close()


def test_one_predictor_for_each_core_shares_the_weights(tmp_path: Path) -> None:
    save_bundle(tmp_path, build_model(card().model, 2, 3), card())
    found = open_predictors(tmp_path)
    assert len(found) == (cores() if not torch.cuda.is_available() else 2 * torch.cuda.device_count())
    assert len(open_predictors(tmp_path, 3)) == 3
    if not torch.cuda.is_available():
        assert len({id(item.network) for item in found}) == 1
