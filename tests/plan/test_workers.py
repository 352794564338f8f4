import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.errors import UserError
from landbalance.plan.uncertainty import step_interval
from landbalance.plan.workers import measured_workers
from landbalance.profiles import NodeProfile


@pytest.fixture
def mixed(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster(
        gpu=(2, [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 4}]),
        old=(1, [{"device": "cpu", "slowdown": 3.0}]),
    )


@pytest.fixture
def profiles(mixed: Cluster, make_profile: Callable[..., NodeProfile]) -> dict[str, NodeProfile]:
    gpu, old = mixed.nodes
    return {
        "gpu": make_profile(gpu, [(0.0, 0.1), (0.0, 1.0)], allreduce=(0.3, 0.1)),
        "old": make_profile(old, [(0.0, 2.0)]),
    }


def test_workers_of_a_node_are_adjacent(
    mixed: Cluster, profiles: dict[str, NodeProfile], make_config: Callable[..., Config]
) -> None:
    config = make_config()
    workers = measured_workers(config, config.experiments["demo"], mixed, profiles)
    assert workers.kind.tolist() == [0, 0, 1, 0, 0, 1, 2]
    assert workers.counts.tolist() == [4, 2, 1]
    assert workers.places == [
        *(("gpu", 0, local) for local in range(3)),
        *(("gpu", 1, local) for local in range(3)),
        ("old", 0, 0),
    ]
    np.testing.assert_allclose(workers.seconds(np.array([1, 2, 3, 4, 5, 0, 1])), [0.1, 0.2, 3, 0.4, 0.5, 0, 2])
    assert workers.communication[3] == pytest.approx(0.3)
    assert len(workers.communication) == 8


def test_a_missing_profile_names_the_command_that_makes_it(
    mixed: Cluster, profiles: dict[str, NodeProfile], make_config: Callable[..., Config]
) -> None:
    del profiles["old"]
    config = make_config()
    with pytest.raises(UserError, match="landbalance profile havel unet old"):
        measured_workers(config, config.experiments["demo"], mixed, profiles)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "other"}, "model is other there, but unet"),
        ({"dataset": "other"}, "dataset is other there, but havel"),
        ({"bands": 4}, "number of bands is 4 there, but 3"),
        ({"tile_size": 128}, "tile size is 128 there, but 64"),
        ({"curves": []}, "number of entries under workers is 0 there, but 1"),
        ({"title": "cpu, 1 thread"}, "worker 1 is cpu, 1 thread there, but cpu, 1 thread, emulated 3× slower"),
        ({"count": 2}, "count of worker 1 is 2 there, but 1"),
        ({"batch_sizes": [2, 1], "seconds": [[1.0], [1.0]]}, r"batch sizes \[2, 1\] do not ascend"),
        ({"seconds": [[1.0]]}, "7 batch sizes, but timings of 1"),
        ({"batch_sizes": [1], "seconds": [[]]}, "no timings of batch size 1"),
        ({"batch_sizes": [1], "seconds": [[0.0]]}, "the median time of batch size 1 is 0"),
    ],
)
def test_a_profile_that_does_not_fit(
    mixed: Cluster,
    profiles: dict[str, NodeProfile],
    make_config: Callable[..., Config],
    changes: dict[str, Any],
    message: str,
) -> None:
    value = profiles["old"].model_dump()
    of_curve = {key: new for key, new in changes.items() if key in value["curves"][0]}
    value["curves"][0] |= of_curve
    value |= {key: new for key, new in changes.items() if key not in of_curve}
    profiles["old"] = NodeProfile.model_validate(value)
    config = make_config()
    with pytest.raises(UserError, match=message) as caught:
        measured_workers(config, config.experiments["demo"], mixed, profiles)
    assert "landbalance profile havel unet old" in str(caught.value)


def test_seconds_are_finite_far_beyond_what_was_measured(
    mixed: Cluster, profiles: dict[str, NodeProfile], make_config: Callable[..., Config]
) -> None:
    config = make_config()
    workers = measured_workers(config, config.experiments["demo"], mixed, profiles)
    assert all(math.isfinite(value) for value in workers.seconds(np.full(7, 10**9)))


def test_communication_is_what_whole_steps_took_beyond_their_computing(
    make_cluster: Callable[..., Cluster], make_profile: Callable[..., NodeProfile], make_config: Callable[..., Config]
) -> None:
    cluster = make_cluster(local=(2, [{"device": "cpu"}, {"device": "cpu", "slowdown": 3.0}]))
    profile = make_profile(cluster.nodes[0], [(0.0, 0.1), (0.0, 0.3)], allreduce=(0.5, 0.0))
    rounds = [
        {"samples": [16, 0], "step_seconds": [1.6], "apart_seconds": []},
        {"samples": [8, 8], "step_seconds": [2.4, 2.4, 2.4], "apart_seconds": []},
        {"samples": [12, 4], "step_seconds": [1.3, 1.3, 1.4], "apart_seconds": []},
        {"samples": [48, 16], "step_seconds": [5.2], "apart_seconds": []},
    ]
    profiles = {"local": NodeProfile.model_validate(profile.model_dump() | {"rounds": rounds})}
    config = make_config(batch_size=16)
    workers = measured_workers(config, config.experiments["demo"], cluster, profiles)
    # The nearest batch, at the shares that finish together: 1.3 s, of which 1.2 s are computing, where sums by
    # themselves take 0.5 s. Four workers move half as much again.
    assert workers.communication[2] == pytest.approx(0.1)
    assert workers.communication[4] == pytest.approx(0.1 * 1.5)
    config = make_config(batch_size=60)
    workers = measured_workers(config, config.experiments["demo"], cluster, profiles)
    assert workers.communication[2] == pytest.approx(5.2 - 4.8)
    assert step_interval(workers, np.array([36, 12, 0, 0])) == pytest.approx((3.6 + 0.4, 3.6 + 0.4))
