"""Findings in words: what the numbers of an experiment say."""

from collections import Counter
from dataclasses import dataclass

from landbalance.comparison import Comparison
from landbalance.plans import Plan
from landbalance.report.content import Content
from landbalance.report.results import Difference, Distance, Metrics
from landbalance.report.speed import StepTimes, epoch_seconds
from landbalance.report.units import (
    NOT_AVAILABLE,
    chance,
    duration,
    factor,
    percent,
    plural,
    points,
    rounded,
    signed_points,
)

NO_LIMIT = "–"
"""Where a limit makes no sense."""
_SAME = 0.0005
"""Shares that differ by less read alike when written with one decimal."""
_SHORTER = 0.1
"""A measured step that is shorter than predicted by more than this share is warned of."""
_LONGER = 0.25
"""A measured step that is longer than predicted by more than this share is explained."""
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


def difference_text(found: Difference | Comparison, sample: str) -> str:
    """Return how much better the first is than the second, with its interval, and whether it could be chance."""
    text = signed_points(found.difference)
    if found.interval is not None:
        low, high = (signed_points(limit).partition("\u00a0")[0] for limit in found.interval)
        text += f" (interval {low} to {high})"
    by_unit = f"{chance(found.p_value_by_unit)} by {found.unit} ({plural(found.units, found.unit)}, randomisation test)"
    by_sample = f"{chance(found.p_value)} by {sample} (McNemar's test{_too_small(found)})"
    return f"{text}; {by_unit}; {by_sample}"


def _too_small(found: Difference | Comparison) -> str:
    return ", far too small, for neighbouring pixels are not independent" if found.unit == "block" else ""


def distance_text(distance: Distance, sample: str) -> str:
    """Return how far the test samples lie from the training pixels, in pixels."""
    if not distance.samples:
        return f"No training pixel lies on the ground of the test {sample}s: the test is of another place altogether."
    least, middle, most = (distance.quantiles.get(share) for share in ("0", "0.5", "1"))
    text = (
        f"From a test {sample} to the nearest training pixel it is {rounded(least)} pixels at least, {rounded(middle)} "
        f"in the middle (median) and {rounded(most)} at most. The nearer they are, the more the test says of pixels "
        "like those trained on, and the less of new ground."
    )
    if distance.elsewhere:
        text += f" Not counted: {plural(distance.elsewhere, sample)} where no training pixel is."
    return text


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


def prediction_text(content: Content) -> str | None:
    """Return how far the measured step is from the predicted one, and what may be the matter; None if not measured."""
    longer = content.speed.slower_than_predicted
    if longer is None:
        return None
    text = (
        f"The measured step is {percent(abs(longer))} {'longer' if longer >= 0 else 'shorter'} than the predicted one."
    )
    if longer > _LONGER:
        text += (
            " The machines were slower than when they were profiled: other work ran on them, or the profile is old. "
            "The chart of computing over time above shows which workers, and when."
        )
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
    commands = "; ".join(
        f"{command} --again" for command in content.commands if command.startswith("landbalance profile ")
    )
    return (
        f"Training was faster than the profile allows: {'; '.join(found)}. Limits and predictions rest on the "
        f"profile, and the machine was slower {when} than in this training (other load?): the two do not "
        f"compare. Measure again while nothing else runs: {commands}, then "
        f"plan and train {again} again."
    )


def _communication(times: StepTimes) -> float | None:
    """Return the median time of a step's exchange, which all workers share; None where nothing was timed."""
    return next((worker.communicate for worker in times.workers.values()), None)


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
    energy = []
    if predicted.epoch_joules is not None:
        told = f"{predicted.epoch_joules / 1e3:.3g} kJ"
        energy = [
            SpeedRow("Energy of an epoch", told, NOT_AVAILABLE, NO_LIMIT, "counted while profiling, without validation")
        ]
    return [
        SpeedRow("Step", duration(predicted.step_seconds), duration(times.median), NO_LIMIT, spread),
        SpeedRow(
            "Communication in a step",
            duration(predicted.communication_seconds),
            duration(_communication(times)),
            NO_LIMIT,
            "estimated: the shortest wait of all workers; what overlaps with computing is not in it",
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
        *energy,
    ]
