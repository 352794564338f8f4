"""Training on unequal shares is training in one process: the proof, on real workers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "exactness.py"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures():
    run = subprocess.run([sys.executable, str(BENCHMARK), "--quick"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["figures"]


def cases(figures, dtype):
    return {
        name: value
        for name, value in figures.items()
        if name.startswith(dtype) and not name.endswith(("unweighted", "by_samples")) and "rounding" not in name
    }


def test_in_float64_every_case_equals_one_process(figures):
    found = cases(figures, "float64")
    assert len(found) >= 12
    assert {name: value for name, value in found.items() if not value <= 1e-10} == {}


def test_in_float32_only_rounding_is_left(figures):
    parameters = {k: v for k, v in cases(figures, "float32").items() if k != "float32.running_statistics"}
    assert {name: value for name, value in parameters.items() if not value <= 1e-4} == {}


def test_a_plain_mean_of_unequal_shares_differs(figures):
    assert figures["float64.unweighted"] > 1e-2
    assert figures["float32.unweighted"] > 1e-2
