import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from landbalance.config import parse_config
from landbalance.errors import UserError
from landbalance.failures import noted
from landbalance.files import write_json
from landbalance.layout import Layout
from landbalance.report import Inputs, run, run_index
from landbalance.report.content import Content, read_content
from landbalance.report.reproduce import own_config
from report.report_samples import CLASSES, HOSTILE, Changed, Page, Results, write_experiment

SECTIONS = ["summary", "map", "accuracy", "training", "workers", "speed", "data", "settings", "reproduce", "cite"]


def page_of(results: Results, name: str) -> Page:
    """Return the page of an experiment, which is written unless it is there."""
    if not results.layout.report(name).exists():
        run(name, results.config, results.layout)
    return Page(results.html(name))


def test_page_has_every_section_and_opens_with_the_summary(made: Results) -> None:
    page = page_of(made, "valley")
    assert [values["id"] for tag, values in page.tags if tag == "section"] == SECTIONS
    targets = {values["href"] for tag, values in page.tags if tag == "a"}
    assert targets >= {f"#{section}" for section in SECTIONS[1:]}
    ids = [values["id"] for _, values in page.tags if "id" in values]
    assert len(ids) == len(set(ids))


def test_page_needs_nothing_from_outside(made: Results) -> None:
    page = page_of(made, "valley")
    for tag, values in page.tags:
        for key in ("src", "srcset", "poster", "data", "action"):
            assert values.get(key, "data:").startswith("data:"), (tag, key)
        assert tag not in ("link", "iframe", "object", "embed", "base")
        if "href" in values:
            assert tag == "a"
    html = made.html("valley")
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"\bhttps?://", re.sub(r"data:[a-z/+]+;base64,[A-Za-z0-9+/=]+", "", html))


def test_what_comes_from_data_is_escaped(made: Results) -> None:
    page = page_of(made, "valley")
    html = made.html("valley")
    assert HOSTILE not in html
    assert HOSTILE in page.said("accuracy")
    assert HOSTILE in page.said("map")
    assert HOSTILE in page.said("settings")
    assert "Example & Sons" in page.said("data")
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 2
    assert "alert" not in "".join(page.scripts)


def test_only_its_own_script_may_run(made: Results) -> None:
    import base64
    import hashlib

    page = page_of(made, "valley")
    (policy,) = [
        values["content"] for tag, values in page.tags if values.get("http-equiv") == "Content-Security-Policy"
    ]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.scripts]
    assert policy.endswith("script-src " + " ".join(f"'sha256-{digest}'" for digest in digests))
    assert "default-src 'none'" in policy


def test_summary_sets_the_accuracy_beside_the_baseline(made: Results) -> None:
    said = page_of(made, "valley").said("summary")
    assert "77.5 % of the test pixels get their right class" in said
    assert "7.4 percentage points above a random forest on the same split" in said
    assert "27.5 percentage points above what always naming the commonest class would get" in said
    for part in (
        "Overall accuracy 77.5 % 71.2–83.1 % 95 % interval by block; on 2,000 test pixels",
        "Kappa −0.042 −0.200 to 0.120",
        "forest 70.1 % 63.0–77.0 % kappa 0.522",
    ):
        assert part in said
    for part in ("Majority share 50.0 %", "Training time 3 min 12 s 12 epochs", "1.80×"):
        assert part in said
    assert "2 workers on 1 node: cpu, 1 thread; cpu, 1 thread, emulated 3× slower" in said


def test_map_section_has_legend_areas_and_both_pictures(made: Results) -> None:
    page = page_of(made, "valley")
    said = page.said("map")
    assert "valley-2020 2020-06-01" in said
    assert "120 × 90 pixels of 10 m, EPSG:32633" in said
    assert "No class on 10.0 % of the pixels" in said
    assert "Forest 46.6 ha 47.9 %" in said
    assert "Water $5 & $6 4.0 ha 4.1 %" in said
    assert "Glacier 0 ha 0.0 %" in said
    assert "Mapped in all 97.2 ha 100.0 %" in said
    assert "bands B04, B03, B02 as red, green and blue" in said
    pictures = [values for tag, values in page.tags if tag == "img" and values.get("width") == "60"]
    assert [values["height"] for values in pictures] == ["45", "45", "45"]
    colours = {values["style"] for tag, values in page.tags if values.get("class") == "swatch"}
    assert {f"background:{item['colour']}" for item in CLASSES} <= colours


