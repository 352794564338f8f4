from typing import Any

import pytest

from landbalance.plan.summary import plan_lines, reason, shown_range, shown_seconds, worker_groups
from landbalance.plans import Plan


def _plan(workers: list[dict[str, Any]]) -> Plan:
    common = {
        "node": "local", "node_index": 0, "device": "cpu", "threads": 1, "slowdown": 1.0, "emulated": False,
        "micro_batch": None, "left_out": None, "title": "cpu, 1 thread",
    }  # fmt: skip
    promised = {
        "step_seconds": 0.98, "communication_seconds": 0.05, "epoch_seconds": 98.0, "equal_step_seconds": 1.5,
        "fastest_alone_step_seconds": 1.2, "speedup_over_equal": 1.53, "speedup_over_equal_limit": 1.7,
        "speedup_over_fastest": 1.22, "speedup_over_fastest_limit": 1.4, "fraction_of_total_speed": 0.873,
    }  # fmt: skip
    return Plan.model_validate(
        {
            "experiment": "demo",
            "arm": "balanced",
            "batch_size": 16,
            "workers": [common | {"local_index": index} | worker for index, worker in enumerate(workers)],
            "predicted": promised,
        }
    )


USED = {"rank": 0, "share": 16, "speed": 20.0, "predicted_seconds": 0.8}
IDLE = {"rank": None, "share": 0, "speed": 2.0, "predicted_seconds": 0.0, "left_out": "why"}


def test_energy_is_told_where_it_is_known() -> None:
    plan = _plan([USED, IDLE])
    assert "kJ" not in "".join(plan_lines(plan))
    plan = plan.model_copy(update={"predicted": plan.predicted.model_copy(update={"epoch_joules": 12340.0})})
    assert any(line.endswith("an epoch: 98.0 s, 12.3 kJ") for line in plan_lines(plan))


def test_table_of_few_workers() -> None:
    lines = plan_lines(_plan([USED, IDLE]))
    assert lines[:3] == [
        "rank  node      worker         share  computing  samples/s",
        "   0  local[0]  cpu, 1 thread     16    0.800 s         20",
        "   –  local[0]  cpu, 1 thread      0   left out          2",
    ]
    text = "\n".join(lines[3:])
    assert "a step: 0.980 s, of that communication 50.0 ms; an epoch: 98.0 s" in text
    assert (
        "over equal shares (1.50 s): 1.53, limit 1.70; over the fastest worker alone (1.20 s): 1.22, limit 1.40" in text
    )
    assert "87.3 %" in text
    assert lines[-1] == "left out: 1 × local, cpu, 1 thread: why"


def test_many_workers_stand_by_kind() -> None:
    plan = _plan([USED | {"rank": rank, "share": 1 + rank % 2} for rank in range(30)] + [IDLE] * 5)
    assert [len(members) for members in worker_groups(plan)] == [30, 5]
    lines = plan_lines(plan)
    assert lines[1].split() == ["30", "×", "local", "cpu,", "1", "thread", "1–2", "0.800", "s", "20"]
    assert "5 ×" in lines[2]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (1.3149, "1.31 s"),
        (0.0123, "12.3 ms"),
        (250.0, "250 s"),
        (0.25, "0.250 s"),
        (0.00012, "0.120 ms"),
    ],
)
def test_seconds_in_a_fitting_unit(seconds: float, text: str) -> None:
    assert shown_seconds(seconds) == text


def test_a_reason_shows_a_difference() -> None:
    assert reason(1.31, 0.98) == "with it a step would take 1.31 s instead of 0.980 s"
    assert reason(1.00001, 1.0) == "with it a step would take 1.00001 s instead of 1.00000 s"
    assert reason(1.0, 1.0) == "with it a step would be no faster: 1.00 s either way"


def test_ranges() -> None:
    assert (shown_range([3, 3]), shown_range([4, 3])) == ("3", "3–4")
