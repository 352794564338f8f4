"""What other nodes or another global batch size would give, from profiles alone; nothing is written."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from landbalance.cluster import Cluster, load_cluster
from landbalance.config import Config
from landbalance.errors import UserError
from landbalance.plan.planning import make_plan
from landbalance.plan.summary import aligned, shown_seconds
from landbalance.plan.workers import measured_workers
from landbalance.plans import Plan
from landbalance.profiles import NodeProfile

_CHANGE = re.compile(r"(?P<node>[^=]+)=(?P<more>\+?)(?P<count>\d+)")
_COLUMNS = ("", "nodes", "workers", "batch", "step", "95 % interval", "samples/s", "speed", "S", "G", "of Σs", "epoch")


@dataclass(frozen=True)
class Scenario:
    """A platform with a global batch size; `batch_size` None: that of the experiment."""

    cluster: Cluster
    batch_size: int | None = None


def imagined_cluster(change: str, cluster: Cluster) -> Cluster:
    """Return `cluster` with other counts of nodes, or the one in another file.

    Parameters
    ----------
    change : str
        ``gpu=4`` (four nodes of kind gpu), ``gpu=+2`` (two more), ``gpu=+2,cpu=0`` (two more of one kind, none of
        another), or the path of a YAML file that describes a cluster.
    cluster : Cluster
        The cluster that is there.

    Raises
    ------
    UserError
        When the change is none of these, or names a kind of node that is not described.
    """
    if change.endswith((".yaml", ".yml")):
        return load_cluster(Path(change))
    counts = {node.name: node.count for node in cluster.nodes}
    for part in change.split(","):
        match = _CHANGE.fullmatch(part.strip())
        if match is None or match["node"] not in counts:
            raise UserError(
                f"--what-if: found {change!r}; allowed are counts of nodes, e.g. {cluster.nodes[0].name}=4 (four of "
                f"them) or {cluster.nodes[0].name}=+2 (two more), several with commas between, for the kinds "
                f"{', '.join(counts)}; or a YAML file that describes a cluster."
            )
        counts[match["node"]] = int(match["count"]) + (counts[match["node"]] if match["more"] else 0)
    kept = [node.model_copy(update={"count": counts[node.name]}) for node in cluster.nodes if counts[node.name]]
    if not kept:
        raise UserError(f"--what-if: {change!r} leaves no node to train on.")
    return cluster.model_copy(update={"nodes": kept})


def what_if(
    name: str,
    config: Config,
    scenarios: Sequence[Scenario],
    profile_of: Callable[[str], NodeProfile],
    train_samples: int | None,
) -> str:
    """Return a table of the plans of experiment `name` on each of `scenarios`, the first being what is there.

    Parameters
    ----------
    name : str
        A name under ``experiments``.
    config : Config
        What is computed.
    scenarios : sequence of Scenario
        What to compare; the first is the measure of the others.
    profile_of : callable
        Gives the profile of a kind of node by its name.
    train_samples : int or None
        Tiles of the train split; None when there are no tiles yet, then no epoch is predicted.

    Raises
    ------
    UserError
        When there is no plan for the first scenario, or a profile is missing or does not fit.
    """
    plans: list[Plan | UserError] = []
    for scenario in scenarios:
        profiles = {node.name: profile_of(node.name) for node in scenario.cluster.nodes}
        try:
            plans.append(_plan(name, config, scenario, profiles, train_samples))
        except UserError as error:
            if not plans:
                raise
            plans.append(error)
    present = plans[0]
    assert isinstance(present, Plan)
    now = _speed(present)
    rows: list[tuple[str, ...]] = [_COLUMNS]
    remarks: list[str] = []
    for number, (scenario, plan) in enumerate(zip(scenarios, plans, strict=True)):
        title = str(number) if number else "now"
        nodes = " + ".join(f"{node.count} × {node.name}" for node in scenario.cluster.nodes)
        if isinstance(plan, UserError):
            rows.append((title, nodes, "not possible", *[""] * (len(_COLUMNS) - 3)))
            remarks.append(f"{title}: {plan}")
            continue
        rows.append((title, nodes, *_cells(plan, now, train_samples is not None)))
        remarks += [f"{title}: {note}" for note in plan.notes]
    return "\n".join([*aligned(rows, left={0, 1}), *remarks])


def _plan(
    name: str, config: Config, scenario: Scenario, profiles: dict[str, NodeProfile], train_samples: int | None
) -> Plan:
    experiment = config.experiments[name]
    training = config.training[experiment.training]
    if scenario.batch_size is not None:
        training = training.model_copy(update={"batch_size": scenario.batch_size})
        config = config.model_copy(update={"training": config.training | {experiment.training: training}})
    workers = measured_workers(config, experiment, scenario.cluster, profiles)
    return make_plan(name, config, workers, train_samples or training.batch_size)


def _speed(plan: Plan) -> float:
    return plan.batch_size / plan.predicted.step_seconds


def _cells(plan: Plan, now: float, epoch: bool) -> tuple[str, ...]:
    predicted = plan.predicted
    low, high = predicted.step_seconds_low, predicted.step_seconds_high
    return (
        f"{len(plan.used)} of {len(plan.workers)}",
        str(plan.batch_size),
        shown_seconds(predicted.step_seconds),
        "–" if low is None or high is None else f"{shown_seconds(low)} – {shown_seconds(high)}",
        f"{_speed(plan):.4g}",
        f"{_speed(plan) / now:.2f} ×",
        f"{predicted.speedup_over_equal:.2f} (limit {predicted.speedup_over_equal_limit:.2f})",
        f"{predicted.speedup_over_fastest:.2f} (limit {predicted.speedup_over_fastest_limit:.2f})",
        f"{100 * predicted.fraction_of_total_speed:.1f} %",
        shown_seconds(predicted.epoch_seconds) if epoch else "–",
    )
