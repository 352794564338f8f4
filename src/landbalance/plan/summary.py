"""A plan as lines of text."""

from collections import Counter
from collections.abc import Collection, Sequence

from landbalance.plans import Plan, PlannedWorker, Prediction

LISTED = 24
"""Up to so many workers are shown one by one; more are shown by kind."""


def plan_lines(plan: Plan) -> list[str]:
    """Return the table of workers, the speed-ups beside their limits, and who is left out and why."""
    listed = len(plan.workers) <= LISTED
    rows: list[tuple[str, ...]] = [
        ("rank" if listed else "workers", "node", "worker", "share", "computing", "samples/s")
    ]
    rows += [_row([plan.workers[index] for index in members]) for members in worker_groups(plan)]
    return [*aligned(rows, left={1, 2}), *_promises(plan.predicted), *_left_out(plan), *_batch_sizes(plan)]


def worker_groups(plan: Plan) -> list[list[int]]:
    """Return the plan's workers, by index: one by one when they are few, else by kind, used or left out."""
    if len(plan.workers) <= LISTED:
        return [[index] for index in range(len(plan.workers))]
    kinds: dict[tuple[str, str, bool], list[int]] = {}
    for index, worker in enumerate(plan.workers):
        kinds.setdefault((worker.node, worker.title, worker.left_out is None), []).append(index)
    return list(kinds.values())


def shown_range(values: Sequence[int]) -> str:
    """Return the values' range, e.g. ``9`` or ``9–10``."""
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}–{high}"


def shown_seconds(seconds: float, digits: int = 3) -> str:
    """Return seconds in a fitting unit, e.g. ``0.980 s`` or ``12.3 ms``."""
    value, unit = (seconds, "s") if seconds >= 0.1 else (seconds * 1e3, "ms")
    if value == 0 or value >= 10 ** (digits - 1):
        return f"{value:.0f} {unit}"
    return f"{value:#.{digits}g} {unit}"


def reason(with_it: float, without: float) -> str:
    """Return why a worker is left out: the step's seconds with it and without it."""
    if with_it <= without:
        return f"with it a step would be no faster: {shown_seconds(without)} either way"
    digits = 3
    while shown_seconds(with_it, digits) == shown_seconds(without, digits) and digits < 17:
        digits += 1
    return f"with it a step would take {shown_seconds(with_it, digits)} instead of {shown_seconds(without, digits)}"


def _row(group: list[PlannedWorker]) -> tuple[str, ...]:
    first, slowest = group[0], max(group, key=lambda worker: worker.predicted_seconds)
    shares = shown_range([worker.share for worker in group])
    if len(group) > 1:
        rank, node = f"{len(group)} ×", first.node
    else:
        rank, node = "–" if first.rank is None else f"{first.rank}", f"{first.node}[{first.node_index}]"
    time = "left out" if first.left_out is not None else shown_seconds(slowest.predicted_seconds)
    return rank, node, first.title, shares, time, f"{sum(worker.speed for worker in group) / len(group):.4g}"


def aligned(rows: Sequence[tuple[str, ...]], left: Collection[int]) -> list[str]:
    """Return `rows` as lines of columns; the columns `left` are aligned to the left, all others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _promises(predicted: Prediction) -> list[str]:
    low, high = predicted.step_seconds_low, predicted.step_seconds_high
    between = "" if low is None or high is None else f" ({shown_seconds(low)} to {shown_seconds(high)})"
    energy = "" if predicted.epoch_joules is None else f", {predicted.epoch_joules / 1e3:.3g} kJ"
    return [
        f"a step: {shown_seconds(predicted.step_seconds)}{between}, of that communication "
        f"{shown_seconds(predicted.communication_seconds)}; an epoch: {shown_seconds(predicted.epoch_seconds)}{energy}",
        f"speed-up over equal shares ({shown_seconds(predicted.equal_step_seconds)}): "
        f"{predicted.speedup_over_equal:.2f}, limit {predicted.speedup_over_equal_limit:.2f}; "
        f"over the fastest worker alone ({shown_seconds(predicted.fastest_alone_step_seconds)}): "
        f"{predicted.speedup_over_fastest:.2f}, limit {predicted.speedup_over_fastest_limit:.2f}",
        f"reached of all workers' speed together: {100 * predicted.fraction_of_total_speed:.1f} %",
    ]


def _left_out(plan: Plan) -> list[str]:
    idle = Counter((worker.node, worker.title, worker.left_out) for worker in plan.workers if worker.left_out)
    return [f"left out: {count} × {node}, {title}: {why}" for (node, title, why), count in idle.items()]


def _batch_sizes(plan: Plan) -> list[str]:
    advised = [f"{point.batch_size}" for point in plan.batch_sizes if point.recommended]
    return [f"batch sizes that use these workers well: {', '.join(advised)}"] if advised else []
