"""Stands in for `landbalance.cli` in a test's copy of the project: each command writes the files of its stage, empty.

So the rules run in seconds, and what Snakemake decides to run again can be read off.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from landbalance.cluster import load_cluster
from landbalance.config import Config, load_config
from landbalance.files import write_json
from landbalance.layout import Layout


def main() -> int:
    """Run one command: check that what it is given is there, write its files."""
    if sys.argv[1:] == ["summary"]:
        sys.stdout.write("stub: summary\n")
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("stage")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--cluster", type=Path)
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--scene")
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    config = load_config(options.config)
    sys.stderr.write(f"stub: {options.stage} {' '.join(options.names)}\n")
    if os.environ.get("STUB_FAILS") in (options.stage, f"{options.stage} {options.scene}"):
        sys.stderr.write("error: as the test wants it\n")
        return 1
    if options.cluster is not None and not options.cluster.is_file():
        return 2
    names = [*options.names, options.scene] if options.scene else options.names
    for path in _outputs(options.stage, names, Layout(options.results), config):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Other content each time, as real results have it: Snakemake compares checksums of small files.
        path.write_bytes(os.urandom(16))
    if options.stage == "plan":
        write_json(
            Layout(options.results).plan(options.names[0]),
            _plan(options.cluster, config.experiments[options.names[0]].nodes),
        )
    return 0


def _plan(path: Path, nodes: list[str]) -> dict[str, Any]:
    """Return what the workflow itself reads of a plan."""
    workers = [
        {"node": node.name, "node_index": index, "title": worker.title, "speed": 1.0}
        for node in load_cluster(path).limited_to(nodes).nodes
        for index in range(node.count)
        for worker in node.workers
        for _ in range(worker.count)
    ]
    return {"workers": workers, "other content each time": os.urandom(16).hex()}


def _outputs(stage: str, names: list[str], layout: Layout, config: Config) -> list[Path]:
    match stage, names:
        case "download", [dataset]:
            return [layout.download(dataset) / "manifest.json"]
        case "tile", [dataset]:
            return [layout.tile(dataset) / name for name in ("index.parquet", "statistics.json")]
        case "tile", [dataset, scene]:
            return [layout.tile(dataset) / "scenes" / f"{scene}.json"]
        case "profile", [dataset, model, node]:
            return [layout.profile(dataset, model, node), layout.profile(dataset, model, node).with_suffix(".svg")]
        case "plan", [experiment]:
            return [layout.plan(experiment), layout.plan(experiment).with_suffix(".svg")]
        case "train", [experiment]:
            names = ["model.safetensors", "model.json", "history.parquet", "timing.parquet", "run.json"]
            return [layout.train(experiment) / name for name in names]
        case "evaluate", [experiment]:
            names = ["metrics.json", "confusion.csv", "predictions.parquet"]
            return [layout.evaluate(experiment) / name for name in names]
        case "map", [experiment, scene]:
            return [layout.map_product(experiment, scene, ending) for ending in config.map.endings]
        case "mosaic", [experiment]:
            return [layout.mosaic(experiment), layout.mosaic(experiment).with_suffix(".qml")]
        case "report", [experiment]:
            figures = layout.report(experiment).with_suffix("")
            charts = ("confusion", "calibration", "curves", "workers", "timeline", "shares", "speed")
            return [layout.report(experiment), *(figures / f"{name}.svg" for name in charts), figures / "map.png"]
        case "report", []:
            return [layout.report("index")]
        case "compare", []:
            return [layout.compare() / name for name in ("index.html", "arms.csv", "arms.json", "arms.svg")]
    raise SystemExit(f"no such command: {stage} {names}")
