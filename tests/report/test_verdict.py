from dataclasses import replace

import pytest

from landbalance.report.content import Content, read_content
from landbalance.report.verdict import exceeds, limit_warning
from report.report_samples import Results


def content_of(results: Results, name: str, **speed: float) -> Content:
    content = read_content(name, results.config, results.layout)
    return replace(content, speed=replace(content.speed, **speed))


@pytest.mark.parametrize(
    ("measured", "above"), [(None, False), (1.9, False), (2.0, False), (2.004, False), (2.02, True), (2.94, True)]
)
def test_only_what_reads_as_more_exceeds_a_limit(measured: float | None, above: bool) -> None:
    assert exceeds(measured, 2.0) is above


def test_figures_within_their_limits_need_no_warning(results: Results) -> None:
    assert limit_warning(content_of(results, "valley")) is None
    assert limit_warning(content_of(results, "valley-equal")) is None


@pytest.mark.parametrize(
    ("speed", "told"),
    [
        ({"over_fastest": 1.9}, "the speed-up over the fastest worker alone is 1.90×, its limit 1.33×."),
        ({"fraction_of_total_speed": 1.44}, "144.0\u00a0% of all workers' speed (Σs) is reached."),
        ({"slower_than_predicted": -0.25}, "the step is 25.0\u00a0% shorter than predicted."),
    ],
)
def test_a_step_faster_than_profiled_blames_the_profile(results: Results, speed: dict[str, float], told: str) -> None:
    warning = limit_warning(content_of(results, "valley-equal", **speed))
    assert warning is not None
    assert told in warning
    assert "the machine was slower when it was profiled than in this training" in warning
    assert "landbalance profile valley unet local" in warning
    assert warning.endswith("then plan and train valley-equal again.")


def test_a_gain_above_its_limit_may_be_due_to_the_run_in_equal_shares(results: Results) -> None:
    warning = limit_warning(content_of(results, "valley", over_equal=2.94))
    assert warning is not None
    assert "the speed-up over equal shares is 2.94×, its limit 2.00×." in warning
    assert "slower when it was profiled, or when valley-equal was trained," in warning
    assert warning.endswith("then plan and train valley and valley-equal again.")


def test_a_step_a_little_shorter_than_predicted_is_no_news(results: Results) -> None:
    assert limit_warning(content_of(results, "valley", slower_than_predicted=-0.09)) is None
