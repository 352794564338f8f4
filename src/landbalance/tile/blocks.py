"""Where blocks and tiles lie: whole numbers of pixels, and no tile outside its block."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from landbalance.config import BlockSplit, Dataset
from landbalance.errors import UserError
from landbalance.raster import Grid, moved_bounds, overlap, shown

BlockKey = tuple[int, int, int]
"""A block on the ground: the frame it is counted in, its row and its column there."""

_ALIGNED = 1e-3
"""How far, in pixels, the grids of two scenes may be apart and still be one."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a scene, in pixels."""

    row: int
    col: int
    height: int
    width: int


@dataclass(frozen=True)
class Placement:
    """Where a scene's first pixel lies in a frame: a grid that scenes on the same ground share."""

    frame: int
    row: int
    col: int


@dataclass(frozen=True)
class Block:
    """A square of ground that is in one split, as far as it lies inside a scene."""

    key: BlockKey
    window: Window
    row: int
    """First row of `window` counted from the block's own upper edge; above 0 where the scene begins inside it."""
    col: int


def place_scenes(grids: Mapping[str, Grid], margin: int) -> dict[str, Placement]:
    """Return where each scene lies, so that scenes on the same ground have the same blocks.

    Parameters
    ----------
    margin : int
        Pixels by which two scenes must be apart to count as different ground.

    Raises
    ------
    UserError
        When two scenes share ground but their pixels do not line up: blocks could not keep them apart.
    """
    frames: list[tuple[str, Grid]] = []
    placements: dict[str, Placement] = {}
    for name, grid in grids.items():
        for number, (_, first) in enumerate(frames):
            offset = _offset(first, grid)
            if offset is not None:
                placements[name] = Placement(number, *offset)
                break
        else:
            placements[name] = Placement(len(frames), 0, 0)
            frames.append((name, grid))
    _refuse_shared_ground(grids, placements, margin)
    return placements


def _offset(first: Grid, grid: Grid) -> tuple[int, int] | None:
    """Return row and column of `grid`'s first pixel in `first`, or None where their pixels do not line up."""
    if first.crs != grid.crs:
        return None
    ours, theirs = first.transform, grid.transform
    across = max(grid.width, grid.height) / grid.resolution
    if any(abs(getattr(ours, part) - getattr(theirs, part)) * across > _ALIGNED for part in "abde"):
        return None
    col, row = ~ours @ (theirs.c, theirs.f)
    if max(abs(col - round(col)), abs(row - round(row))) > _ALIGNED:
        return None
    return round(row), round(col)


def _refuse_shared_ground(grids: Mapping[str, Grid], placements: Mapping[str, Placement], margin: int) -> None:
    names = list(grids)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            if placements[one].frame == placements[other].frame:
                continue
            grid, room = grids[one], margin * grids[one].resolution
            bounds = moved_bounds(grids[other].bounds, grids[other].crs, grid.crs, f"scene {other}")
            left, bottom, right, top = grid.bounds
            if overlap((left - room, bottom - room, right + room, top + room), bounds):
                raise UserError(
                    f"scenes: {one} ({shown(grid.bounds)}) and {other} ({shown(bounds)}, in the same CRS) share "
                    f"ground, but their pixels do not line up, so the same place could be in two splits. "
                    f"Bring them to one CRS and grid, or put them into separate datasets."
                )


def blocks(grid: Grid, placement: Placement, size: int) -> Iterator[Block]:
    """Yield the blocks of `size` pixels that cover a scene, row by row; those at its edges may be smaller."""
    columns = list(_spans(grid.width, placement.col, size))
    for row_number, top, bottom in _spans(grid.height, placement.row, size):
        for col_number, left, right in columns:
            yield Block(
                (placement.frame, row_number, col_number),
                Window(top, left, bottom - top, right - left),
                top + placement.row - row_number * size,
                left + placement.col - col_number * size,
            )


def frame_place(block: Block, window: Window, size: int) -> dict[str, int]:
    """Return where a window of a block lies in its frame: columns of the index, by which distances are measured."""
    frame, row, col = block.key
    return {
        "frame": frame,
        "frame_row": row * size + block.row + window.row - block.window.row,
        "frame_col": col * size + block.col + window.col - block.window.col,
    }


def _spans(length: int, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and stop of the blocks along one axis of a scene that begins at `offset` of its frame."""
    for number in range(offset // size, (offset + length - 1) // size + 1):
        yield number, max(number * size - offset, 0), min((number + 1) * size - offset, length)


def tile_windows(block: Window, size: int, stride: int) -> list[Window]:
    """Return the windows of the tiles that cover `block` and stay inside it.

    The last tile of a row or column ends where the block ends. A block smaller than a tile gets
    one window as small as the block: the rest of the tile is padding.
    """
    return [
        Window(block.row + row, block.col + col, min(size, block.height), min(size, block.width))
        for row in starts(block.height, size, stride)
        for col in starts(block.width, size, stride)
    ]


def cell_size(dataset: Dataset) -> int:
    """Return the width of the squares of ground that no tile leaves: blocks of the split, or 16 tiles."""
    return dataset.split.size if isinstance(dataset.split, BlockSplit) else 16 * dataset.tiles.size


def starts(length: int, size: int, stride: int) -> Sequence[int]:
    """Return where windows of `size` begin so that they cover `length` pixels.

    >>> starts(600, 512, 256), starts(56, 128, 128), starts(128, 64, 64)
    ([0, 88], [0], [0, 64])
    """
    return [0] if length <= size else [*range(0, length - size, stride), length - size]
