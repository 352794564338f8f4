import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from landbalance.config import Config, parse_config
from landbalance.files import read_json, write_json
from landbalance.layout import Layout
from landbalance.report import run_compare
from report.metrics_samples import patch_metrics
from report.report_samples import RAW, Page, write_experiment

# Of two arms on one kind of node with three seeds: balanced all, equal two, unweighted none.
STEPS = {"equal-0": 0.5, "equal-1": 0.6, "balanced-0": 0.2, "balanced-1": 0.22, "balanced-2": 0.24}
ACCURACIES = {"equal-0": 0.7, "equal-1": 0.8, "balanced-0": 0.7, "balanced-1": 0.8, "balanced-2": 0.9}


@pytest.fixture(scope="module")
def config() -> Config:
    grid = {"datasets": ["patches"], "models": ["resnet"], "training": "short", "nodes": ["ratio-4"]}
    return parse_config({**RAW, "experiments": {}, "grids": {"g": {**grid, "seeds": [0, 1, 2]}}})


@pytest.fixture(scope="module")
def layout(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Return results of five of nine experiments, compared."""
    layout = Layout(tmp_path_factory.mktemp("compare") / "results")
    for name, step in STEPS.items():
        experiment, arm = f"patches-resnet-ratio-4-{name}", name.partition("-")[0]
        write_experiment(layout, experiment, arm, (8, 8) if arm == "equal" else (12, 4), step, epochs=3)
        write_json(
            layout.evaluate(experiment) / "metrics.json", patch_metrics() | {"overall_accuracy": ACCURACIES[name]}
        )
        history = pd.read_parquet(layout.train(experiment) / "history.parquet")
        # One seed never comes near the best validation accuracy, which is 0.8.
        history["validation_accuracy"] = [0.5, 0.6, 0.7] if name == "equal-1" else [0.5, 0.75, 0.8]
        history.to_parquet(layout.train(experiment) / "history.parquet")
    run_compare(config, layout)
    return layout


def cells(layout: Layout) -> dict[str, dict]:
    return {cell["arm"]: cell for cell in read_json(layout.compare() / "arms.json")["cells"]}


def test_means_and_deviations_over_seeds(layout: Layout) -> None:
    balanced = cells(layout)["balanced"]
    assert balanced["accuracy"] == pytest.approx(0.8)
    assert balanced["accuracy_sd"] == pytest.approx(np.std([0.7, 0.8, 0.9], ddof=1))
    assert balanced["samples_per_second"] == pytest.approx(np.mean([16 / 0.2, 16 / 0.22, 16 / 0.24]))
    assert (balanced["shares"], balanced["emulated"]) == ("12 + 4 + 0", True)


def test_speed_ups_are_measured_against_the_row_with_equal_shares(layout: Layout) -> None:
    found = cells(layout)
    assert found["balanced"]["speedup_over_equal"] == pytest.approx(0.55 / 0.22)
    assert found["equal"]["speedup_over_equal"] == 1
    assert found["balanced"]["speedup_over_equal_limit"] == 2.0
    assert found["balanced"]["speedup_over_fastest"] == pytest.approx(0.36 / 0.22)  # the plan's 0.36 s alone
    assert found["balanced"]["speedup_over_fastest_limit"] == pytest.approx(4 / 3)
    assert found["balanced"]["fraction_of_total_speed"] == pytest.approx(0.95 * 0.28 / 0.22)  # of the plan's Σs


def test_all_runs_are_timed_to_the_same_accuracy(layout: Layout) -> None:
    """Nine tenths of 0.8 are reached at the end of the second epoch, after 8.2 s; by one of two equal runs never."""
    found = cells(layout)
    assert [found[arm]["level"] for arm in ("equal", "balanced")] == [pytest.approx(0.72)] * 2
    assert [found[arm]["reached"] for arm in ("equal", "balanced")] == [1, 3]
    assert [found[arm]["seconds_to_level"] for arm in ("equal", "balanced")] == [pytest.approx(8.2)] * 2


def test_without_validation_all_but_the_time_to_an_accuracy_is_compared(config: Config, tmp_path: Path) -> None:
    layout, experiment = Layout(tmp_path / "results"), "patches-resnet-ratio-4-equal-0"
    write_experiment(layout, experiment, "equal", (8, 8), 0.5, epochs=2)
    write_json(layout.evaluate(experiment) / "metrics.json", patch_metrics() | {"overall_accuracy": 0.7})
    history = pd.read_parquet(layout.train(experiment) / "history.parquet")
    history["validation_accuracy"] = np.nan
    history.to_parquet(layout.train(experiment) / "history.parquet")
    run_compare(config, layout)
    equal = cells(layout)["equal"]
    assert (equal["accuracy"], equal["level"], equal["seconds_to_level"]) == (0.7, None, None)
    said = Page((layout.compare() / "index.html").read_text(encoding="utf-8")).said("")
    assert "Time to an accuracy" in said
    assert "reached by" not in said


def test_cells_not_run_are_shown_as_missing(layout: Layout) -> None:
    unweighted = cells(layout)["unweighted"]
    assert unweighted["missing"] == [f"patches-resnet-ratio-4-unweighted-{seed}" for seed in range(3)]
    assert unweighted["accuracy"] is None
    said = Page((layout.compare() / "index.html").read_text(encoding="utf-8")).said("")
    assert "Not complete: 4 experiments not run yet (patches-resnet-ratio-4-equal-2, patches" in said
    assert "ratio-4 unweighted 0 of 3 not run yet" in said
    assert "ratio-4 emulated balanced 3 of 3 12 + 4 + 0 cpu, 1 thread + cpu, 1 thread, emulated 3× slower + " in said


def test_figures_above_their_limits_are_marked(layout: Layout) -> None:
    """Here S is 2.50 with a limit of 2.00, and G 1.64 with a limit of 1.33."""
    said = Page((layout.compare() / "index.html").read_text(encoding="utf-8")).said("")
    assert "2.50× slow profile? limit 2.00× 1.64× slow profile? limit 1.33×" in said


def test_the_table_is_one_line_a_cell(layout: Layout) -> None:
    with (layout.compare() / "arms.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["runs"]) for row in rows] == [("equal", "2"), ("unweighted", "0"), ("balanced", "3")]
    assert rows[1]["accuracy"] == ""
    assert float(rows[2]["accuracy"]) == pytest.approx(0.8)


def test_the_picture_names_arms_and_nodes(layout: Layout) -> None:
    html = (layout.compare() / "index.html").read_text(encoding="utf-8")
    assert "patches, resnet, ratio-4, balanced: accuracy 80.0" in html
    assert (layout.compare() / "arms.svg").read_bytes().startswith(b"<?xml")


def test_nothing_run_yet(config: Config, tmp_path: Path) -> None:
    run_compare(config, Layout(tmp_path))
    said = Page((tmp_path / "compare" / "index.html").read_text(encoding="utf-8")).said("")
    assert "9 experiments not run yet" in said
