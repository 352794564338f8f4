"""Where results lie: the paths that the rules, the stages and the documentation share."""

from pathlib import Path

from landbalance.layout import Layout


def test_paths() -> None:
    layout = Layout(Path("out"))
    assert layout.download("d") == Path("out/download/d")
    assert layout.tile("d") == Path("out/tile/d")
    assert layout.profile("d", "m", "n") == Path("out/profile/d/m/n.json")
    assert layout.plan("e") == Path("out/plan/e.json")
    assert layout.train("e") == Path("out/train/e")
    assert layout.evaluate("e") == Path("out/evaluate/e")
    assert layout.map("e", "s") == Path("out/map/e/s.tif")
    assert layout.report("e") == Path("out/report/e.html")


def test_default_root_is_what_the_rules_write() -> None:
    """Rules spell paths out, as Snakemake wants it; they are the layout's."""
    rules = Path(__file__).parents[1] / "workflow" / "rules"
    layout = Layout()
    for stage, path in {
        "download": layout.download("{dataset}") / "manifest.json",
        "tile": layout.tile("{dataset}") / "index.parquet",
        "profile": layout.profile("{dataset}", "{model}", "{node}"),
        "plan": layout.plan("{experiment}"),
        "train": layout.train("{experiment}") / "model.safetensors",
        "evaluate": layout.evaluate("{experiment}") / "metrics.json",
        "map": layout.map("{experiment}", "{scene}"),
        "report": layout.report("{experiment}"),
    }.items():
        assert f'"{path}"' in (rules / f"{stage}.smk").read_text(encoding="utf-8")
