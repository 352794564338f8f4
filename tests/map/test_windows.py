import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landbalance.map.windows import spans, tile_starts


@settings(deadline=None)
@given(
    length=st.integers(1, 3000),
    inner=st.integers(1, 300),
    overlap=st.integers(0, 70),
    multiple=st.sampled_from([1, 8, 32]),
    blend=st.booleans(),
)
def test_weights_of_every_pixel_sum_to_one_within_the_margin(
    length: int, inner: int, overlap: int, multiple: int, blend: bool
) -> None:
    found = spans(length, inner + 2 * overlap, overlap, multiple, blend)
    total = np.zeros(length)
    for number, span in enumerate(found):
        total[span.first : span.stop] += span.weights
        assert span.weights.min() > 0
        assert span.start % multiple == span.size % multiple == 0
        assert span.size == found[0].size
        assert span.start <= span.first < span.stop <= span.start + span.size
        unseen = overlap // 2 if blend else overlap
        if number:
            assert span.first - span.start >= unseen
        if number < len(found) - 1:
            assert span.start + span.size - span.stop >= unseen
    assert np.allclose(total, 1, atol=1e-6)
    assert blend or all((span.weights == 1).all() for span in found)
    assert found[0].start == found[0].first == 0
    assert found[-1].stop == length
    assert [span.first for span in found] == sorted(span.first for span in found)
    assert found[-1].start + found[-1].size < length + multiple  # reads at most to the next multiple
    assert all(type(value) is int for span in found for value in (span.start, span.size, span.first))  # C29


def places(length: int, window: int, overlap: int, multiple: int) -> list[tuple[int, int, int, int]]:
    found = spans(length, window, overlap, multiple, blend=False)
    return [(span.start, span.size, span.first, span.stop) for span in found]


def test_600_pixels_and_windows_of_512() -> None:  # C01
    assert places(600, 512, 128, 8) == [(0, 512, 0, 216), (88, 512, 216, 600)]


def test_raster_smaller_than_a_window() -> None:  # C02
    assert places(56, 128, 16, 8) == [(0, 56, 0, 56)]
    assert places(67, 128, 16, 8) == [(0, 72, 0, 67)]


@pytest.mark.parametrize("times", [1, 2, 3, 7])
@pytest.mark.parametrize("blend", [True, False])
def test_exact_multiples_of_the_window_need_no_more_of_them(times: int, blend: bool) -> None:  # C29
    found = spans(256 * times, 256, 0, 32, blend)
    assert [(span.start, span.size) for span in found] == [(256 * k, 256) for k in range(times)]


def test_window_and_margin_are_rounded_up() -> None:
    assert places(1000, 100, 10, 32)[0] == (0, 96 + 2 * 32, 0, 96 + 32)


def test_weight_grows_linearly_towards_the_centre() -> None:
    first, second, *_ = spans(200, 32, 8, 4, blend=True)
    # Windows 0 … 31 and 16 … 47: the middle is 24, the ramp 8 pixels long.
    assert (second.first, first.stop) == (20, 28)
    assert first.weights[:20].tolist() == [1] * 20
    assert first.weights[20:].tolist() == [(27.5 - pixel) / 8 for pixel in range(20, 28)]
    assert second.weights[:8].tolist() == first.weights[20:].tolist()[::-1]


@settings(deadline=None)
@given(length=st.integers(1, 500), tile=st.integers(1, 64), part=st.integers(1, 4))
def test_tiles_cover_the_axis(length: int, tile: int, part: int) -> None:
    starts = tile_starts(length, tile, max(1, tile // part))
    covered = {pixel for start in starts for pixel in range(start, start + tile)}
    assert set(range(length)) <= covered
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert starts[-1] + tile == max(length, tile)
