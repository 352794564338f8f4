"""Findings in words: what the numbers of an experiment say."""

from collections import Counter
from dataclasses import dataclass

from landbalance.plans import Plan
from landbalance.report.content import Content
from landbalance.report.results import Metrics
from landbalance.report.speed import epoch_seconds
from landbalance.report.units import NOT_AVAILABLE, duration, factor, percent, plural, points, rounded

NO_LIMIT = "–"
"""Where a limit makes no sense."""
_SAME = 0.0005
"""Shares that differ by less read alike when written with one decimal."""
_SHORTER = 0.1
"""A measured step that is shorter than predicted by more than this share is warned of."""
_READ_ALIKE = 0.005
"""A figure above its limit by less than this share of it is not told from it."""


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
            f"at most {factor(predicted.speedup_over_equal_limit)} by the profile."
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
        f"{factor(predicted.speedup_over_fastest_limit)} by the profile."
    )
    if content.emulated:
        text += " An emulated worker took part: these figures show the method, not real machines."
    return text


def exceeds(measured: float | None, limit: float) -> bool:
    """Return whether a measured figure is above its limit by more than rounding hides."""
    return measured is not None and measured > limit * (1 + _READ_ALIKE)


def limit_warning(content: Content) -> str | None:
    """Return which measured figures are better than the profile holds possible, why, and what to do; None if none is.

    A limit cannot be exceeded at the profiled speeds, so the machine must have been slower when it was
    profiled. The speed-up over equal shares divides two measured steps: the run with equal shares may
    have been the slow one too.
    """
    predicted, measured, equal = content.plan.predicted, content.speed, content.equal.experiment
    over_equal = exceeds(measured.over_equal, predicted.speedup_over_equal_limit)
    found = []
    if over_equal:
        limit = factor(predicted.speedup_over_equal_limit)
        found.append(f"the speed-up over equal shares is {factor(measured.over_equal)}, its limit {limit}")
    if exceeds(measured.over_fastest, predicted.speedup_over_fastest_limit):
        limit = factor(predicted.speedup_over_fastest_limit)
        found.append(
            f"the speed-up over the fastest worker alone is {factor(measured.over_fastest)}, its limit {limit}"
        )
    if exceeds(measured.fraction_of_total_speed, 1.0):
        found.append(f"{percent(measured.fraction_of_total_speed)} of all workers' speed (Σs) is reached")
    if measured.slower_than_predicted is not None and measured.slower_than_predicted < -_SHORTER:
        found.append(f"the step is {percent(-measured.slower_than_predicted)} shorter than predicted")
    if not found:
        return None
    when = f"when it was profiled, or when {equal} was trained," if over_equal else "when it was profiled"
    again = f"{content.name} and {equal}" if over_equal else content.name
    commands = "; ".join(command for command in content.commands if command.startswith("landbalance profile "))
    return (
        f"Training was faster than the profile allows: {'; '.join(found)}. Limits and predictions rest on the "
        f"profile, and the machine was slower {when} than in this training (other load?): the two do not "
        f"compare. Measure again while nothing else runs: {commands} (or delete the profile's file and run "
        f"Snakemake again), then plan and train {again} again."
    )


@dataclass(frozen=True)
class SpeedRow:
    """A line of the table of predicted and measured speed; `above` marks a measured figure above its limit."""

    name: str
    predicted: str
    measured: str
    limit: str
    note: str = ""
    above: bool = False


def speed_rows(content: Content) -> list[SpeedRow]:
    """Return the lines of the table of predicted and measured speed."""
    predicted, measured, times = content.plan.predicted, content.speed, content.times
    spread = ""
    if times.median is not None:
        spread = (
            f"median of {times.counted:,} of {times.steps:,} steps, middle half "
            f"{duration(times.low)} to {duration(times.high)}"
        )
    rate = content.plan.batch_size / predicted.step_seconds
    above_total = exceeds(measured.fraction_of_total_speed, 1.0)
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
            exceeds(measured.over_equal, predicted.speedup_over_equal_limit),
        ),
        SpeedRow(
            "Speed-up over the fastest worker alone, G",
            factor(predicted.speedup_over_fastest),
            factor(measured.over_fastest),
            factor(predicted.speedup_over_fastest_limit),
            "limit: G_max = Σs / max s; measured: profiled step of that worker alone / measured step",
            exceeds(measured.over_fastest, predicted.speedup_over_fastest_limit),
        ),
        SpeedRow(
            "Share of all workers' speed (Σs) reached",
            percent(predicted.fraction_of_total_speed),
            percent(measured.fraction_of_total_speed),
            percent(1.0),
            above=above_total,
        ),
        SpeedRow(
            "Samples per second",
            rounded(rate),
            rounded(measured.samples_per_second),
            rounded(rate / predicted.fraction_of_total_speed if predicted.fraction_of_total_speed else None),
            "limit: Σs",
            above_total,
        ),
        SpeedRow(
            "Epoch",
            duration(predicted.epoch_seconds),
            duration(epoch_seconds(content.history)),
            NO_LIMIT,
            "measured: median, with validation",
        ),
    ]
