"""What docs/data.md shows of sources is right."""

import re
from pathlib import Path

import yaml

from landbalance.config import Source

TEXT = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_sources_shown_are_valid() -> None:
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)]
    sources = [source for block in shown for source in block.get("sources", [])]
    assert len(sources) >= 3
    for source in sources:
        Source.model_validate(source)
