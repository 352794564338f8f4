"""Where windows lie: along one axis, so that every pixel is used exactly once."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Span:
    """A window along one axis, in pixels from the raster's edge.

    Parameters
    ----------
    start, size : int
        What is read and predicted; it may reach beyond the raster.
    first, stop : int
        What is used of it: pixels `first` … `stop` - 1 of the raster.
    """

    start: int
    size: int
    first: int
    stop: int


def spans(length: int, window: int, overlap: int, multiple: int) -> list[Span]:
    """Return windows that cover an axis of `length` pixels, in order.

    At least `overlap` pixels at each end of a window are predicted but not used, except at the raster's edges, where
    the window has no neighbour. All windows begin at a multiple of `multiple`, the pixels that the network pools
    into one, so that two windows see a pixel pooled with the same neighbours: no seams. For this the window and its
    margins are rounded up.

    Parameters
    ----------
    window, overlap : int
        ``map.window`` and ``map.overlap``.
    multiple : int
        What sizes and starts of windows are multiples of.
    """
    margin = _rounded_up(overlap, multiple)
    inner = _rounded_up(window - 2 * overlap, multiple)
    size = inner + 2 * margin
    if length <= size:
        return [Span(0, _rounded_up(length, multiple), 0, length)]
    last = _rounded_up(length - size, multiple)
    starts = [*range(0, last, inner), last]
    used = [0, *(start + margin for start in starts[1:]), length]
    return [Span(start, size, first, stop) for start, (first, stop) in zip(starts, pairwise(used), strict=True)]


def tile_starts(length: int, tile: int, stride: int) -> list[int]:
    """Return where tiles begin that cover an axis of `length` pixels; the last one ends with the raster.

    A raster smaller than a tile gets one tile, which reaches beyond it.
    """
    last = max(0, length - tile)
    return [*range(0, last, stride), last]


def _rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
