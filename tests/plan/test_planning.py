import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.errors import UserError
from landbalance.plan import run
from landbalance.plans import Plan, read_plan
from landbalance.profiles import NodeProfile

Lines = list[tuple[float, float]]


@pytest.fixture
def planned(
    tmp_path: Path,
    make_config: Callable[..., Config],
    make_cluster: Callable[..., Cluster],
    make_profile: Callable[..., NodeProfile],
) -> Callable[..., Plan]:
    """Plan for one kind of node and read the plan back."""

    def made(
        workers: list[dict[str, Any]],
        lines: Lines,
        count: int = 1,
        caps: list[int | None] | None = None,
        allreduce: tuple[float, float] | None = None,
        train_samples: int = 100,
        **settings: Any,
    ) -> Plan:
        cluster = make_cluster(local=(count, workers))
        profile = make_profile(cluster.nodes[0], lines, caps, allreduce)
        target = tmp_path / "plan" / "demo.json"
        run("demo", make_config(**settings), cluster, {"local": profile}, train_samples, target)
        return read_plan(target)

    return made


FAST_AND_SLOW = [{"device": "cpu"}, {"device": "cpu", "slowdown": 3.0}]


@pytest.mark.parametrize("arm", ["balanced", "unweighted"])
def test_shares_follow_speed(planned: Callable[..., Plan], arm: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    plan = planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)], arm=arm)
    assert [(worker.rank, worker.share) for worker in plan.used] == [(0, 12), (1, 4)]
    assert [worker.speed for worker in plan.used] == pytest.approx([10, 10 / 3])
    assert [worker.predicted_seconds for worker in plan.used] == pytest.approx([1.2, 1.2])
    assert plan.predicted.speedup_over_equal == pytest.approx(2)
    assert plan.predicted.epoch_seconds == pytest.approx(7 * 1.2)
    assert (plan.arm, plan.batch_size, plan.experiment) == (arm, 16, "demo")
    assert plan.workers[1].emulated
    assert plan.workers[1].slowdown == 3
    assert "cpu, 1 thread, emulated 3× slower" in caplog.text
    assert "speed-up over equal shares (2.40 s): 2.00, limit 2.00" in caplog.text


def test_arm_equal_shares_equally_over_all(planned: Callable[..., Plan]) -> None:
    plan = planned([{"device": "cpu", "count": 3}], [(0.0, 0.1)], arm="equal", allreduce=(9.0, 1.0))
    assert [worker.share for worker in plan.used] == [6, 5, 5]
    assert plan.predicted.speedup_over_equal == 1


def test_left_out_workers_stand_last_with_a_reason(
    planned: Callable[..., Plan], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plan = planned([{"device": "cpu", "threads": 1}, {"device": "cpu", "threads": 8}],
                   [(0.0, 1.0), (0.0, 0.05)], allreduce=(0.5, 0.0))  # fmt: skip
    assert [(worker.rank, worker.local_index, worker.share) for worker in plan.workers] == [(0, 1, 16), (None, 0, 0)]
    slow = plan.workers[1]
    # 1 sample in 1 s, and 0.5 s of communication.
    assert slow.left_out == "with it a step would take 1.50 s instead of 0.800 s"
    assert slow.predicted_seconds == 0
    assert slow.speed == pytest.approx(1)
    assert plan.predicted.communication_seconds == 0
    assert "left out: 1 × local, cpu, 1 thread: with it a step would take 1.50 s" in caplog.text


def test_ranks_on_a_node_are_adjacent(planned: Callable[..., Plan]) -> None:
    plan = planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)], count=2)
    places = [(worker.rank, worker.node_index, worker.local_index) for worker in plan.used]
    assert places == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]
    assert [worker.share for worker in plan.used] == [6, 2, 6, 2]


