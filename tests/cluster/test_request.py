"""C25: what the training job asks Slurm for: the right nodes, tasks, GPUs and memory, once."""

from typing import Any

import pytest

from landbalance.cluster import Cluster
from landbalance.cluster.inventory import Partition
from landbalance.cluster.request import Component, batch_script, requested
from landbalance.plans import Plan, PlannedWorker, Prediction

FAST = {"name": "quick", "workers": [{"device": "cpu", "threads": 2}], "slurm": {"constraint": "fast"}}
SLOW = {"name": "old", "count": 2, "workers": [{"device": "cpu", "threads": 2}], "slurm": {"constraint": "slow"}}
GPU = {
    "name": "gpu",
    "workers": [{"device": "cuda", "count": 8}, {"device": "cpu", "threads": 24}],
    "slurm": {"partition": "accel", "gres": "gpu:8", "account": "maps", "qos": "long", "minutes": 600},
}
SMALL = {
    "name": "small",
    "count": 3,
    "workers": [{"device": "cuda", "count": 2}],
    "slurm": {"partition": "old", "gres": "gpu:2", "exclusive": False},
}


def planned(cluster: Cluster, left_out: tuple[str, ...] = ()) -> Plan:
    """Return a plan with all workers of the cluster, but for kinds of nodes that are left out."""
    workers: list[PlannedWorker] = []
    for node in cluster.nodes:
        for index in range(node.count):
            for worker in node.workers:
                for local in range(worker.count):
                    used = node.name not in left_out
                    workers.append(
                        PlannedWorker(
                            rank=sum(item.rank is not None for item in workers) if used else None,
                            node=node.name, node_index=index, local_index=local, title=worker.title,
                            device=worker.device, threads=worker.threads, slowdown=1.0, emulated=False,
                            share=int(used), micro_batch=None, speed=1.0, predicted_seconds=1.0,
                            left_out=None if used else "too slow",
                        )
                    )  # fmt: skip
    figures = dict.fromkeys(Prediction.model_fields, 1.0)
    used = sum(worker.share for worker in workers)
    return Plan(experiment="e", arm="balanced", batch_size=used, workers=workers, predicted=Prediction(**figures))


def components(*nodes: dict[str, Any], left_out: tuple[str, ...] = (), attempt: int = 1) -> list[Component]:
    cluster = Cluster.model_validate({"nodes": list(nodes)})
    return requested(planned(cluster, left_out), cluster, attempt)


def options(component: Component) -> set[str]:
    return set(component.options)


def test_kinds_that_differ_by_feature_only_are_one_allocation() -> None:
    (part,) = components(FAST, SLOW)
    assert options(part) == {
        "--constraint=[fast*1&slow*2]", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=2",
        "--mem=2000M", "--time=240", "--exclusive",
    }  # fmt: skip


def test_kinds_that_differ_in_more_are_a_heterogeneous_job() -> None:
    """C20: nodes with 8 and 2 GPUs are asked for 8 and 2."""
    big, small = components(GPU, SMALL)
    assert options(big) == {
        "--partition=accel", "--gres=gpu:8", "--account=maps", "--qos=long", "--nodes=1", "--ntasks=1",
        "--ntasks-per-node=1", "--cpus-per-task=32", "--mem=14000M", "--time=600", "--exclusive",
    }  # fmt: skip
    assert options(small) == {
        "--partition=old", "--gres=gpu:2", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=2",
        "--mem=3500M", "--time=240",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"slurm": {"constraint": "slow", "partition": "other"}},
        {"slurm": {"constraint": "slow", "memory_mb": 1000}},  # less than the fast node needs
        {"slurm": {"constraint": "fast"}},  # cannot be told apart
        {"slurm": {"constraint": "slow|older"}},
        {"workers": [{"device": "cpu", "threads": 1}]},
    ],
)
def test_what_one_allocation_cannot_give(change: dict[str, Any]) -> None:
    assert len(components(FAST, SLOW)) == 1
    assert len(components(FAST, {**SLOW, **change})) == 2


def test_nodes_that_the_plan_leaves_out_are_not_asked_for() -> None:
    (part,) = components(FAST, SLOW, left_out=("old",))
    assert {"--constraint=fast", "--nodes=1"} <= options(part)


def test_memory_grows_with_each_attempt_up_to_the_limit() -> None:
    limited = {**FAST, "slurm": {"constraint": "fast", "memory_mb": 5000}}
    asked = [components(limited, attempt=attempt)[0].memory_mb for attempt in (1, 2, 3)]
    assert asked == [2000, 4000, 5000]


def test_time_limit_grows_with_each_attempt_up_to_the_partitions() -> None:
    cluster = Cluster.model_validate({"nodes": [GPU, SLOW]})
    partitions = [Partition("accel", False, 1000), Partition("batch", True, None)]
    asked = [
        [part.options[part.options.index(f"--time={part.minutes}")] for part in parts]
        for parts in (requested(planned(cluster), cluster, attempt, partitions) for attempt in (1, 2))
    ]
    assert asked == [["--time=600", "--time=240"], ["--time=1000", "--time=480"]]


def test_script() -> None:
    script = batch_script(components(GPU, SMALL), {"job-name": "x"}, "exec train")
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    first, second = (part.splitlines() for part in script.split("#SBATCH hetjob\n"))
    assert "#SBATCH --job-name=x" in first
    assert "#SBATCH --requeue" in first
    assert "#SBATCH --signal=TERM@60" in first
    assert "#SBATCH --gres=gpu:8" in first
    assert "#SBATCH --gres=gpu:2" in second
    assert lines[-1] == "exec train"
