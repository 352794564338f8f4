"""What the evaluate stage would leave: figures with intervals, and who was right where."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from landbalance.comparison import packed

HOSTILE = "<script>alert('x')</script>"
CLASSES = [
    {"name": "Forest", "colour": "#1b7837", "values": [1]},
    {"name": HOSTILE, "colour": "#d73027", "values": [2]},
    {"name": "Water $5 & $6", "colour": "#2166ac", "values": [3]},
    {"name": "Glacier", "colour": "#000000", "values": [4]},
]
MEASURES = ("producers_accuracy", "users_accuracy", "f1", "iou")
NOTHING: dict[str, Any] = dict.fromkeys(MEASURES)


def write_predictions(path: Path, unit: str, hits: list[int]) -> None:
    """Write a tile for each two hits, each tile a unit of its own."""
    tiles = len(hits) // 2
    columns = {
        "tile": pa.array(range(tiles), pa.int64()),
        "unit": pa.array(range(tiles), pa.int64()),
        "valid": pa.array([2] * tiles, pa.int64()),
        "hits": pa.array([packed(np.array(hits[2 * at : 2 * at + 2], bool)) for at in range(tiles)], pa.binary()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata({"unit": unit}), path)


def intervals(classes: int) -> dict[str, Any]:
    """Return intervals of the first class and of all together; the others are told by too few blocks."""
    some = {key: [0.65, 0.9] for key in MEASURES}
    return {
        "level": 0.95,
        "unit": "block",
        "units": 31,
        "resamples": 2000,
        "overall_accuracy": [0.712, 0.831],
        "kappa": [-0.2, 0.12],
        "macro": some,
        "weighted": NOTHING,
        "per_class": [{"name": "Forest", "units": 9, **some}, *[{"name": "x", "units": 1, **NOTHING}] * (classes - 1)],
    }


def calibration(samples: list[int]) -> dict[str, Any]:
    """Return bins that are right five points less often than they are sure."""
    width = 1 / len(samples)
    bins = [
        {"low": number * width, "high": (number + 1) * width, "samples": count}
        | {"confidence": (number + 0.5) * width if count else None}
        | {"accuracy": (number + 0.5) * width - 0.05 if count else None}
        for number, count in enumerate(samples)
    ]
    return {"expected_error": 0.05 if sum(samples) else None, "bins": bins}


def metrics() -> dict[str, Any]:
    """Return three classes with a known matrix, and a fourth that occurs nowhere."""
    confusion = [[800, 150, 50, 0], [100, 350, 50, 0], [0, 100, 400, 0], [0, 0, 0, 0]]
    scores = [(0.8, 800 / 900), (0.7, 350 / 600), (0.8, 0.8), (None, None)]
    columns = list(zip(*confusion, strict=True))
    per_class = [
        {"name": item["name"], "producers_accuracy": producers, "users_accuracy": users, "f1": users, "iou": users}
        | {"support": sum(row), "predicted": sum(column)}
        for item, (producers, users), row, column in zip(CLASSES, scores, confusion, columns, strict=True)
    ]
    return {
        "experiment": "valley",
        "split": "test",
        "classes": [item["name"] for item in CLASSES],
        "confusion": confusion,
        "overall_accuracy": 0.775,
        "kappa": -0.0419,
        "majority_share": 0.5,
        "per_class": per_class,
        "macro": {"producers_accuracy": 0.7667, "users_accuracy": 0.7574, "f1": 0.7574, "iou": 0.7574},
        "weighted": {"producers_accuracy": 0.775, "users_accuracy": 0.79, "f1": 0.78, "iou": 0.65},
        "intervals": intervals(len(CLASSES)),
        "calibration": calibration([0, 0, 20, 80, 1900]),
        "distance": {
            "pixel": 10.0,
            "quantiles": {"0": 5.0, "0.05": 6, "0.25": 8, "0.5": 12.5, "0.75": 20, "0.95": 33, "1": 41.0},
            "samples": 2000,
            "elsewhere": 0,
        },
        "random_split": None,
        "baseline": {"name": "random forest", "overall_accuracy": 0.701, "kappa": 0.522}
        | {"confusion": confusion, "train_pixels": 50_000, "seconds": 3.21}
        | {"intervals": {"overall_accuracy": [0.63, 0.77], "kappa": None}, "comparison": difference()},
    }


def difference() -> dict[str, Any]:
    """Return how the network compares with the baseline."""
    return {
        "difference": 0.074,
        "interval": [0.021, 0.118],
        "p_value": 1e-9,
        "p_value_by_unit": 0.034,
        "unit": "block",
        "units": 31,
    }


def patch_metrics() -> dict[str, Any]:
    """Return a test split without any label, and no baseline."""
    return {
        "classes": [item["name"] for item in CLASSES[:2]],
        "confusion": [[0, 0], [0, 0]],
        "overall_accuracy": None,
        "kappa": None,
        "majority_share": None,
        "per_class": [NOTHING | {"name": item["name"], "support": 0, "predicted": 0} for item in CLASSES[:2]],
        "macro": NOTHING,
        "weighted": NOTHING,
        "intervals": {
            "level": 0.95,
            "unit": "tile",
            "units": 0,
            "resamples": 2000,
            "overall_accuracy": None,
            "kappa": None,
            "macro": NOTHING,
            "weighted": NOTHING,
            "per_class": [NOTHING] * 2,
        },
        "calibration": calibration([0, 0]),
        "distance": None,
        "random_split": None,
        "baseline": None,
    }
