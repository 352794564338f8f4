"""The energy that a node's processors and GPUs have used, where they count it themselves."""

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_COUNTERS = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Counter:
    """What a counter of energy shows, in joules, and at which value it begins anew."""

    joules: float
    limit: float = math.inf


def gpu_id(device: torch.device) -> str | None:
    """Return what the driver calls a GPU; None for a CPU."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else None


def read_counters(gpus: Sequence[str], root: Path = _COUNTERS) -> list[Counter] | None:
    """Return the counters of all processors of this machine and of some GPUs; None when one of them tells nothing.

    Parameters
    ----------
    gpus : sequence of str
        GPUs by the driver's names for them, see `gpu_id`.
    root : Path
        Where Linux shows the processors' counters.

    Notes
    -----
    Processors tell by RAPL, which Linux often lets only root read; GPUs by NVML (package ``nvidia-ml-py``).
    """
    try:
        counters = [_of_processor(folder) for folder in _processors(root)]
        return counters + _of_gpus(gpus) if counters else None
    except (OSError, ValueError, ImportError):
        return None


def watts(before: list[Counter] | None, after: list[Counter] | None, seconds: float) -> float | None:
    """Return the mean power in watts between two looks at the same counters, `seconds` apart; None without counters."""
    if before is None or after is None or seconds <= 0:
        return None
    used = (
        then.joules - now.joules + (then.limit if then.joules < now.joules else 0.0)
        for now, then in zip(before, after, strict=True)
    )
    return sum(used) / seconds


def _processors(root: Path) -> list[Path]:
    """Return the folders of whole processors; their parts, and the same counters by another way, lie beside them."""
    zones = sorted(root.glob("intel-rapl:*"))  # AMD's are called so too
    return [zone for zone in zones if (zone / "name").read_text().startswith("package")]


def _of_processor(folder: Path) -> Counter:
    now, limit = (int((folder / name).read_text()) for name in ("energy_uj", "max_energy_range_uj"))
    return Counter(now / 1e6, limit / 1e6)


def _of_gpus(gpus: Sequence[str]) -> list[Counter]:
    if not gpus:
        return []
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByUUID(gpu) for gpu in gpus]
        return [Counter(nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3) for handle in handles]
    except nvml.NVMLError as error:
        raise OSError(str(error)) from error
