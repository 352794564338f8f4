"""What the machine and its devices are called, and what else decides how fast they are."""

import platform
from importlib.metadata import version
from pathlib import Path

import psutil
import torch

from landbalance.distributed.device import processor
from landbalance.profiles import Machine

_POLICY = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_DRIVER = Path("/proc/driver/nvidia/version")


def this_machine() -> Machine:
    """Return the facts of this machine that a step's time depends on."""
    return Machine(
        processor=processor(),
        cores=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        torch=torch.__version__,
        driver=driver(),
        clock_policy=_first_line(_POLICY),
        libraries=libraries(),
    )


def driver() -> str | None:
    """Return the version line of the GPU driver; None where there is none."""
    return _first_line(_DRIVER)


def libraries() -> dict[str, str]:
    """Return the versions of the libraries that compute."""
    found = {name: version(name) for name in ("torch", "torchvision", "segmentation-models-pytorch", "numpy")}
    found["instructions"] = torch.backends.cpu.get_cpu_capability()
    if torch.cuda.is_available():
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(cudnn)}
    return found


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").splitlines()[0].strip() or None
    except (OSError, IndexError):
        return None