def test_every_picture_says_what_it_shows(made: Results) -> None:
    page = page_of(made, "valley")
    assert all(values.get("alt") for tag, values in page.tags if tag == "img")
    figures = sum(tag == "figure" for tag, _ in page.tags)
    assert figures > 8


def test_accuracies_and_confusion(made: Results) -> None:
    said = page_of(made, "valley").said("accuracy")
    assert "Forest 80.0 % 65.0–90.0 % 88.9 % 65.0–90.0 % 88.9 % 65.0–90.0 % 88.9 % 65.0–90.0 % 1,000 900" in said
    assert "Glacier n/a n/a n/a n/a 0 0" in said
    assert (
        "Mean of the classes 76.7 % 65.0–90.0 % 75.7 % 65.0–90.0 % 75.7 % 65.0–90.0 % 75.7 % 65.0–90.0 % 2,000" in said
    )
    assert "Forest 800 150 50 0 1,000" in said.replace("  ", " ")
    assert re.search(r"Total 900 ?600 ?500 ?0 ?2,000", said)
    assert "Glacier occurs neither in the test split nor in its prediction." in said
    assert "Random forest on 50,000 train pixels" in said


@pytest.mark.parametrize(
    ("support", "predicted", "note"),
    [
        (0, 5, "Glacier is predicted but has no test pixel: its producer's accuracy is not defined."),
        (5, 0, "Glacier is in the test split but never predicted: its user's accuracy is not defined."),
    ],
)
def test_one_sided_classes_are_warned_of(
    results: Results, changed: Changed, support: int, predicted: int, note: str
) -> None:
    path = results.layout.evaluate("valley") / "metrics.json"
    changed(path, lambda value: value["per_class"][3].update(support=support, predicted=predicted))
    assert note in page_of(results, "valley").said("accuracy")


def test_worse_than_the_baseline_is_said_too(results: Results, changed: Changed) -> None:
    path = results.layout.evaluate("valley") / "metrics.json"
    changed(path, lambda value: value["baseline"].update(overall_accuracy=0.8))
    assert "2.5 percentage points below a random forest" in page_of(results, "valley").said("summary")


def test_training_says_when_and_how_far(made: Results) -> None:
    page = page_of(made, "valley")
    said = page.said("training")
    assert "Over 12 epochs the training loss goes from 2.000 to 0.167" in said
    assert "validation accuracy ends at 94.2 %" in said
    assert "Started 2025-01-02 04:00 UTC" in said
    assert "resumed 1 time" in said
    assert "Epochs 12 of 12" in said


def test_shares_that_moved_and_the_notes_of_the_plan_are_told(results: Results, changed: Changed) -> None:
    moved = {"step": 99, "shares": [14, 2], "reason": "worker 1 <slow> computes 4 samples in 0.9 s"}
    changed(results.layout.train("valley") / "run.json", lambda value: value.update(changes=[moved]))
    changed(results.layout.plan("valley"), lambda value: value.update(notes=["the profiles are noisy"]))
    page = page_of(results, "valley")
    assert "From step 100 on 14 + 2: worker 1 <slow> computes 4 samples in 0.9 s." in page.said("workers")
    assert "Notes of the plan the profiles are noisy." in page.said("speed")


def test_workers_are_told_with_their_share_and_waiting(made: Results) -> None:
    page = page_of(made, "valley")
    said = page.said("workers")
    assert "0 local 0 cpu, 1 thread 12 75.0 % 45 270 ms 240 ms 30.0 ms 10.0 % 30.0 ms 0 s" in said
    assert "1 local 0 cpu, 1 thread, emulated 3× slower 4 25.0 % 15 270 ms 270 ms 0 s 0.0 % 30.0 ms 0 s" in said
    assert "emulated 50× slower: its use would make a step 0.2 s longer" in said
    assert "Medians over 36 steps of 60: the first one of each epoch" in said
    (alt,) = {values["alt"] for tag, values in page.tags if " gets 4 samples" in (values.get("alt") or "")}
    assert "Worker 1 (cpu, 1 thread, emulated 3× slower) gets 4 samples" in alt


