from landbalance.report import summary
from report.report_samples import Results, write_experiment


def test_figures_stand_beside_their_limits(made: Results) -> None:
    told = summary(made.config, made.layout)
    assert "1.80 measured over equal shares (valley-equal), 1.93 predicted, limit 2.00" in told
    assert "valley-later: not run yet" in told
    assert "warning" not in told


def test_figures_above_their_limits_are_shown_and_explained(results: Results) -> None:
    write_experiment(results.layout, "valley", "balanced", shares=(12, 4), step=0.20, epochs=12)
    told = summary(results.config, results.layout)
    assert "2.70 measured over equal shares (valley-equal), 1.93 predicted, limit 2.00" in told
    assert told.count("warning   Training was faster than the profile allows") == 1
    assert "landbalance profile valley unet local" in told
