"""Files made from the typed settings: JSON schemas for editors and the reference page.

``python -m landbalance.config.schema`` writes them below the working folder, the project's root;
with ``--check`` it only says which are out of date, and exits with status 1 if one is.
"""

import argparse
import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from landbalance.cluster import Cluster
from landbalance.config.base import PATTERNS_IN_WORDS, Settings
from landbalance.config.load import Config
from landbalance.files import write_text

CONFIG_SCHEMA = Path("workflow/schemas/config.schema.json")
CLUSTER_SCHEMA = Path("workflow/schemas/cluster.schema.json")
REFERENCE = Path("docs/configuration.md")

_INTRODUCTION = """\
# Configuration

<!-- Made by `python -m landbalance.config.schema` from src/landbalance/config and src/landbalance/cluster. -->

`config.yaml` says what is computed, `profiles/<site>/cluster.yaml` where. Every setting is listed here. A key that
is not listed is an error, and so is a value of another type: a number in quotes is a text, and YAML reads a bare
`no`, `yes`, `on` or `off` as true or false, so put such names in quotes. `landbalance check` tells what is wrong
without running anything.

`<name>` stands for a name of your choice: letters, digits, dot, underscore and hyphen. `[]` stands for each item
of a list. A setting without a default is needed.
"""


def generated() -> dict[Path, str]:
    """Return the text of every generated file by its path below the project's root."""
    return {
        CONFIG_SCHEMA: _schema_text(Config, "config.yaml: what is computed"),
        CLUSTER_SCHEMA: _schema_text(Cluster, "cluster.yaml: which nodes and workers there are"),
        REFERENCE: reference(),
    }


def stale(root: Path) -> list[Path]:
    """Return the generated files that are missing below `root` or say something else."""
    return [
        path
        for path, text in generated().items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def reference() -> str:
    """Return the reference page of all settings, as Markdown."""
    parts = [_INTRODUCTION]
    for title, kind in (("config.yaml", Config), ("cluster.yaml", Cluster)):
        parts.append(f"## {title}\n\n{_table(kind)}")
        for path, nested in _sections(kind):
            parts.append(f"### `{path}`{_variant(nested)}\n\n{_summary(nested)}\n\n{_table(nested)}")
    return "\n".join(parts)


def _schema_text(kind: type[Settings], title: str) -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **kind.model_json_schema(), "title": title}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _summary(kind: type[BaseModel]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _variant(kind: type[BaseModel]) -> str:
    """Return the key that chooses `kind` among the sections that may stand in its place, for a heading."""
    properties = kind.model_json_schema()["properties"]
    return "".join(f" (`{name}: {node['const']}`)" for name, node in properties.items() if "const" in node)


def _sections(kind: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every section below `kind` with its dotted path, in the order of the keys."""
    for name, field in kind.model_fields.items():
        for suffix, nested in _nested(field.annotation):
            path = f"{prefix}{name}{suffix}"
            yield path, nested
            yield from _sections(nested, f"{path}.")


def _nested(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the sections that an annotation holds, each with how one gets there from the key."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    elif origin is dict:
        yield from ((f".<name>{rest}", nested) for rest, nested in _nested(arguments[1]))
    elif origin is Annotated:
        yield from _nested(arguments[0])
    elif origin is list:
        yield from ((f"[]{rest}", nested) for rest, nested in _nested(arguments[0]))
    elif origin in (Union, types.UnionType):
        for option in arguments:
            yield from _nested(option)


def _table(kind: type[BaseModel]) -> str:
    schema = kind.model_json_schema()
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, field in kind.model_fields.items():
        value = _value(schema["properties"][name], schema.get("$defs", {}))
        rows.append(f"| `{name}` | {value} | {_default(field)} | {field.description or ''} |")
    return "\n".join(row.replace("\n", " ") for row in rows) + "\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "not set"
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{json.dumps(value)}`" if value or value in (0, False) else "empty"


def _value(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return what a value may be, in words, from its JSON schema."""
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        return _value(target, definitions)
    options = [option for option in node.get("anyOf", node.get("oneOf", [])) if option.get("type") != "null"]
    if options:
        return " or ".join(dict.fromkeys(_value(option, definitions) for option in options))
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    return _of_type(node, definitions)


def _of_type(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    match node.get("type"):
        case "array":
            item = _value(node["items"], definitions)
            return "a list of sections" if item == "a section" else f"a list; each item: {item}"
        case "object":
            inner = next(iter(node.get("patternProperties", {}).values()), node.get("additionalProperties"))
            item = _value(inner, definitions) if isinstance(inner, Mapping) else ""
            return f"names; each has {item}" if item else "a section"
        case "string":
            return PATTERNS_IN_WORDS.get(node.get("pattern", ""), "text")
        case "integer":
            return f"a whole number{_range(node)}"
        case "number":
            return f"a number{_range(node)}"
        case "boolean":
            return "`true` or `false`"
        case other:
            raise AssertionError(f"no words for the type {other}")


def _range(node: Mapping[str, Any]) -> str:
    low, high, above = node.get("minimum"), node.get("maximum"), node.get("exclusiveMinimum")
    below = node.get("exclusiveMaximum")
    if below is not None:
        return (
            f" above {above:g} and below {below:g}" if above is not None else f", at least {low:g} and below {below:g}"
        )
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if low is not None:
        return f", at least {low:g}"
    return f" above {above:g}" if above is not None else ""


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files below the working folder, or check them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m landbalance.config.schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    options = parser.parse_args(arguments)
    old = stale(Path())
    if options.check:
        for path in old:
            sys.stderr.write(f"{path}: out of date. Run `python -m landbalance.config.schema` and commit the result.\n")
        return 1 if old else 0
    texts = generated()
    for path in old:
        write_text(path, texts[path])
        sys.stderr.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
