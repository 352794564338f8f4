"""The sides of a comparison, each measured in a process of its own.

A side may run under a Python that knows nothing of this project's dependencies, so this needs numpy alone.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent


def measured_by(python: Path, program: str, *words: str) -> Any:
    """Return what ``program --side …words`` prints as JSON in its last line; the process ends where that fails.

    Another environment's Python finds landbalance in the source.
    """
    command = [str(python), program, "--side", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_mib() -> float:
    """Return the most memory that this process has had (getrusage would count its parent's before the start)."""
    return memory_mib("VmHWM")


def memory_mib(field: str) -> float:
    """Return a figure of this process's memory, as named in ``/proc/self/status``, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {field} in /proc/self/status")


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return the quartiles of `values` as the figures `name`.low and `name`.high."""
    low, high = np.quantile(values, [0.25, 0.75])
    return {f"{name}.low": float(low), f"{name}.high": float(high)}
