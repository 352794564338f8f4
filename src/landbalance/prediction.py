"""A trained network at work: images in, classes or probabilities out, on whatever device there is."""

import copy
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from landbalance.allocator import keep_freed_memory
from landbalance.bundle import Bundle, load_bundle
from landbalance.config.learning import Orientations
from landbalance.cores import cores
from landbalance.errors import UserError
from landbalance.tiles import Normalisation

Task = TypeVar("Task")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)

# Measured on two CPU cores: a U-Net is fastest with activations that stay in the cache (one window of 256 × 256).
_PIXELS_PER_BATCH = {"cpu": 2**16, "cuda": 2**20}


@dataclass(frozen=True)
class Predictor:
    """A network in evaluation mode on its device, with the card that says how to feed it.

    Parameters
    ----------
    network : torch.nn.Module
        Maps normalised float32 images (n, bands, height, width) to logits.
    card : Bundle
        Its bands, classes, normalisation and precision.
    device : torch.device
        Where it computes.
    pixels_per_batch : int
        Pixels that are computed at once, at most; results do not depend on it.
    """

    network: nn.Module
    card: Bundle
    device: torch.device
    pixels_per_batch: int

    def classes(self, images: NDArray[np.generic]) -> NDArray[np.uint8]:
        """Return the most likely class of each pixel (segmentation) or image (classification).

        Parameters
        ----------
        images : ndarray, shape (n, bands, height, width)
            Raw values; pixels that are missing in all bands are fed as the band means.

        Returns
        -------
        ndarray of uint8, shape (n, height, width) or (n,)
            Where two classes are equally likely, the first one.
        """
        return self._computed(images, lambda logits: logits.argmax(1).to(torch.uint8)).astype(np.uint8, copy=False)

    def probabilities(self, images: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the softmax over classes; shape (n, classes, …), see `classes`."""
        return self._computed(images, lambda logits: logits.float().softmax(1)).astype(np.float32, copy=False)

    def batch_size(self, height: int, width: int) -> int:
        """Return how many images of this size are computed at once."""
        return max(1, self.pixels_per_batch // (height * width))

    def _computed(
        self, images: NDArray[np.generic], result: Callable[[torch.Tensor], torch.Tensor]
    ) -> NDArray[np.generic]:
        size = self.batch_size(*images.shape[-2:])
        parts = [self._batch(images[first : first + size], result) for first in range(0, len(images), size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _batch(
        self, images: NDArray[np.generic], result: Callable[[torch.Tensor], torch.Tensor]
    ) -> NDArray[np.generic]:
        half = self.card.model.precision == "bfloat16"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            try:
                inputs = model_input(images, self.card.normalisation, self.device)
                array: NDArray[np.generic] = result(self.network(inputs)).cpu().numpy()
            except torch.OutOfMemoryError as error:
                raise UserError(
                    f"{self.device}: no memory left for {len(images)} images of {images.shape[-1]} × "
                    f"{images.shape[-2]} pixels. Hide the device (CUDA_VISIBLE_DEVICES='') or lower map.window."
                ) from error
        return array


class _Oriented(nn.Module):
    """Predicts each image in all eight orientations; its "logits" are logarithms of the mean probabilities."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return values whose softmax is the mean of the eight predictions, turned back; shapes as the network's."""
        predictions: list[torch.Tensor] = []
        for mirrored in (False, True):
            for turns in range(4):
                turned = images.flip(-1) if mirrored else images
                logits = self.network(turned.rot90(turns, (-2, -1)).contiguous(memory_format=torch.channels_last))
                if logits.ndim == 4:
                    logits = logits.rot90(-turns, (-2, -1))
                    logits = logits.flip(-1) if mirrored else logits
                predictions.append(logits.float().softmax(1))
        return torch.stack(predictions).mean(0).log()


def model_input(images: NDArray[np.generic], normalisation: Normalisation, device: torch.device) -> torch.Tensor:
    """Return what `tiles.normalised` does, bit for bit, computed on `device` and laid out as networks like it.

    Parameters
    ----------
    images : ndarray, shape (n, bands, height, width)

    Returns
    -------
    torch.Tensor
        float32, channels last.
    """
    if images.dtype.byteorder == ">" or images.dtype == np.float64:
        images = images.astype(np.float32)
    shape = (1, -1, 1, 1)
    mean = torch.tensor(normalisation.mean, dtype=torch.float32, device=device).reshape(shape)
    scale = (1 / torch.tensor(normalisation.std, dtype=torch.float64)).float().to(device).reshape(shape)
    # torch has few operations for unsigned integers; int32 and float32 hold what a scene's uint16 does.
    inputs = torch.from_numpy(np.ascontiguousarray(images)).to(device)
    inputs = inputs.to(torch.float32, memory_format=torch.channels_last)
    gone = None
    missing = normalisation.missing
    # The first band alone tells of most images that nothing is missing.
    if missing is not None and bool((inputs[:, :1] == missing).any()):
        gone = (inputs == missing).all(dim=1, keepdim=True)
    inputs.sub_(mean).mul_(scale)
    return inputs if gone is None else inputs.masked_fill_(gone, 0)


def open_predictor(folder: Path, orientations: Orientations = 1) -> Predictor:
    """Return the model bundle in `folder`, ready to predict on a GPU if there is one, else on all cores.

    Parameters
    ----------
    orientations : int
        8 to take the mean over all orientations of an image that right angles and mirrors give, 1 for the image alone.

    Raises
    ------
    UserError
        When the bundle is missing or damaged.
    """
    network, card = _loaded(folder, orientations)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(cores())
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {cores()} threads"
    _say(folder, card, where)
    return _on(device, network, card)


def open_predictors(folder: Path, workers: int | None = None, orientations: Orientations = 1) -> list[Predictor]:
    """Return the model bundle in `folder` once for each thread that shall predict with it, see `in_order`.

    That is two for each GPU, so that one copies while the other computes; without a GPU one for each core, since a
    network on one core each gets more done than one at a time on all cores.

    Parameters
    ----------
    workers : int or None
        How many threads there shall be instead; GPUs are given out in turn.
    orientations : int
        As for `open_predictor`.

    Raises
    ------
    UserError
        When the bundle is missing or damaged.
    """
    network, card = _loaded(folder, orientations)
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if not gpus:
        count = workers or cores()
        _say(folder, card, f"CPU, {count} threads")
        return [_on(torch.device("cpu"), network, card)] * count
    count = workers or 2 * len(gpus)
    names = ", ".join(torch.cuda.get_device_name(device) for device in gpus[:count])
    _say(folder, card, names)
    networks = [_on(device, copy.deepcopy(network), card) for device in gpus[:count]]
    return [networks[number % len(networks)] for number in range(count)]


def _loaded(folder: Path, orientations: Orientations) -> tuple[nn.Module, Bundle]:
    keep_freed_memory()
    network, card = load_bundle(folder)
    return _Oriented(network) if orientations == 8 else network, card


def _on(device: torch.device, network: nn.Module, card: Bundle) -> Predictor:
    network = network.eval().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Predictor(network, card, device, _PIXELS_PER_BATCH[device.type])


def _say(folder: Path, card: Bundle, where: str) -> None:
    _log.info(
        "%s: %s for %d bands, %s, on %s", folder, card.model.architecture, len(card.bands), card.model.precision, where
    )


def in_order(
    predictors: Sequence[Predictor], tasks: Iterable[Task], work: Callable[[Predictor, Task], Result]
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result, in the order of the tasks, while each predictor works in a thread of its own.

    Tasks are taken when there is room for them, two for each predictor ahead of the result that is yielded.
    """
    idle: SimpleQueue[Predictor] = SimpleQueue()
    for predictor in predictors:
        idle.put(predictor)

    def run(task: Task) -> Result:
        predictor = idle.get()
        try:
            return work(predictor, task)
        finally:
            idle.put(predictor)

    # Threads that share the cores would only wait for each other inside an operation.
    threads = max(1, cores() // len(predictors))
    with ThreadPoolExecutor(len(predictors), "predict", torch.set_num_threads, (threads,)) as pool:
        pending: deque[tuple[Task, Future[Result]]] = deque()
        try:
            for task in tasks:
                pending.append((task, pool.submit(run, task)))
                if len(pending) > 2 * len(predictors):
                    done, future = pending.popleft()
                    yield done, future.result()
            while pending:
                done, future = pending.popleft()
                yield done, future.result()
        finally:
            pool.shutdown(cancel_futures=True)
