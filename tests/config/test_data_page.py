"""The examples of docs/data.md are datasets that the configuration takes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from landbalance.config import Dataset

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
EXAMPLES = [text for text in BLOCKS if re.match(r"(scenes|labels|folders):", text)]
# Several in a block, one a line.
EXAMPLES += [line for text in BLOCKS if re.match(r"(tiles|split):", text) for line in text.splitlines()]
CLASSES = [{"name": name, "colour": f"#00000{k}", "values": [k + 1]} for k, name in enumerate(("Water", "Forest"))]


def dataset(**parts: Any) -> Dataset:
    base: dict[str, Any] = {"sources": [{"path": "data", "licence": "CC0"}], "classes": CLASSES}
    if isinstance(parts.get("split"), dict) and parts["split"]["by"] in ("sample", "list"):
        images = {"folders": {"path": "2750", "bands": ["red", "green", "blue"]}}
        return Dataset.model_validate({**base, **images, "task": "classification", **parts})
    if "folders" in parts:
        task = "segmentation" if "masks" in parts["folders"] else "classification"
        return Dataset.model_validate({**base, "task": task, "split": {"by": "sample"}, **parts})
    scene = {"scenes": {"s": {"bands": {"B1": "a.tif"}}}, "labels": {"path": "l.gpkg", "field": "f"}}
    return Dataset.model_validate(
        {**base, **scene, "task": "segmentation", "split": {"by": "block", "size": 128}, **parts}
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=[text.split("\n", 1)[0][:40] for text in EXAMPLES])
def test_an_example_is_a_dataset(example: str) -> None:
    dataset(**yaml.safe_load(example))


def test_there_are_examples_of_each_kind() -> None:
    kinds = [example.split(":")[0] for example in EXAMPLES]
    assert kinds == ["scenes", *["labels"] * 3, *["folders"] * 2, *["tiles"] * 2, *["split"] * 7]
