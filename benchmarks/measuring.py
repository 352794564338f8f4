"""What all benchmarks share: the machine, and the one JSON object that they print."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch


def benchmark_result(name: str, conditions: Mapping[str, Any], figures: Mapping[str, float]) -> dict[str, Any]:
    """Return the object that a benchmark prints."""
    return {
        "benchmark": name,
        "commit": _commit(),
        "machine": {
            "cpu": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": psutil.virtual_memory().total,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        },
        "conditions": dict(conditions),
        "figures": dict(figures),
    }


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"
