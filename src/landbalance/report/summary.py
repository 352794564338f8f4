"""The figures that matter, as text for a terminal."""

from landbalance.config import Config
from landbalance.failures import failed_scenes
from landbalance.layout import Layout
from landbalance.report.content import Content, finished, read_content
from landbalance.report.verdict import limit_warning


def summary(config: Config, layout: Layout) -> str:
    """Return where maps and reports lie, how good the models are, and how fast the workers were."""
    lines: list[str] = []
    for name in config.experiments:
        if not finished(name, layout):
            lines += [f"{name}: not run yet", ""]
            continue
        content = read_content(name, config, layout)
        lines += [f"{name} ({content.experiment.arm}, {len(content.history)} epochs)"]
        lines += [f"  {line}" for line in (*_places(content, layout), *_accuracy(content), *_speed(content))]
        lines.append("")
    lines += [f"failed: {failure.what}: {failure.reason}" for failure in failed_scenes(config, layout)]
    lines.append(f"All experiments: {layout.report('index')}")
    return "\n".join(lines)


def _places(content: Content, layout: Layout) -> list[str]:
    maps = [f"map       {layout.map(content.name, scene)}" for scene in content.dataset.scenes]
    return [*maps, f"report    {layout.report(content.name)}"]


def _accuracy(content: Content) -> list[str]:
    metrics, forest = content.metrics, content.metrics.baseline
    shown = [f"{_number(metrics.overall_accuracy)} of the test {content.sample}s right"]
    if forest is not None:
        shown.append(f"random forest on the same split {_number(forest.overall_accuracy)}")
    return [f"accuracy  {'; '.join(shown)}; largest class {_number(metrics.majority_share)}"]


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _speed(content: Content) -> list[str]:
    plan, times = content.plan, content.times
    shares = " + ".join(f"{worker.share} ({worker.title})" for worker in plan.used)
    lines = [f"shares    {shares}"]
    left_out = [f"{worker.title}: {worker.left_out}" for worker in plan.workers if worker.left_out]
    lines += [f"left out  {line}" for line in left_out]
    if times.median is not None:
        lines.append(f"step      {times.median:.3f} s measured, {plan.predicted.step_seconds:.3f} s predicted")
    if content.speed.over_equal is not None:
        lines.append(
            f"speed-up  {content.speed.over_equal:.2f} measured over equal shares ({content.equal.experiment}), "
            f"{plan.predicted.speedup_over_equal:.2f} predicted, limit {plan.predicted.speedup_over_equal_limit:.2f}"
        )
        lines.append(
            f"          {content.speed.over_fastest:.2f} over the fastest worker alone (as profiled), "
            f"{plan.predicted.speedup_over_fastest:.2f} predicted, "
            f"limit {plan.predicted.speedup_over_fastest_limit:.2f}"
        )
    warning = limit_warning(content)
    return [*lines, f"warning   {warning}"] if warning else lines
