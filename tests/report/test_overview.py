import re

from landbalance.report import run_index
from report.metrics_samples import write_predictions
from report.report_samples import Page, Results, write_experiment


def overview_of(results: Results) -> Page:
    """Return the overview, which is written unless it is there."""
    if not results.layout.report("index").exists():
        run_index(results.config, results.layout)
    return Page(results.html("index"))


def test_all_experiments_are_listed_by_group_and_arm(made: Results) -> None:
    page = overview_of(made)
    said = page.said("")
    places = [
        said.index(f"{name} ") for name in ("patches emulated", "valley-equal", "valley-later", "valley emulated")
    ]
    assert places == sorted(places)
    assert "Dataset patches, model resnet, batch of 16" in said
    assert "Dataset valley, model unet, batch of 16" in said
    assert "valley-later unweighted 3 fewer not run yet" in said


def test_only_written_reports_are_linked(made: Results) -> None:
    page = overview_of(made)
    assert [values["href"] for tag, values in page.tags if tag == "a"] == ["patches.html", "valley.html"]


def test_arms_stand_side_by_side_with_speed_ups_and_limits(made: Results) -> None:
    said = overview_of(made).said("")
    assert (
        "equal 3 fewer 77.5 % 71.2–83.1 % −0.042 −0.200 to 0.120 70.1 % 3 min 12 s "
        "540 ms predicted 540 ms reference limit 2.00×"
    ) in said
    assert (
        "balanced 12 77.5 % 71.2–83.1 % −0.042 −0.200 to 0.120 70.1 % 3 min 12 s 300 ms predicted 280 ms "
        "1.80× predicted 1.93× limit 2.00× 1.20× predicted 1.29× limit 1.33× 88.7 % predicted 95.0 %"
    ) in said
    assert "emulated a worker that is made slower than it is took part" in said
    assert "less than half the epochs of the longest run" in said


def test_undefined_figures_are_not_available(made: Results) -> None:
    assert "balanced 3 n/a n/a n/a 3 min 12 s 300 ms predicted 280 ms n/a predicted 1.93×" in overview_of(made).said("")


def test_figures_above_their_limits_are_explained(made: Results, results: Results) -> None:
    assert "slow profile?" not in overview_of(made).said("")
    write_experiment(results.layout, "valley", "balanced", shares=(12, 4), step=0.20, epochs=12)
    said = overview_of(results).said("")
    assert said.count("slow profile?") == 1
    assert "2.70× predicted 1.93× limit 2.00×" in said
    assert "valley: Training was faster than the profile allows" in said


def test_overview_needs_nothing_from_outside(made: Results) -> None:
    page = overview_of(made)
    for _, values in page.tags:
        for key in ("src", "srcset"):
            assert (values.get(key) or "data:").startswith("data:")
    assert not re.search("https?://", re.sub(r"data:[a-z/+]+;base64,[A-Za-z0-9+/=]+", "", made.html("index")))


def test_experiments_on_the_same_samples_are_compared(made: Results) -> None:
    """Of six test samples both have four right, and the balanced run one more."""
    said = overview_of(made).said("")
    assert "valley-equal less valley: −16.7 percentage points (interval" in said
    assert "p = 1 by block (3 blocks, randomisation test); p = 1 by pixel (McNemar's test, far too small" in said


def test_experiments_on_other_samples_are_not_compared(results: Results) -> None:
    write_predictions(results.layout.evaluate("valley") / "predictions.parquet", "block", [1, 0, 1, 1])
    assert "valley-equal less valley: not judged on the same test samples." in overview_of(results).said("")


def test_rows_can_be_sorted_by_their_values(made: Results) -> None:
    page = overview_of(made)
    heads = [values for tag, values in page.tags if tag == "th" and "data-sort" in values]
    values = [values["data-value"] for tag, values in page.tags if tag in ("td", "th") and "data-value" in values]
    assert len(heads) == 22
    assert {"0.775", "0.3", "0.54", "valley-equal", "balanced"} <= set(values)
