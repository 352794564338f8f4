"""A folder with a configuration, tiles and a plan: all that `landbalance train` needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from landbalance.files import read_json, write_json
from landbalance.plans import Plan, PlannedWorker, Prediction
from stores import write_store

PREDICTION = Prediction(
    step_seconds=1, communication_seconds=0, epoch_seconds=1, equal_step_seconds=1, fastest_alone_step_seconds=1,
    speedup_over_equal=1, speedup_over_equal_limit=1, speedup_over_fastest=1, speedup_over_fastest_limit=1,
    fraction_of_total_speed=1,
)  # fmt: skip


def write_project(
    folder: Path, *, model: dict[str, Any] | None = None, training: dict[str, Any] | None = None, **tiles: Any
) -> Path:
    """Write an experiment `e` on tiles of 16 × 16 pixels; return the folder.

    Parameters
    ----------
    model, training : dict
        Settings besides (or instead of) those of a small U-Net, trained for two epochs on batches of 8.
    **tiles
        How many tiles there are, see `write_store`.
    """
    store = write_store(folder / "results" / "tile" / "d", **{"train": 21, "size": 16, **tiles})
    info = read_json(store / "statistics.json")
    config = {
        "datasets": {
            "d": {
                "task": "segmentation",
                "sources": [{"path": "nowhere", "licence": "none"}],
                "scenes": {"s": {"bands": {band: f"{band}.tif" for band in info["bands"]}, "offset": -1000.0}},
                "labels": {"path": "l.gpkg", "field": "f"},
                "classes": [{key: item[key] for key in ("name", "colour", "values")} for item in info["classes"]],
                "tiles": {"size": 16},
                "split": {"by": "block", "size": 32},
            }
        },
        "models": {"m": {"architecture": "unet", "depth": 3, "width": 8, "spectral": 8, **(model or {})}},
        "training": {"t": {"epochs": 2, "batch_size": 8, "timeout_seconds": 60, **(training or {})}},
        "experiments": {"e": {"dataset": "d", "model": "m", "training": "t"}},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def write_plan(folder: Path, shares: Sequence[int]) -> None:
    """Write a plan with these shares for the experiment of the project in `folder`."""
    workers = [
        PlannedWorker(
            rank=rank, node="here", node_index=0, local_index=rank, title=f"number {rank}", device="cpu", threads=1,
            slowdown=1.0, emulated=False, share=share, micro_batch=None, speed=1, predicted_seconds=1, left_out=None,
        )
        for rank, share in enumerate(shares)
    ]  # fmt: skip
    plan = Plan(experiment="e", arm="balanced", batch_size=sum(shares), workers=workers, predicted=PREDICTION)
    write_json(folder / "results" / "plan" / "e.json", plan.model_dump(mode="json"))
