"""What each part of the EuroSAT recipe gives and costs: the models of configs/ablation.yaml on the validation split.

    snakemake --profile local --configfile configs/ablation.yaml --until train
    python benchmarks/ablation.py [--config configs/ablation.yaml] [--results results] [--table]

prints one JSON object, with `--table` the rows of docs/eurosat.md instead. Experiments that differ by their seed alone
are one variant, which has the name of the first of them; the first variant is the recipe. `<variant>.accuracy` is the
mean over seeds of the share of validation images that are right, each predicted as it is; `.accuracy_of_8` that of the
mean over eight orientations; `.gain` by how much (of 1) it is above the recipe; `.seconds` the time of training, its
validations included, and `.cost` that time over the recipe's. `.accuracy.sd` is there for several seeds. The test split
is not read. What has not been trained yet is left out.
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from landbalance.config import Config, load_config
from landbalance.files import read_json
from landbalance.layout import Layout
from landbalance.prediction import open_predictor
from landbalance.tiles import open_tiles
from measuring import benchmark_result

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 512


@dataclass(frozen=True)
class Run:
    """What a training gave: accuracy of images as they are, of the mean over eight orientations, and its seconds."""

    accuracy: float
    accuracy_of_8: float
    seconds: float


def run_of(name: str, config: Config, layout: Layout) -> Run:
    """Return what the training of an experiment gave."""
    tiles = open_tiles(layout.tile(config.experiments[name].dataset))
    ids = tiles.ids("validation")
    right = []
    for orientations in (1, 8):
        predictor = open_predictor(layout.train(name), orientations)
        parts = [ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE)]
        found = [predictor.classes(tiles.images(part)) == tiles.labels(part) for part in parts]
        right.append(float(np.concatenate(found).mean()))
    return Run(right[0], right[1], float(read_json(layout.train(name) / "run.json")["seconds"]))


def variants(config: Config) -> dict[str, list[str]]:
    """Return the experiments of each variant, by the name of the first."""
    found: dict[str, list[str]] = {}
    for name, experiment in config.experiments.items():
        training = config.training[experiment.training].model_dump(exclude={"seed"})
        alike = json.dumps([experiment.model_dump(exclude={"training"}), training])
        found.setdefault(alike, []).append(name)
    return {names[0]: names for names in found.values()}


def figures_of(runs: dict[str, list[Run]]) -> dict[str, float]:
    """Return the figures of each variant; the first one is the recipe."""
    means = {
        name: Run(*(statistics.mean(values) for values in zip(*(vars(run).values() for run in of_seeds), strict=True)))
        for name, of_seeds in runs.items()
    }
    recipe = next(iter(means.values()))
    figures: dict[str, float] = {}
    for name, mean in means.items():
        figures[f"{name}.accuracy"] = mean.accuracy
        if len(runs[name]) > 1:
            figures[f"{name}.accuracy.sd"] = statistics.stdev(run.accuracy for run in runs[name])
        figures[f"{name}.accuracy_of_8"] = mean.accuracy_of_8
        figures[f"{name}.gain"] = mean.accuracy - recipe.accuracy
        figures[f"{name}.seconds"] = mean.seconds
        figures[f"{name}.cost"] = mean.seconds / recipe.seconds
    return figures


def table(figures: dict[str, float], runs: dict[str, list[Run]]) -> str:
    """Return a Markdown table of the variants."""
    rows = ["| variant | seeds | validation accuracy, % | in 8 orientations, % | against the recipe | time |"]
    rows.append("|---|---|---|---|---|---|")
    for name, of_seeds in runs.items():
        spread = figures.get(f"{name}.accuracy.sd")
        accuracy = f"{100 * figures[f'{name}.accuracy']:.2f}" + (f" ± {100 * spread:.2f}" if spread is not None else "")
        rows.append(
            f"| {name} | {len(of_seeds)} | {accuracy} | {100 * figures[f'{name}.accuracy_of_8']:.2f} "
            f"| {100 * figures[f'{name}.gain']:+.2f} | {figures[f'{name}.cost']:.2f} × |"
        )
    return "\n".join(rows)


def main() -> None:
    """Judge the models that are there, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "ablation.yaml")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--table", action="store_true", help="print a Markdown table instead")
    options = parser.parse_args()
    config, layout = load_config(options.config), Layout(options.results)
    done = {
        name: [each for each in names if (layout.train(each) / "run.json").is_file()]
        for name, names in variants(config).items()
    }
    if not next(iter(done.values())):
        sys.exit(f"{options.results}: the recipe of {options.config} is not trained. Run Snakemake with --until train.")
    runs = {name: [run_of(each, config, layout) for each in names] for name, names in done.items() if names}
    figures = figures_of(runs)
    if options.table:
        print(table(figures, runs))
        return
    conditions = {"config": options.config.name, "seeds": {name: len(of_seeds) for name, of_seeds in runs.items()}}
    print(json.dumps(benchmark_result("ablation", conditions, figures), indent=2))


if __name__ == "__main__":
    main()
