"""Findings in words: what the numbers of an experiment say."""

from collections import Counter
from dataclasses import dataclass

from landbalance.plans import Plan
from landbalance.report.content import Content
from landbalance.report.results import Metrics
from landbalance.report.units import NOT_AVAILABLE, duration, factor, percent, plural, points, rounded

NO_LIMIT = "–"
"""Where a limit makes no sense."""
_SAME = 0.0005
"""Shares that differ by less read alike when written with one decimal."""


def accuracy_verdict(metrics: Metrics, sample: str) -> str:
    """Return one sentence on the overall accuracy beside the majority share and the baseline."""
    if metrics.overall_accuracy is None:
        return f"The test split holds no labelled {sample}, so no accuracy can be given."
    text = f"{percent(metrics.overall_accuracy)} of the test {sample}s get their right class"
    comparisons = []
    if metrics.baseline is not None and metrics.baseline.overall_accuracy is not None:
        other = f"a {metrics.baseline.name} on the same split"
        comparisons.append(_compared(metrics.overall_accuracy - metrics.baseline.overall_accuracy, other))
    if metrics.majority_share is not None:
        other = "what always naming the commonest class would get"
        comparisons.append(_compared(metrics.overall_accuracy - metrics.majority_share, other))
    return ", ".join([text, " and ".join(comparisons)] if comparisons else [text]) + "."


def _compared(difference: float, other: str) -> str:
    if abs(difference) < _SAME:
        return f"as many as {other}"
    return f"{points(difference)} {'above' if difference > 0 else 'below'} {other}"


def class_notes(metrics: Metrics, sample: str) -> list[str]:
    """Return a warning for each class that is missing in the reference or in the prediction."""
    notes = []
    for scores in metrics.per_class:
        if scores.support == 0 and scores.predicted == 0:
            notes.append(f"{scores.name} occurs neither in the test split nor in its prediction.")
        elif scores.support == 0:
            notes.append(
                f"{scores.name} is predicted but has no test {sample}: its producer's accuracy is not defined."
            )
        elif scores.predicted == 0:
            notes.append(f"{scores.name} is in the test split but never predicted: its user's accuracy is not defined.")
    return notes


def team_text(plan: Plan) -> str:
    """Return who trained, e.g. ``2 workers on 1 node: cpu, 1 thread; cpu, 1 thread, emulated 3× slower``."""
    nodes = {(worker.node, worker.node_index) for worker in plan.used}
    kinds = Counter(worker.title for worker in plan.used)
    told = "; ".join(title if number == 1 else f"{number} × {title}" for title, number in kinds.items())
    return f"{plural(len(plan.used), 'worker')} on {plural(len(nodes), 'node')}: {told}"


def speed_verdict(content: Content) -> str:
    """Return what the shares gained: speed-ups beside their limits, measured where they were."""
    predicted, measured = content.plan.predicted, content.speed
    if content.experiment.arm == "equal":
        text = (
            "All workers have equal shares here: this is what the other arms are compared with. "
            f"Shares by speed could be up to {factor(predicted.speedup_over_equal_limit)} faster."
        )
    elif measured.over_equal is not None:
        text = (
            f"A step takes {duration(content.times.median)}; with equal shares (experiment "
            f"{content.equal.experiment}) it takes {duration(content.equal.step_seconds)}: measured "
            f"{factor(measured.over_equal)} as fast, predicted {factor(predicted.speedup_over_equal)}, "
            f"at most {factor(predicted.speedup_over_equal_limit)}."
        )
    else:
        text = (
            f"Shares by speed promise steps {factor(predicted.speedup_over_equal)} as fast as equal shares, "
            f"at most {factor(predicted.speedup_over_equal_limit)}; the gain was not measured, for "
            f"{content.equal.reason}."
        )
    against = measured.over_fastest if measured.over_fastest is not None else predicted.speedup_over_fastest
    text += (
        f" Against the fastest worker alone: {factor(against)} of at most "
        f"{factor(predicted.speedup_over_fastest_limit)}."
    )
    if content.emulated:
        text += " An emulated worker took part: these figures show the method, not real machines."
    return text


@dataclass(frozen=True)
class SpeedRow:
    """A line of the table of predicted and measured speed."""

    name: str
    predicted: str
    measured: str
    limit: str
    note: str = ""


def speed_rows(content: Content, epoch_seconds: float | None) -> list[SpeedRow]:
    """Return the lines of the table of predicted and measured speed."""
    predicted, measured, times = content.plan.predicted, content.speed, content.times
    spread = ""
    if times.median is not None:
        spread = (
            f"median of {times.counted:,} of {times.steps:,} steps, middle half "
            f"{duration(times.low)} to {duration(times.high)}"
        )
    rate = content.plan.batch_size / predicted.step_seconds
    if content.equal.experiment:
        equal_note = f"measured in experiment {content.equal.experiment}"
    else:
        equal_note = f"not measured: {content.equal.reason}"
    return [
        SpeedRow("Step", duration(predicted.step_seconds), duration(times.median), NO_LIMIT, spread),
        SpeedRow(
            "Communication in a step",
            duration(predicted.communication_seconds),
            NOT_AVAILABLE,
            NO_LIMIT,
            "not measured apart, for it overlaps with computing",
        ),
        SpeedRow(
            "Step with equal shares",
            duration(predicted.equal_step_seconds),
            duration(content.equal.step_seconds),
            NO_LIMIT,
            equal_note,
        ),
        SpeedRow(
            "Step of the fastest worker alone",
            duration(predicted.fastest_alone_step_seconds),
            NOT_AVAILABLE,
            NO_LIMIT,
            "from its profile; an experiment does not run it",
        ),
        SpeedRow(
            "Speed-up over equal shares, S",
            factor(predicted.speedup_over_equal),
            factor(measured.over_equal),
            factor(predicted.speedup_over_equal_limit),
            "limit: S_max = Σs / (p · min s)",
        ),
        SpeedRow(
            "Speed-up over the fastest worker alone, G",
            factor(predicted.speedup_over_fastest),
            factor(measured.over_fastest),
            factor(predicted.speedup_over_fastest_limit),
            "limit: G_max = Σs / max s; measured: profiled step of that worker alone / measured step",
        ),
        SpeedRow(
            "Share of all workers' speed (Σs) reached",
            percent(predicted.fraction_of_total_speed),
            percent(measured.fraction_of_total_speed),
            percent(1.0),
        ),
        SpeedRow(
            "Samples per second",
            rounded(rate),
            rounded(measured.samples_per_second),
            rounded(rate / predicted.fraction_of_total_speed if predicted.fraction_of_total_speed else None),
            "limit: Σs",
        ),
        SpeedRow("Epoch", duration(predicted.epoch_seconds), duration(epoch_seconds), NO_LIMIT, "measured: median"),
    ]
