import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbalance.map.windows import Span, spans, tile_starts


@given(
    length=st.integers(1, 3000),
    inner=st.integers(1, 300),
    overlap=st.integers(0, 70),
    multiple=st.sampled_from([1, 8, 32]),
)
def test_every_pixel_is_used_once_and_seen_with_its_margin(
    length: int, inner: int, overlap: int, multiple: int
) -> None:
    found = spans(length, inner + 2 * overlap, overlap, multiple)
    assert np.concatenate([np.arange(span.first, span.stop) for span in found]).tolist() == list(range(length))
    for number, span in enumerate(found):
        assert span.start % multiple == span.size % multiple == 0
        assert span.size == found[0].size
        assert span.start <= span.first < span.stop <= span.start + span.size
        if number:
            assert span.first - span.start >= overlap
        if number < len(found) - 1:
            assert span.start + span.size - span.stop >= overlap
    assert found[0].start == 0
    assert found[-1].start + found[-1].size < length + multiple  # reads at most to the next multiple
    assert all(type(value) is int for span in found for value in vars(span).values())  # C29


def test_600_pixels_and_windows_of_512() -> None:  # C01
    assert spans(600, 512, 128, 8) == [Span(0, 512, 0, 216), Span(88, 512, 216, 600)]


def test_raster_smaller_than_a_window() -> None:  # C02
    assert spans(56, 128, 16, 8) == [Span(0, 56, 0, 56)]
    assert spans(67, 128, 16, 8) == [Span(0, 72, 0, 67)]


@pytest.mark.parametrize("times", [1, 2, 3, 7])
def test_exact_multiples_of_the_window_need_no_more_of_them(times: int) -> None:  # C29
    found = spans(256 * times, 256, 0, 32)
    assert [(span.start, span.size) for span in found] == [(256 * k, 256) for k in range(times)]


def test_window_and_margin_are_rounded_up() -> None:
    assert spans(1000, 100, 10, 32)[0] == Span(0, 96 + 2 * 32, 0, 96 + 32)


@given(length=st.integers(1, 500), tile=st.integers(1, 64), part=st.integers(1, 4))
def test_tiles_cover_the_axis(length: int, tile: int, part: int) -> None:
    starts = tile_starts(length, tile, max(1, tile // part))
    covered = {pixel for start in starts for pixel in range(start, start + tile)}
    assert set(range(length)) <= covered
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert starts[-1] + tile == max(length, tile)
