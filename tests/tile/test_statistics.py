"""Streaming statistics equal those of the whole."""

import numpy as np
import pytest

from landbalance.tile.statistics import PERCENTILES, BandStatistics


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float32", "int32"])
def test_parts_give_what_the_whole_gives(dtype: str) -> None:
    rng = np.random.default_rng(0)
    whole = (rng.normal(20, 9, (3, 10_000)) + np.array([[0], [30], [60]])).clip(0, 120).astype(dtype)
    if np.dtype(dtype).kind == "i":
        whole = (whole - 40).astype(dtype)
    statistics = BandStatistics(3, np.dtype(dtype))
    for part in np.array_split(whole, [1, 1, 50, 4000, 4001], axis=1):
        statistics.add(part)
    assert statistics.count == 10_000
    np.testing.assert_allclose(statistics.mean, whole.mean(axis=1, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(statistics.std, whole.std(axis=1, dtype=np.float64), rtol=1e-12)
    percentiles = statistics.percentiles()
    for q in PERCENTILES:
        np.testing.assert_allclose(percentiles[str(q)], np.percentile(whole.astype(float), q, axis=1), rtol=1e-12)


def test_a_large_mean_does_not_swallow_the_deviation() -> None:
    values = 1e9 + np.arange(1000.0).reshape(1, -1)
    statistics = BandStatistics(1, values.dtype)
    for part in np.array_split(values, 17, axis=1):
        statistics.add(part)
    np.testing.assert_allclose(statistics.std, values.std(), rtol=1e-12)


def test_a_long_stream_of_floats_is_thinned_evenly() -> None:
    rng = np.random.default_rng(0)
    statistics = BandStatistics(1, np.dtype("float32"))
    parts = [rng.normal(size=(1, 9_973)).astype("float32") for _ in range(120)]
    for part in parts:
        statistics.add(part)
    whole = np.concatenate(parts, axis=1)
    for q, (value,) in statistics.percentiles().items():
        assert abs(value - np.percentile(whole, int(q))) < 0.02
    assert sum(sample.shape[1] for sample in statistics._sample) <= 1 << 18


def test_extreme_values_of_integers() -> None:
    statistics = BandStatistics(1, np.dtype("int16"))
    statistics.add(np.array([[-32768, 32767, 0]], np.int16))
    assert statistics.percentiles()["50"] == [0.0]
    assert statistics.percentiles()["1"][0] == pytest.approx(np.percentile([-32768, 0, 32767], 1))
