"""A site with thousands of workers is planned at once, on a login node without torch."""

import subprocess
import sys

PROGRAM = """
import re, sys, time
import numpy as np
from landbalance.cluster import Cluster
from landbalance.config import parse_config
from landbalance.plan.planning import make_plan
from landbalance.plan.workers import measured_workers
from landbalance.profiles import NodeProfile

random = np.random.default_rng(0)
sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
config = parse_config({
    "datasets": {"eurosat": {
        "task": "classification",
        "sources": [{"path": "data", "licence": "CC0"}],
        "folders": {"path": "data", "bands": ["R", "G", "B"]},
        "classes": [{"name": n, "colour": f"#00000{n}", "values": [n]} for n in "12"],
        "split": {"by": "sample"},
    }},
    "models": {"resnet": {"architecture": "resnet18", "norm": "group"}},
    "training": {"large": {"epochs": 1, "batch_size": 40_000}},
    "experiments": {"demo": {"dataset": "eurosat", "model": "resnet", "training": "large"}},
})
cluster = Cluster.model_validate(
    {"nodes": [{"name": f"n{k}", "count": 125, "workers": [{"device": "cuda", "count": 4}]} for k in range(20)]}
)

def profile(k):
    seconds = [((0.01 + 0.002 * (k + 1) * size) * random.normal(1, 0.02, 28)).tolist() for size in sizes]
    curve = {"title": "cuda", "device": "cuda", "device_name": "test", "count": 4, "emulated": False,
             "batch_sizes": sizes, "seconds": seconds, "largest_batch": 64 + 16 * k}
    allreduce = {"backend": "nccl", "world_size": 4, "gradient_bytes": 4 * 10**7, "collectives_per_step": 1,
                 "seconds": random.normal(0.01, 0.001, 20).tolist(),
                 "latency_seconds": random.normal(1e-4, 1e-5, 20).tolist()}
    return NodeProfile.model_validate({
        "dataset": "eurosat", "model": "resnet", "node": f"n{k}", "measured": "2025-01-01T00:00:00+00:00",
        "machine": {"processor": "test", "cores": 4, "memory_bytes": 1, "python": "3", "torch": "2"},
        "bands": 3, "tile_size": 64, "curves": [curve], "allreduce": allreduce,
    })

profiles = {f"n{k}": profile(k) for k in range(20)}
began = time.process_time()
workers = measured_workers(config, config.experiments["demo"], cluster, profiles)
plan = make_plan("demo", config, workers, 10**6)
text = plan.model_dump_json()
# Not what getrusage says: that begins with the size of the process that started this one.
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
print(time.process_time() - began, peak)
assert len(plan.workers) == 10_000 and sum(worker.share for worker in plan.used) == 40_000
assert plan.predicted.step_seconds_low <= plan.predicted.step_seconds <= plan.predicted.step_seconds_high
assert len(plan.batch_sizes) > 10
assert "torch" not in sys.modules and "matplotlib" not in sys.modules
"""


def test_ten_thousand_workers() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    seconds, memory = map(float, result.stdout.split())
    # Time of this process on a processor, so that a busy machine is no reason to fail.
    assert seconds < 1
    assert memory < 500e6
