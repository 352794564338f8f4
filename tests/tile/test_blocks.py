"""Blocks and tiles cover every pixel, and no tile leaves its block."""

from collections.abc import Callable

import numpy as np
import pytest
from affine import Affine
from rasterio.crs import CRS

from landbalance.config import Dataset
from landbalance.errors import UserError
from landbalance.raster import Grid
from landbalance.tile.blocks import Placement, Window, blocks, frame_place, place_scenes, starts, tile_windows
from landbalance.tile.cut import _pieces

UTM = CRS.from_epsg(32633)


def grid(height: int, width: int, left: float = 500_000, top: float = 5_800_000, size: float = 10) -> Grid:
    return Grid(UTM, Affine(size, 0, left, 0, -size, top), width, height)


@pytest.mark.parametrize(("length", "size", "stride"), [
    (600, 512, 256), (56, 128, 128), (128, 64, 64), (129, 64, 64), (1, 4, 4), (1000, 64, 7), (64, 64, 1),
])  # fmt: skip
def test_starts_cover_every_pixel(length: int, size: int, stride: int) -> None:
    """C01: the last window ends where the raster ends."""
    covered = np.zeros(length, bool)
    for start in starts(length, size, stride):
        assert start >= 0
        assert start + size <= max(length, size)
        covered[start : start + size] = True
    assert covered.all()


@pytest.mark.parametrize(("height", "width", "size", "tile", "stride", "offset"), [
    (600, 600, 512, 512, 256, (0, 0)), (67, 56, 128, 128, 128, (0, 0)), (300, 500, 128, 64, 64, (0, 0)),
    (300, 500, 100, 64, 32, (30, 77)), (90, 90, 64, 16, 16, (-10, -70)),
])  # fmt: skip
def test_tiles_cover_the_scene_and_stay_in_their_block(
    height: int, width: int, size: int, tile: int, stride: int, offset: tuple[int, int]
) -> None:
    owner = np.full((height, width), -1)
    covered = np.zeros((height, width), bool)
    for number, block in enumerate(blocks(grid(height, width), Placement(0, *offset), size)):
        window = block.window
        part = owner[window.row : window.row + window.height, window.col : window.col + window.width]
        assert (part == -1).all()
        part[:] = number
        assert block.row + window.height <= size
        assert block.col + window.width <= size
        assert (window.row + offset[0] - block.row) == block.key[1] * size
        for inner in tile_windows(window, tile, stride):
            inside = owner[inner.row : inner.row + inner.height, inner.col : inner.col + inner.width]
            assert inside.shape == (inner.height, inner.width)
            assert (inside == number).all()
            assert max(inner.height, inner.width) <= tile
            covered[inner.row : inner.row + inner.height, inner.col : inner.col + inner.width] = True
    assert (owner >= 0).all()
    assert covered.all()


@pytest.mark.parametrize("stride", [16, 8, 4])
def test_tiles_cut_at_once_are_no_more_where_they_overlap(dataset: Callable[..., Dataset], stride: int) -> None:
    pixels = 128 * 128
    settings = dataset(tiles={"size": 16, "stride": stride}, split={"by": "block", "size": 256})
    pieces = _pieces(settings, grid(256, 256), Placement(0, 0, 0), pixels)
    assert sum(map(len, pieces)) == (240 // stride + 1) ** 2
    assert max(sum(window.height * window.width for window in piece) for piece in pieces) == pixels


def test_a_raster_smaller_than_a_tile_gives_one_padded_tile() -> None:
    """C02: 56 × 67 pixels, tile 128."""
    (block,) = blocks(grid(67, 56), Placement(0, 0, 0), 128)
    assert tile_windows(block.window, 128, 128) == [Window(0, 0, 67, 56)]


def test_scenes_on_the_same_ground_share_their_blocks() -> None:
    grids = {"a": grid(100, 100), "b": grid(100, 100, left=500_300, top=5_799_500)}
    placements = place_scenes(grids, 0)
    assert placements == {"a": Placement(0, 0, 0), "b": Placement(0, 50, 30)}
    size = 32
    owners = []
    for name, origin in (("a", (0, 0)), ("b", (50, 30))):
        keys = {}
        for block in blocks(grids[name], placements[name], size):
            window = block.window
            inner = Window(window.row + 1, window.col, window.height - 1, window.width)
            place = {"frame": 0, "frame_row": inner.row + origin[0], "frame_col": inner.col + origin[1]}
            assert frame_place(block, inner, size) == place
            for row in range(window.row, window.row + window.height):
                for col in range(window.col, window.col + window.width):
                    keys[row + origin[0], col + origin[1]] = block.key
        owners.append(keys)
    shared = owners[0].keys() & owners[1].keys()
    assert len(shared) == 50 * 70
    assert all(owners[0][pixel] == owners[1][pixel] for pixel in shared)


def test_scenes_that_do_not_line_up_must_lie_apart() -> None:
    apart = {"a": grid(10, 10), "b": grid(10, 10, left=500_205)}
    assert place_scenes(apart, 2)["b"].frame == 1
    for other in (grid(10, 10, left=500_055), grid(10, 10, left=500_105), grid(5, 5, size=20.5)):
        with pytest.raises(UserError, match=r"a .* and b .* share ground"):
            place_scenes({"a": grid(10, 10), "b": other}, 2)
