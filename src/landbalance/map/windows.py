"""Where windows lie along one axis, and how much each of them counts for a pixel."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Span:
    """A window along one axis, in pixels from the raster's edge.

    Parameters
    ----------
    start, size : int
        What is read and predicted; it may reach beyond the raster.
    first : int
        First pixel of the raster that the window counts for.
    weights : ndarray of float32
        How much it counts for the pixels from `first` on; over all windows a pixel's weights sum to 1.
    """

    start: int
    size: int
    first: int
    weights: NDArray[np.float32] = field(repr=False)

    @property
    def stop(self) -> int:
        """Return the pixel after the last one that the window counts for."""
        return self.first + len(self.weights)

    @property
    def used(self) -> slice:
        """Return which of the window's own pixels count."""
        return slice(self.first - self.start, self.stop - self.start)


def spans(length: int, window: int, overlap: int, multiple: int, blend: bool) -> list[Span]:
    """Return windows that cover an axis of `length` pixels, in order.

    Each end of a window lies at least `overlap` pixels beyond the middle between it and its neighbour, except at the
    raster's edges, where the window has none. All windows begin at a multiple of `multiple`, the pixels that the
    network pools into one, so that two windows see a pixel pooled with the same neighbours: no seams. For this the
    window and the overlap are rounded up.

    A pixel's weights are 1 for one window when `blend` is False. Otherwise a window's weight grows linearly over
    `overlap` pixels, from half of `overlap` within its edge on; what lies farther out counts nothing, since the edge
    itself is seen there.

    Parameters
    ----------
    window, overlap : int
        ``map.window`` and ``map.overlap``.
    multiple : int
        What sizes and starts of windows are multiples of.
    blend : bool
        Whether ``map.join`` is ``blend``.
    """
    margin = _rounded_up(overlap, multiple)
    inner = _rounded_up(window - 2 * overlap, multiple)
    size = inner + 2 * margin
    if length <= size:
        return [Span(0, _rounded_up(length, multiple), 0, np.ones(length, np.float32))]
    last = _rounded_up(length - size, multiple)
    starts = [*range(0, last, inner), last]
    if blend and margin:
        return _blended(starts, size, margin, length)
    used = [0, *(start + margin for start in starts[1:]), length]
    return [
        Span(start, size, first, np.ones(stop - first, np.float32))
        for start, (first, stop) in zip(starts, pairwise(used), strict=True)
    ]


def _blended(starts: Sequence[int], size: int, margin: int, length: int) -> list[Span]:
    total = np.zeros(length)
    ramps = []
    for start in starts:
        stop = min(start + size, length)
        centres = np.arange(stop - start) + 0.5
        before = centres if start > starts[0] else np.inf
        after = size - centres if start < starts[-1] else np.inf
        ramp = np.clip((np.minimum(before, after) - margin / 2) / margin, 0, 1) + np.zeros(stop - start)
        total[start:stop] += ramp
        ramps.append(ramp)
    result = []
    for start, ramp in zip(starts, ramps, strict=True):
        low, high = int(np.flatnonzero(ramp)[0]), int(np.flatnonzero(ramp)[-1]) + 1
        weights = ramp[low:high] / total[start + low : start + high]
        result.append(Span(start, size, start + low, weights.astype(np.float32)))
    return result


def tile_starts(length: int, tile: int, stride: int) -> list[int]:
    """Return where tiles begin that cover an axis of `length` pixels; the last one ends with the raster.

    A raster smaller than a tile gets one tile, which reaches beyond it.
    """
    last = max(0, length - tile)
    return [*range(0, last, stride), last]


def _rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