def test_speed_ups_stand_beside_their_limits(made: Results) -> None:
    said = page_of(made, "valley").said("speed")
    for part in (
        "measured 1.80× as fast, predicted 1.93×, at most 2.00×",
        "Against the fastest worker alone: 1.20× of at most 1.33×",
        "An emulated worker took part",
        "280 ms 300 ms",
        "measured in experiment valley-equal 540 ms 540 ms",
        "1.93× 1.80× 2.00×",
        "1.29× 1.20× 1.33×",
        "reached 95.0 % 88.7 % 100.0 %",
        "The measured step is 7.1 % longer than the predicted one.",
        "Epoch measured: median, with validation 3.00 s 3.10 s",
    ):
        assert part in said
    assert "above its limit" not in page_of(made, "valley").text["summary"] + said
    assert "faster than the profile" not in said


def test_figures_above_their_limits_are_shown_and_explained(results: Results) -> None:
    write_experiment(results.layout, "valley", "balanced", shares=(12, 4), step=0.20, epochs=12)
    page = page_of(results, "valley")
    said = page.said("speed")
    for part in (
        "2.70× above its limit 2.00×",
        "1.80× above its limit 1.33×",
        "133.0 % above its limit 100.0 %",
        "the speed-up over equal shares is 2.70×, its limit 2.00×",
        "the machine was slower when it was profiled, or when valley-equal was trained,",
        f"landbalance profile valley unet local --results {results.layout.root}",
    ):
        assert part in said
    assert "above its limit" in page.said("summary")


def test_without_a_run_in_equal_shares_the_measured_speed_up_is_not_available(results: Results) -> None:
    (results.layout.evaluate("valley-equal") / "metrics.json").unlink()
    page = page_of(results, "valley")
    assert "Against equal shares n/a" in page.said("summary")
    assert "experiment valley-equal, which has equal shares, has not been run yet" in page.said("speed")
    assert "1.93× n/a 2.00×" in page.said("speed")


def test_a_run_in_equal_shares_on_other_workers_does_not_count(results: Results, changed: Changed) -> None:
    changed(results.layout.plan("valley-equal"), lambda value: value["workers"].pop())
    assert "valley-equal, which has equal shares, was run on other workers" in page_of(results, "valley").said("speed")


def test_the_run_in_equal_shares_is_the_reference(results: Results) -> None:
    page = page_of(results, "valley-equal")
    assert "Step 540 ms equal shares: the other arms' reference" in page.said("summary")
    assert "All workers have equal shares here" in page.said("speed")


def test_nothing_measured_is_not_available(made: Results) -> None:
    page = page_of(made, "patches")
    said = page.said("summary")
    assert "The test split holds no labelled tile, so no accuracy can be given." in said
    assert "Overall accuracy n/a on 0 test tiles" in said
    assert "Kappa n/a" in said
    assert "Baseline n/a kappa n/a" in said
    assert "map" not in page.text
    assert "Baseline: n/a." in page.said("accuracy")
    assert "Mean of the classes n/a n/a n/a n/a 0 0" in page.said("accuracy")
    assert "Machine n/a" in page.said("settings")
    assert "Attribution n/a" in page.said("data")


def test_data_are_told_with_licence_and_digest(made: Results) -> None:
    said = page_of(made, "valley").said("data")
    for part in ("CC0", "Attribution Example & Sons", "2025-01-02 03:04 UTC", "ab" * 32, "70 files", "4.65 MB"):
        assert part in said
    assert "worded otherwise" not in said
    assert f"{59:064x}" in said
    assert f"{60:064x}" not in said
    assert "The first 60 files; all of them stand in" in said
    assert "Forest 1,234 1,234 1,234" in said
    assert "Tiles 8 1 3" in said


def test_settings_versions_machine_and_seeds(made: Results) -> None:
    said = page_of(made, "valley").said("settings")
    for part in (
        "training 7, split 5",
        "0123abcd",
        "Example CPU 9000, 8 cores, 17.2 GB of memory; Example CPU; profiled 2025-01-02 03:30 UTC",
        "landbalance 0.1.0, torch 2.14.1",
        "training.epochs 12",
        "training.clip_norm not set",
    ):
        assert part in said


