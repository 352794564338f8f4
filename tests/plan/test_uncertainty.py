from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.plan.uncertainty import step_interval
from landbalance.plan.workers import Meeting, Workers, measured_workers
from landbalance.profiles import NodeProfile


@pytest.fixture
def noisy(
    make_config: Callable[..., Config],
    make_cluster: Callable[..., Cluster],
    make_profile: Callable[..., NodeProfile],
) -> Callable[..., Workers]:
    """Two unlike workers whose timings scatter by a given share; 0.1 s and 0.3 s a sample."""

    def made(scatter: float, repeats: int = 7, seed: int = 0, allreduce: tuple[float, float] | None = None) -> Workers:
        random = np.random.default_rng(seed)
        cluster = make_cluster(local=(1, [{"device": "cpu"}, {"device": "cpu", "slowdown": 3.0}]))
        profile = make_profile(cluster.nodes[0], [(0.0, 0.1), (0.0, 0.3)], allreduce=allreduce)
        curves = []
        for curve in profile.curves:
            seconds = [(times[0] * random.normal(1, scatter, repeats)).tolist() for times in curve.seconds]
            curves.append(curve.model_copy(update={"seconds": seconds}))
        config = make_config()
        profiles = {"local": profile.model_copy(update={"curves": curves})}
        return measured_workers(config, config.experiments["demo"], cluster, profiles)

    return made


def test_timings_without_noise_leave_no_doubt(noisy: Callable[..., Workers]) -> None:
    interval = step_interval(noisy(0.0, allreduce=(0.5, 0.1)), np.array([12, 4]))
    assert interval == pytest.approx((1.2 + 0.5, 1.2 + 0.5))


def test_more_timings_narrow_the_interval(noisy: Callable[..., Workers]) -> None:
    shares = np.array([16, 0])
    few, many = (step_interval(noisy(0.1, repeats), shares) for repeats in (7, 200))
    assert few is not None
    assert many is not None
    assert 0 < many[1] - many[0] < 0.5 * (few[1] - few[0])


def test_the_interval_holds_the_true_step_time(noisy: Callable[..., Workers]) -> None:
    """At 95 % about 3 of 60 noisy profiles miss the truth, 1.6 s; a percentile bootstrap is a bit short."""
    held = 0
    for seed in range(60):
        interval = step_interval(noisy(0.05, repeats=11, seed=seed), np.array([16, 0]))
        assert interval is not None
        held += interval[0] <= 1.6 <= interval[1]
    assert held >= 50


def test_communication_is_in_the_interval(noisy: Callable[..., Workers]) -> None:
    workers = noisy(0.0, allreduce=(0.5, 0.1))
    measured = workers.meetings[0].allreduce.model_copy(update={"seconds": [0.4, 0.5, 0.6], "latency_seconds": [0.0]})
    doubtful = replace(workers, meetings=(Meeting(measured, None, ()),))
    interval = step_interval(doubtful, np.array([12, 4]))
    assert interval is not None
    assert interval[0] == pytest.approx(1.6, abs=0.05)
    assert interval[1] == pytest.approx(1.8, abs=0.05)
