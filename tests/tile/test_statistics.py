"""Statistics of tiles, merged, equal those of the whole."""

import numpy as np
import pytest

from landbalance.tile.statistics import PERCENTILES, merged, moments, percentiles


def of_parts(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of parts, each (bands, n), as if each were a tile of one row."""
    counts = np.array([part.shape[1] for part in parts])
    return merged(counts, np.stack([moments(part[:, None], np.ones((1, part.shape[1]), bool)) for part in parts]))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float32", "int32"])
def test_parts_give_what_the_whole_gives(dtype: str) -> None:
    rng = np.random.default_rng(0)
    whole = (rng.normal(20, 9, (3, 10_000)) + np.array([[0], [30], [60]])).clip(0, 120).astype(dtype)
    if np.dtype(dtype).kind == "i":
        whole = (whole - 40).astype(dtype)
    mean, std = of_parts(np.array_split(whole, [1, 1, 50, 4000, 4001], axis=1))
    np.testing.assert_allclose(mean, whole.mean(axis=1, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(std, whole.std(axis=1, dtype=np.float64), rtol=1e-12)


def test_a_large_mean_does_not_swallow_the_deviation() -> None:
    values = 1e9 + np.arange(1000.0).reshape(1, -1)
    _, std = of_parts(np.array_split(values, 17, axis=1))
    np.testing.assert_allclose(std, values.std(), rtol=1e-12)


def test_only_valid_pixels_count() -> None:
    image = np.random.default_rng(0).integers(1, 60_000, (2, 9, 9)).astype(np.uint16)
    valid = np.random.default_rng(1).random((9, 9)) < 0.5
    mean, squares = moments(np.where(valid, image, 0), valid)
    np.testing.assert_allclose(mean, image[:, valid].mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(squares, image[:, valid].var(axis=1) * valid.sum(), rtol=1e-12)
    assert not moments(image, np.zeros((9, 9), bool)).any()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
@pytest.mark.parametrize("missing", [None, 0.0])
def test_percentiles_are_those_of_all_valid_pixels(dtype: str, missing: float | None) -> None:
    images = np.random.default_rng(0).integers(0, 120, (9, 2, 8, 8)).astype(dtype)
    images[3, :, :4] = 0
    found = percentiles(np.arange(1, 9), lambda ids: images[ids], missing)
    valid = images[1:].any(axis=1) if missing is not None else np.ones((8, 8, 8), bool)
    for band in range(2):
        wanted = np.percentile(images[1:, band][valid].astype(float), PERCENTILES)
        np.testing.assert_allclose([found[str(q)][band] for q in PERCENTILES], wanted, rtol=1e-12)


def test_of_many_pixels_percentiles_come_from_tiles_drawn_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("landbalance.tile.statistics._SAMPLE", 64 * 16)
    asked = []

    def read(ids: np.ndarray) -> np.ndarray:
        asked.append(len(ids))
        return np.broadcast_to(ids[:, None, None, None], (len(ids), 1, 8, 8)).astype(np.uint16)

    found = percentiles(np.arange(10_001), read, None)
    assert max(asked) == 16
    assert found["50"] == [pytest.approx(5000, abs=400)]
    assert found["1"] == [0]
    assert found["99"] == [10_000]