def test_commands_go_through_all_stages_in_order(made: Results) -> None:
    said = page_of(made, "valley").said("reproduce")
    root = made.layout.root
    commands = [
        "download valley", "tile valley", "profile valley unet local", "plan valley", "train valley",
        "evaluate valley", "map valley valley-2020", "report valley",
    ]  # fmt: skip
    expected = " ".join(f"landbalance {command} --results {root}" for command in commands)
    assert expected in said
    assert f"snakemake --profile local {root}/report/valley.html" in said


def test_settings_can_be_taken_from_the_page(made: Results) -> None:
    """What stands there as config.yaml is the experiment's own configuration, and nothing else of it."""
    said = page_of(made, "valley").said("reproduce")
    assert "config.yaml: what was computed" in said
    config = parse_config(yaml.safe_load(own_config("valley", made.config)))
    assert list(config.experiments) == ["valley"]
    assert config.datasets["valley"] == made.config.datasets["valley"]
    assert config.map == made.config.map


def test_commands_name_the_files_that_were_used(made: Results, tmp_path: Path) -> None:
    cluster = tmp_path / "two nodes.yaml"
    cluster.write_text("nodes: [{name: fast <b>, workers: [{device: cpu}]}]\n", encoding="utf-8")
    inputs = Inputs(Path("other.yaml"), cluster)
    content = read_content("valley", made.config, made.layout, inputs)
    assert f"landbalance profile valley unet local --cluster '{cluster}' --config other.yaml --results" in said_of(
        content
    )
    assert f"landbalance plan valley --cluster '{cluster}' --config other.yaml" in said_of(content)
    assert "landbalance train valley --config other.yaml" in said_of(content)
    assert content.snakemake.startswith("snakemake --cores all ")
    assert content.snakemake.endswith(f"valley.html --configfile other.yaml --config 'cluster={cluster}'")
    assert content.cluster is not None and "fast <b>" in content.cluster
    known = read_content("valley", made.config, made.layout, Inputs(cluster=Path("profiles/slurm/cluster.yaml")))
    assert known.snakemake.startswith("snakemake --profile slurm ")


def said_of(content: Content) -> str:
    return "\n".join(content.commands)


def test_a_labelled_sample_is_shown_where_there_is_one(results: Results) -> None:
    assert "labelled by a person" not in page_of(results, "patches").said("accuracy")
    estimate = {"estimate": 0.81, "standard_error": 0.02, "interval": [0.77, 0.85]}
    item = {"name": HOSTILE, "points_on_map": 50, "mapped_hectares": 46.6, "users_accuracy": estimate}
    item |= {"producers_accuracy": None, "hectares": {"estimate": 40.5, "interval": [30.2, 50.8]}}
    write_json(
        results.layout.assess("valley"),
        {"estimator": "Olofsson et al. 2014", "level": 0.95, "labelled_points": 400, "overall_accuracy": estimate}
        | {"classes": [item], "warnings": ["Glacier: on the map, but at no point on the ground"]},
    )
    page = page_of(results, "valley")
    assert "By labelled points 81.0 % 77.0–85.0 %" in page.said("summary")
    said = page.said("accuracy")
    assert "overall accuracy 81.0 % (77.0–85.0 %, 95 % interval)" in said
    assert f"{HOSTILE} 40.5 ha 30.2 ha to 50.8 ha 46.6 ha n/a 81.0 % 77.0–85.0 % 50" in said
    assert "Glacier: on the map, but at no point on the ground" in said


def test_a_random_splits_flattery_is_told_on_request(results: Results, changed: Changed) -> None:
    path = results.layout.evaluate("valley") / "metrics.json"
    changed(path, lambda value: value.update(random_split={"overall_accuracy": 0.951, "optimism": 0.25}))
    said = page_of(results, "valley").said("accuracy")
    assert "the random forest would seem to reach 95.1 %: +25.0 percentage points that come of neighbours" in said


def test_the_baseline_is_compared_on_the_same_samples(made: Results) -> None:
    assert (
        "The network less the random forest: +7.4 percentage points (interval +2.1 to +11.8); p = 0.034 by block "
        "(31 blocks, randomisation test); p < 0.0001 by pixel (McNemar's test, far too small, for neighbouring pixels "
        "are not independent)."
    ) in page_of(made, "valley").said("accuracy")


