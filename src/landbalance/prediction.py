"""A trained network at work: images in, classes or probabilities out, on whatever device there is."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from landbalance.bundle import Bundle, load_bundle
from landbalance.errors import UserError
from landbalance.tiles import normalised

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
        return self._computed(images, lambda logits: logits.argmax(1).to(torch.uint8)).astype(np.uint8)

    def classes_and_confidence(self, images: NDArray[np.generic]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Return what `classes` does, and the softmax probability of that class, of the same shape."""

        def both(logits: torch.Tensor) -> torch.Tensor:
            chosen = logits.argmax(1, keepdim=True)
            return torch.cat([chosen.float(), logits.float().softmax(1).gather(1, chosen)], dim=1)

        found = self._computed(images, both)
        return found[:, 0].astype(np.uint8), found[:, 1].astype(np.float32)

    def probabilities(self, images: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the softmax over classes; shape (n, classes, …), see `classes`."""
        return self._computed(images, lambda logits: logits.float().softmax(1)).astype(np.float32)

    def batch_size(self, height: int, width: int) -> int:
        """Return how many images of this size are computed at once."""
        return max(1, self.pixels_per_batch // (height * width))

    def _computed(
        self, images: NDArray[np.generic], result: Callable[[torch.Tensor], torch.Tensor]
    ) -> NDArray[np.generic]:
        size = self.batch_size(*images.shape[-2:])
        parts = [self._batch(images[first : first + size], result) for first in range(0, len(images), size)]
        return np.concatenate(parts)

    def _batch(
        self, images: NDArray[np.generic], result: Callable[[torch.Tensor], torch.Tensor]
    ) -> NDArray[np.generic]:
        inputs = torch.from_numpy(normalised(images, self.card.normalisation))
        inputs = inputs.to(self.device, memory_format=torch.channels_last)
        half = self.card.model.precision == "bfloat16"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            try:
                array: NDArray[np.generic] = result(self.network(inputs)).cpu().numpy()
            except torch.OutOfMemoryError as error:
                raise UserError(
                    f"{self.device}: no memory left for {len(images)} images of {images.shape[-1]} × "
                    f"{images.shape[-2]} pixels. Hide the device (CUDA_VISIBLE_DEVICES='') or lower map.window."
                ) from error
        return array


def open_predictor(folder: Path) -> Predictor:
    """Return the model bundle in `folder`, ready to predict on a GPU if there is one, else on all cores.

    Raises
    ------
    UserError
        When the bundle is missing or damaged.
    """
    network, card = load_bundle(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(cores())
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {cores()} threads"
    _log.info(
        "%s: %s for %d bands, %s, on %s", folder, card.model.architecture, len(card.bands), card.model.precision, where
    )
    network = network.eval().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Predictor(network, card, device, _PIXELS_PER_BATCH[device.type])


def cores() -> int:
    """Return how many CPU cores this process may use (a scheduler may grant fewer than there are)."""
    available = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    return min(available, len(affinity(0))) if affinity else available
