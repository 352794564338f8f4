"""Profiling a node: its workers are started here, or this process is one of them."""

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from landbalance.cluster import Cluster, Node, Worker
from landbalance.config import Config
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.place import place_in_job
from landbalance.errors import UserError
from landbalance.layout import Layout
from landbalance.profiles import Machine, read_profile
from landbalance.tiles import StoreInfo, open_tiles

_log = logging.getLogger(__name__)
_MEASURING_CODE = (
    "profile", "batches", "distributed", "models", "objective", "optimiser", "profiles", "tiles", "weighting",
)  # fmt: skip


def run(
    dataset: str,
    model: str,
    node: str,
    config: Config,
    cluster: Cluster,
    layout: Layout,
    command: Sequence[str],
    again: bool = False,
) -> None:
    """Measure training steps of `model` on the tiles of `dataset`, on all workers of this node at once.

    A profile that is there is kept when nothing it depends on has changed.

    Parameters
    ----------
    node : str
        The kind of node that this machine is, as named in the cluster description.
    command : sequence of str
        The command that starts one worker with the same settings.
    again : bool
        Measure in any case.

    Raises
    ------
    UserError
        When a worker needs a device that is not there, or fails.
    """
    kind = cluster.node(node)
    if place_in_job() is not None:
        from landbalance.profile.measure import measure

        measure(dataset, model, kind, config, layout)
        return
    if not batches(config, dataset, model):
        raise UserError(
            f"no experiment trains model {model} on dataset {dataset}, so there is no batch size to measure for. Name "
            "the two of an experiment."
        )
    path = layout.profile(dataset, model, node)
    if not again and path.is_file() and (measured := _still_valid(path, dataset, model, kind, config, layout)):
        _log.info("%s of %s is kept: nothing that it depends on has changed (--again measures anew)", path, measured)
        return
    workers = expanded(kind)
    _log.info(
        "profile %s on %s: %d workers together: %s", model, node, len(workers), "; ".join(w.title for w in workers)
    )
    run_workers(command, [LocalWorker(worker.title, worker.threads) for worker in workers])


def expanded(node: Node) -> list[Worker]:
    """Return the workers of a node, one entry per process, in the order of their ranks."""
    return [worker for worker in node.workers for _ in range(worker.count)]


def batches(config: Config, dataset: str, model: str) -> list[int]:
    """Return the global batch sizes of the experiments that train `model` on `dataset`, ascending."""
    return sorted(
        {
            config.training[experiment.training].batch_size
            for experiment in config.experiments.values()
            if (experiment.dataset, experiment.model) == (dataset, model)
        }
    )


def dependencies(
    dataset: str, model: str, node: Node, config: Config, info: StoreInfo, machine: Machine
) -> dict[str, str]:
    """Return what timings depend on, as texts by name."""
    return {
        "settings": _text(config.profile.model_dump(mode="json")),
        "model": _text(config.models[model].model_dump(mode="json")),
        "tiles": _text([info.task, len(info.bands), len(info.classes), info.tile_size]),
        "batches": _text(batches(config, dataset, model)),
        "workers": _text([worker.model_dump(mode="json") for worker in node.workers]),
        "machine": _text(machine.model_dump(mode="json")),
        "code": _code(),
    }


def _still_valid(path: Path, dataset: str, model: str, node: Node, config: Config, layout: Layout) -> str | None:
    """Return when the profile in `path` was measured; None when it has to be measured again."""
    from landbalance.profile.machine import this_machine

    try:
        found = read_profile(path)
    except UserError:
        return None
    now = dependencies(dataset, model, node, config, open_tiles(layout.tile(dataset)).info, this_machine())
    if changed := [name for name, value in now.items() if found.depends_on.get(name) != value]:
        _log.info("%s is measured again: changed: %s", path, ", ".join(changed))
        return None
    return found.measured


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _code() -> str:
    """Return a digest of the source files that a step's time depends on."""
    package = Path(__file__).parents[1]
    folders = [package / name for name in _MEASURING_CODE]
    files = [package / f"{folder.name}.py" for folder in folders if not folder.is_dir()]
    files += [path for folder in folders for path in folder.rglob("*.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()
