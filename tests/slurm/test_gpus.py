"""What workers of a node with GPUs get; these GPUs are there for Slurm alone, so the workers look and do no more."""

import json
import sys
from pathlib import Path

import pytest

from landbalance.cluster import load_cluster
from landbalance.cluster.fit import misfits
from landbalance.cluster.inventory import slurm_nodes, slurm_partitions
from landbalance.train.submit import Training, train_on_slurm
from slurm_cluster import SlurmCluster
from slurm_project import Project, node

pytestmark = pytest.mark.slurm

# The command that leads the job, starts the workers of a node, and is a worker: as `landbalance train` is.
PROGRAM = """
import json, os, pathlib, sys
from landbalance.cluster import load_cluster
from landbalance.plans import read_plan
from landbalance.train.allocation import JOB, NODE, Site, lead, start_workers
command, folder = [sys.executable, __file__], pathlib.Path("results/train/e")
if "RANK" in os.environ:
    names = ("SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "SLURM_CPUS_ON_NODE")
    found = {name: os.environ.get(name) for name in names}
    (folder / f"worker-{os.environ['RANK']}.json").write_text(json.dumps(found))
    if os.environ["RANK"] == "0":
        (folder / "model.safetensors").write_text("")
elif NODE in os.environ:
    sys.exit(start_workers(command, pathlib.Path("results/tile/d")))
else:
    site = Site(load_cluster(pathlib.Path("cluster.yaml")), lambda cluster: None, {})
    sys.exit(lead(read_plan(pathlib.Path("results/plan/e.json")), site, folder, command))
"""


def test_workers_of_a_gpu_node(project: Project, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both GPUs are seen by the node's workers, and a CPU worker beside them leaves a core for each."""
    gpu = node("gpu", "fast", gres="gpu:2")
    gpu["workers"] = [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 4}]
    project.describe([gpu, node("old", "slow")], {"gpu": 0.02, "old": 0.02})
    monkeypatch.chdir(project.root)
    cluster = load_cluster(Path("cluster.yaml"))
    assert misfits(cluster, slurm_nodes(), slurm_partitions()) == []
    Path("program.py").write_text(PROGRAM)
    training = Training("e", Path("results/train/e"), [sys.executable, "program.py"], "")
    train_on_slurm(training, project.plan, cluster, attempt=1)
    script = (project.folder / "job.sh").read_text()
    assert "#SBATCH --gres=gpu:2" in script
    found = [json.loads((project.folder / f"worker-{rank}.json").read_text()) for rank in range(4)]
    assert [worker["SLURMD_NODENAME"] for worker in found[:3]] == ["fast1"] * 3
    assert found[3]["SLURMD_NODENAME"].startswith("slow")
    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in found[:3]] == ["0,1"] * 3
    assert {worker["CUDA_DEVICE_ORDER"] for worker in found} == {"PCI_BUS_ID"}
    assert [worker["OMP_NUM_THREADS"] for worker in found] == ["1", "1", "4", "1"]
    assert [worker["SLURM_CPUS_ON_NODE"] for worker in found] == ["6", "6", "6", "1"]


def test_more_gpus_than_there_are(project: Project, slurm: SlurmCluster) -> None:
    gpu = node("gpu", "fast", gres="gpu:3")
    gpu["workers"] = [{"device": "cuda", "count": 3}]
    project.describe([gpu], {"gpu": 0.02})
    cluster = load_cluster(project.root / "cluster.yaml")
    assert misfits(cluster, slurm_nodes(), slurm_partitions()) == [
        "nodes.gpu.slurm.gres: found gpu:3, but such a node holds 2 GPUs."
    ]
