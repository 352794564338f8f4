"""Energy from the counters of processors and GPUs, of which this machine may have none: files and a module stand in."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from landbalance.profile.energy import Counter, read_counters, watts


def zone(root: Path, name: str, what: str, joules: float) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "name").write_text(f"{what}\n")
    (root / name / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    (root / name / "max_energy_range_uj").write_text("262143000000\n")


@pytest.fixture
def processors(tmp_path: Path) -> Path:
    zone(tmp_path, "intel-rapl:0", "package-0", 100)
    zone(tmp_path, "intel-rapl:0:0", "core", 60)
    zone(tmp_path, "intel-rapl:1", "package-1", 262_142)
    zone(tmp_path, "intel-rapl:2", "psys", 900)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 100)
    return tmp_path


def test_whole_processors_count_once_also_when_a_counter_begins_anew(processors: Path) -> None:
    before = read_counters([], processors)
    assert before == [Counter(100, 262_143), Counter(262_142, 262_143)]
    (processors / "intel-rapl:0" / "energy_uj").write_text("160000000")
    (processors / "intel-rapl:1" / "energy_uj").write_text("39000000")
    assert watts(before, read_counters([], processors), 10) == pytest.approx((60 + 40) / 10)


def test_gpus_are_added(processors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"GPU-a": 5000, "GPU-b": 70_000}
    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        SimpleNamespace(
            NVMLError=RuntimeError,
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByUUID=lambda name: name,
            nvmlDeviceGetTotalEnergyConsumption=used.__getitem__,
        ),
    )
    before = read_counters(["GPU-b"], processors)
    used["GPU-b"] += 2_000_000
    assert watts(before, read_counters(["GPU-b"], processors), 10) == pytest.approx(200)


def refused(*_: object) -> None:
    raise RuntimeError("Not Supported")


@pytest.mark.parametrize("nvml", [None, SimpleNamespace(NVMLError=RuntimeError, nvmlInit=refused)])
def test_a_gpu_that_tells_nothing_makes_the_sum_unknown(
    processors: Path, nvml: SimpleNamespace | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert read_counters(["GPU-a"], processors) is None


def test_without_counters_nothing_is_known(tmp_path: Path, processors: Path) -> None:
    assert read_counters([], tmp_path / "none") is None
    (processors / "intel-rapl:1" / "energy_uj").unlink()
    assert read_counters([], processors) is None
    assert watts(None, None, 1) is None
