from landbalance.report import run, run_index
from report.report_samples import Page, Results, write_experiment


def overview_of(results: Results) -> Page:
    run_index(results.config, results.layout)
    return Page(results.html("index"))


def test_all_experiments_are_listed_by_group_and_arm(results: Results) -> None:
    run("valley", results.config, results.layout)
    page = overview_of(results)
    said = page.said("")
    places = [
        said.index(f"{name} ") for name in ("patches emulated", "valley-equal", "valley-later", "valley emulated")
    ]
    assert places == sorted(places)
    assert "Dataset patches, model resnet, batch of 16" in said
    assert "Dataset valley, model unet, batch of 16" in said
    assert "valley-later unweighted 3 fewer not run yet" in said


def test_only_written_reports_are_linked(results: Results) -> None:
    run("valley", results.config, results.layout)
    page = overview_of(results)
    assert [values["href"] for tag, values in page.tags if tag == "a"] == ["valley.html"]


def test_arms_stand_side_by_side_with_speed_ups_and_limits(results: Results) -> None:
    said = overview_of(results).said("")
    assert "equal 3 fewer 77.5 % −0.042 70.1 % 3 min 12 s 540 ms predicted 540 ms reference limit 2.00×" in said
    assert (
        "balanced 12 77.5 % −0.042 70.1 % 3 min 12 s 300 ms predicted 280 ms "
        "1.80× predicted 1.93×, limit 2.00× 1.20× predicted 1.29×, limit 1.33× 88.7 % predicted 95.0 %"
    ) in said
    assert "emulated a worker that is made slower than it is took part" in said
    assert "less than half the epochs of the longest run" in said


def test_undefined_figures_are_not_available(results: Results) -> None:
    assert "balanced 3 n/a n/a n/a 3 min 12 s 300 ms predicted 280 ms n/a predicted 1.93×" in overview_of(results).said(
        ""
    )


def test_figures_above_their_limits_are_explained(results: Results) -> None:
    assert "slow profile?" not in overview_of(results).said("")
    write_experiment(results.layout, "valley", "balanced", shares=(12, 4), step=0.20, epochs=12)
    said = overview_of(results).said("")
    assert said.count("slow profile?") == 1
    assert "2.70× predicted 1.93×, limit 2.00×" in said
    assert "valley: Training was faster than the profile allows" in said


def test_overview_needs_nothing_from_outside(results: Results) -> None:
    page = overview_of(results)
    assert not any(key in values for _, values in page.tags for key in ("src", "srcset"))
    assert "http" not in results.html("index").replace("http-equiv", "")
