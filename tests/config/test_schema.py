"""The files made from the typed settings say what the settings say."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.config.base import PATTERNS_IN_WORDS
from landbalance.config.schema import CLUSTER_SCHEMA, CONFIG_SCHEMA, REFERENCE, generated, main, reference, stale

ROOT = Path(__file__).parents[2]


def test_committed_files_are_up_to_date() -> None:
    assert stale(ROOT) == [], "run `make schema` and commit the result"


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        (CONFIG_SCHEMA, "config.yaml"),
        (CONFIG_SCHEMA, "configs/ablation.yaml"),
        (CONFIG_SCHEMA, "configs/arms.yaml"),
        (CONFIG_SCHEMA, "configs/eurosat.yaml"),
        (CLUSTER_SCHEMA, "profiles/local/cluster.yaml"),
        (CLUSTER_SCHEMA, "profiles/ratios/cluster.yaml"),
        (CLUSTER_SCHEMA, "profiles/demo/cluster.yaml"),
        (CLUSTER_SCHEMA, "profiles/slurm/cluster.yaml"),
    ],
)
def test_schema_accepts_what_the_project_ships(schema: Path, file: str) -> None:
    jsonschema.validate(
        yaml.safe_load((ROOT / file).read_text(encoding="utf-8")),
        json.loads((ROOT / schema).read_text(encoding="utf-8")),
    )


@pytest.mark.parametrize("change", [{"mapp": {}}, {"map": {"window": "256"}}, {"map": {"windw": 256}}])
def test_schema_is_closed(change: dict[str, Any]) -> None:
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**config, **change}, json.loads((ROOT / CONFIG_SCHEMA).read_text(encoding="utf-8")))


def test_schema_wants_a_licence_unless_the_catalogue_has_one() -> None:
    schema = json.loads((ROOT / CONFIG_SCHEMA).read_text(encoding="utf-8"))
    config = yaml.safe_load((ROOT / "configs/arms.yaml").read_text(encoding="utf-8"))
    del config["datasets"]["eurosat"]["sources"][0]["licence"]
    jsonschema.validate(config, schema)
    del config["datasets"]["havel"]["sources"][0]["licence"]
    with pytest.raises(jsonschema.ValidationError, match="'licence' is a required property"):
        jsonschema.validate(config, schema)


def objects(node: Any) -> list[dict[str, Any]]:
    """Return every section of a schema; conditions, which have no type, are none."""
    if isinstance(node, list):
        return [found for item in node for found in objects(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if "properties" in node and node.get("type") == "object" else []
    return own + [found for value in node.values() for found in objects(value)]


@pytest.mark.parametrize("kind", [Config, Cluster])
def test_every_key_is_described_and_every_section_closed(kind: type[Config] | type[Cluster]) -> None:
    for part in objects(kind.model_json_schema()):
        assert part["additionalProperties"] is False, part["title"]
        bare = [name for name, node in part["properties"].items() if not node.get("description")]
        assert bare == [], part["title"]


@pytest.mark.parametrize("kind", [Config, Cluster])
def test_every_pattern_has_words(kind: type[Config] | type[Cluster]) -> None:
    patterns = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(kind.model_json_schema()))
    assert {json.loads(pattern) for pattern in patterns} <= set(PATTERNS_IN_WORDS)


def test_reference_lists_every_key() -> None:
    text = reference()
    for kind in (Config, Cluster):
        for part in objects(kind.model_json_schema()):
            for name, node in part["properties"].items():
                assert f"| `{name}` |" in text
                assert node["description"] in text


@pytest.mark.parametrize(
    "row",
    [
        "| `epochs` | a whole number above 0 |  | How often each sample is seen. |",
        "| `nodata` | a whole number from 0 to 255 | `255` | Code of pixels without data. |",
        "| `layer` | text | not set | The layer, where the file has more than one. |",
        "| `colour` | a colour, '#rrggbb' |  | Colour in maps and legends, as '#rrggbb' (in quotes). |",
        "| `baseline` | `true` or `false` | `true` | Also fit a random forest on the same split's pixels. |",
        "### `datasets.<name>.split` (`by: sample`)",
        "### `nodes[].workers[]`",
    ],
)
def test_reference_in_words(row: str) -> None:
    assert row in reference().splitlines()


def test_check_names_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / REFERENCE).write_text("old", encoding="utf-8")
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("docs/configuration.md: out of date")
    assert (tmp_path / REFERENCE).read_text(encoding="utf-8") == "old"


def test_generated_paths_are_few_and_known() -> None:
    assert set(generated()) == {CONFIG_SCHEMA, CLUSTER_SCHEMA, REFERENCE}