def test_a_batch_smaller_than_the_workers(planned: Callable[..., Plan]) -> None:
    workers = [{"device": "cpu", "count": 5}]
    plan = planned(workers, [(0.1, 0.1)], batch_size=3)
    assert [worker.share for worker in plan.workers] == [1, 1, 1, 0, 0]
    assert "no sample left" in (plan.workers[4].left_out or "")
    with pytest.raises(UserError, match=r"training.short.batch_size: found 3; .* allowed is 5 or more"):
        planned(workers, [(0.1, 0.1)], batch_size=3, arm="equal")


def test_group_norm_accumulates_beyond_the_cap(planned: Callable[..., Plan]) -> None:
    plan = planned([{"device": "cpu", "count": 2}], [(0.1, 0.1)], caps=[4], batch_size=16)
    assert [(worker.share, worker.micro_batch) for worker in plan.used] == [(8, 4), (8, 4)]
    assert plan.used[0].predicted_seconds == pytest.approx(2 * 0.5)


def test_batch_norm_keeps_the_caps(planned: Callable[..., Plan]) -> None:
    plan = planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)], caps=[8, None], norm="batch")
    assert [worker.share for worker in plan.used] == [8, 8]


def test_batch_norm_refuses_a_batch_that_does_not_fit(planned: Callable[..., Plan]) -> None:
    workers = [{"device": "cpu", "count": 3}, {"device": "cuda"}]
    lines: Lines = [(0.0, 0.3), (0.0, 0.1)]
    with pytest.raises(UserError, match=r"found 16; models\.unet has norm: batch") as caught:
        planned(workers, lines, caps=[2, 4], norm="batch")
    assert "at most 10 samples in memory (3 × 2 on local, cpu, 1 thread, 1 × 4 on local, cuda)" in str(caught.value)
    assert "Lower it to 10 or less" in str(caught.value)
    assert sum(worker.share for worker in planned(workers, lines, caps=[2, 4], norm="batch", batch_size=10).used) == 10
    with pytest.raises(UserError, match="equal share of it is 3 samples, but local, cpu, 1 thread holds at most 2"):
        planned(workers, lines, caps=[2, 4], norm="batch", batch_size=10, arm="equal")
    assert len(planned(workers, lines, caps=[2, 4], norm="batch", batch_size=8, arm="equal").used) == 4


def test_nothing_is_written_when_the_plan_is_refused(planned: Callable[..., Plan], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)], caps=[1, 1], norm="batch")
    assert list(tmp_path.rglob("*.*")) == []


def test_the_same_plan_gives_the_same_bytes(planned: Callable[..., Plan], tmp_path: Path) -> None:
    files = [tmp_path / "plan" / "demo.json", tmp_path / "plan" / "demo.svg"]
    planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)])
    first = [file.read_bytes() for file in files]
    planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)])
    assert [file.read_bytes() for file in files] == first


def test_what_the_figures_do_not_show_is_said(planned: Callable[..., Plan], caplog: pytest.LogCaptureFixture) -> None:
    planned(FAST_AND_SLOW, [(0.0, 0.1), (0.0, 0.3)], batch_size=160, train_samples=50, count=2)
    assert "the train split has 50 tiles" in caplog.text
    assert "communication was not measured" in caplog.text
    caplog.clear()
    planned([{"device": "cpu"}], [(0.0, 0.1)], batch_size=100)
    assert "100 samples at once are more than the 64 that were timed" in caplog.text
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert not [message for message in warnings if "communication" in message]


def test_notes_stand_in_the_plan_file(planned: Callable[..., Plan]) -> None:
    """The report shows what the log said; the batch size is the user's, whatever would be faster."""
    plan = planned([{"device": "cpu"}], [(1.0, 0.1)], batch_size=8)
    assert plan.batch_size == 8
    advised = [point.batch_size for point in plan.batch_sizes if point.recommended]
    assert advised == [48, 64]
    assert [note for note in plan.notes if "48, 64 would reach 90 % or more" in note]
    accumulated = planned([{"device": "cpu"}], [(0.0, 0.1)], caps=[4], batch_size=16)
    assert [note for note in accumulated.notes if "in parts of at most 4" in note]
