"""The demo by `snakemake --profile slurm` on a real Slurm: where its time goes, and whether the plan told the truth.

    python benchmarks/slurm.py [--quick]

starts a cluster of a fast and two slow nodes on this machine (root; Debian's slurmctld, slurmd, slurm-client), runs the
demo in a fresh clone and prints one JSON object. ``--quick`` trains for fewer epochs.

``demo_seconds`` is the time from the command to the last result; ``scheduling_share`` the part of it in which no stage
computed anywhere: Snakemake's starts and polls, Slurm's queue. A stage computes from the first line of its log, for
training the first line from inside its job, to the last. ``train.predicted_over_measured`` is the plan's step time over
the median measured one; ``stage.<name>.seconds`` the time in which jobs of a stage computed.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from landbalance.files import read_json
from measuring import benchmark_result

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "slurm"))
from slurm_cluster import NODES, SlurmCluster
from slurm_demo import SHORTER, fresh_clone, snakemake

_STAMP = re.compile(r"^(\d\d):(\d\d):(\d\d) ", re.MULTILINE)
_STAGES = ("download", "tile", "profile", "plan", "train", "evaluate", "map", "report")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        cluster = SlurmCluster(root / "slurm", NODES)
        (root / "slurm").mkdir()
        try:
            cluster.start()
            clone = fresh_clone(root / "clone")
            began = time.time()
            done = snakemake(clone, "--profile", "slurm", *(SHORTER if options.quick else []))
            seconds = time.time() - began
            if done.returncode:
                sys.exit(done.stdout)
            figures = _figures(clone, began, seconds)
        finally:
            cluster.stop()
    nodes = {node.name: node.percent for node in NODES}
    conditions = {"percent_of_a_core": nodes, "quick": options.quick, "profile": "slurm"}
    print(json.dumps(benchmark_result("slurm", conditions, figures)))


def _figures(clone: Path, began: float, seconds: float) -> dict[str, float]:
    busy = {stage: list(_intervals(clone / "logs" / stage, stage, began)) for stage in _STAGES}
    everything = [interval for intervals in busy.values() for interval in intervals]
    plan, run = (read_json(clone / "results" / path) for path in ("plan/havel.json", "train/havel/run.json"))
    predicted, measured = plan["predicted"]["step_seconds"], run["measured"]["step_seconds"]
    return {
        "demo_seconds": seconds,
        "scheduling_share": 1 - _covered(everything) / seconds,
        "train.predicted_seconds": predicted,
        "train.measured_seconds": measured,
        "train.predicted_over_measured": predicted / measured,
        **{f"stage.{stage}.seconds": _covered(intervals) for stage, intervals in busy.items()},
    }


def _intervals(folder: Path, stage: str, began: float) -> Iterator[tuple[float, float]]:
    """Yield when each job of a stage computed, as seconds since the epoch, from its log."""
    day = datetime.fromtimestamp(began).replace(hour=0, minute=0, second=0, microsecond=0)
    for log in folder.rglob("*.log"):
        text = log.read_text(errors="replace")
        if stage == "train":
            text = text[max(text.find("submitted as job"), 0) :].partition("\n")[2]
        if not (stamp := _STAMP.search(text)):
            continue
        start = day + timedelta(hours=int(stamp[1]), minutes=int(stamp[2]), seconds=int(stamp[3]))
        if start.timestamp() < began - 2:
            start += timedelta(days=1)
        yield start.timestamp(), log.stat().st_mtime


def _covered(intervals: list[tuple[float, float]]) -> float:
    """Return the seconds that lie in any of the intervals."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        total += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return total


if __name__ == "__main__":
    main()