def test_calibration_and_distance_are_told(made: Results) -> None:
    page = page_of(made, "valley")
    said = page.said("accuracy")
    assert "Expected calibration error 5.0 %" in said
    assert "it is 5 pixels at least, 12.5 in the middle (median) and 41 at most" in said
    alts = [values.get("alt") or "" for tag, values in page.tags if tag == "img"]
    assert any("85.0\u00a0% right at 90.0\u00a0% confidence (1,900\u00a0samples)" in alt for alt in alts)


def test_a_training_much_slower_than_planned_is_explained(results: Results) -> None:
    write_experiment(results.layout, "valley", "balanced", shares=(12, 4), step=0.60, epochs=12)
    assert "114.3 % longer than the predicted one. The machines were slower" in page_of(results, "valley").said("speed")


def test_a_scene_without_a_map_is_told_with_the_reason(results: Results) -> None:
    target = results.layout.map("valley", "valley-2020")
    target.unlink()
    with pytest.raises(UserError), noted(target):
        raise UserError("<b>blue.tif</b>: cannot be read")
    run("valley", results.config, results.layout)
    page = Page(results.html("valley"))
    assert "map" not in [values["id"] for tag, values in page.tags if tag == "section"]
    assert (
        "<b>Failed:</b> scene valley-2020 was not mapped with experiment valley; this report is without it. "
        "&lt;b&gt;blue.tif&lt;/b&gt;: cannot be read" in results.html("valley")
    )
    run_index(results.config, results.layout)
    assert "scene valley-2020 was not mapped with experiment valley: &lt;b&gt;blue.tif" in results.html("index")


def test_figures_lie_beside_the_page(made: Results) -> None:
    folder = made.layout.root / "report"
    charts = ("confusion", "calibration", "curves", "workers", "timeline", "shares", "speed")
    drawn = {f"{name}.svg" for name in charts}
    assert {path.name for path in (folder / "valley").iterdir()} == drawn | {"map.png"}
    assert {path.name for path in (folder / "patches").iterdir()} == drawn
    assert (folder / "valley" / "map.png").read_bytes()[:4] == b"\x89PNG"
    for name in drawn:
        assert b"<svg" in (folder / "valley" / name).read_bytes()


def test_the_same_results_give_the_same_page(made: Results) -> None:
    first = made.html("valley")
    run("valley", made.config, made.layout)
    assert made.html("valley") == first


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda layout: (layout.train("valley") / "timing.parquet").unlink(), r"timing\.parquet: not found"),
        (lambda layout: (layout.train("valley") / "history.parquet").write_bytes(b"x"), r"history\.parquet: damaged"),
        (lambda layout: (layout.evaluate("valley") / "metrics.json").write_text("{"), r"metrics\.json: not valid JSON"),
        (lambda layout: write_json(layout.train("valley") / "run.json", {}), r"run\.json: .*missing"),
    ],
)
def test_missing_and_damaged_files_are_named_and_nothing_is_written(
    results: Results, spoil: Callable[[Layout], object], message: str
) -> None:
    spoil(results.layout)
    with pytest.raises(UserError, match=message):
        run("valley", results.config, results.layout)
    assert not results.layout.report("valley").exists()


def test_results_of_other_classes_are_refused(results: Results, changed: Changed) -> None:
    path = results.layout.evaluate("valley") / "metrics.json"
    changed(path, lambda value: value.update(classes=["A", "B", "C", "D"]))
    with pytest.raises(UserError, match="is about the classes A, B, C, D; the configuration has Forest"):
        run("valley", results.config, results.layout)


def test_an_experiment_called_index_would_overwrite_the_overview(results: Results) -> None:
    raw = results.config.model_dump(mode="json")
    raw["experiments"]["index"] = raw["experiments"]["valley"]
    with pytest.raises(UserError, match="another name"):
        run("index", parse_config(raw), results.layout)


def test_undefined_validation_accuracy_is_left_out(results: Results) -> None:
    import pandas as pd

    path = results.layout.train("valley") / "history.parquet"
    pd.read_parquet(path).assign(validation_accuracy=None, validation_loss=None).to_parquet(path)
    assert "validation accuracy ends" not in page_of(results, "valley").said("training")
