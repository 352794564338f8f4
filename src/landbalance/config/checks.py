"""Reading YAML and saying what is wrong with settings."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from landbalance.config.base import PATTERNS_IN_WORDS, Settings
from landbalance.errors import UserError

SettingsT = TypeVar("SettingsT", bound=Settings)


class _Loader(yaml.SafeLoader):
    """Reads YAML, but refuses a key that stands twice, of which the last would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key} stands here twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return the value in a YAML file; a missing or malformed file is a `UserError`."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506, a safe loader
    except FileNotFoundError as error:
        raise UserError(f"{path}: not found. Run from the project's folder or name another file.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).replace('"<unicode string>"', "it").split())
        hint = " A colour needs quotes: '#1b7837'." if "#" in said else ""
        raise UserError(f"{path}: not valid YAML: {said}.{hint}") from error


def checked(kind: type[SettingsT], raw: Any, origin: str) -> SettingsT:
    """Return `raw` as settings of `kind`, or raise a `UserError` that lists every mistake."""
    if not isinstance(raw, Mapping):
        raise UserError(f"{origin}: a mapping of keys to values is wanted, found {_shown(raw)}.")
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        mistakes = [_mistake(kind, item) for item in error.errors()]
        raise UserError("\n".join(f"{origin}: {mistake}" for mistake in mistakes)) from None


def _mistake(kind: type[Settings], error: ErrorDetails) -> str:
    # After the name of a section of several kinds, pydantic puts the kind.
    place = [
        part
        for before, part in zip(("", *error["loc"]), error["loc"], strict=False)
        if before != "split" and part not in ("vector labels", "raster labels", "[key]")
    ]
    where = ".".join(str(part) for part in place)
    if error["type"] == "extra_forbidden":
        allowed = _fields_at(kind, error["loc"][:-1])
        return (
            f"{where}: no such setting{suggestion(str(error['loc'][-1]), allowed)}; allowed here: {', '.join(allowed)}."
        )
    if error["type"] == "missing":
        return f"{where}: this setting is needed and missing."
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch":
        message = f"wanted: {PATTERNS_IN_WORDS.get(error['ctx']['pattern'], 'another text')}"
    message = message[:1].lower() + message[1:]
    if error["type"] == "value_error":
        return f"{where}: {message}." if where else f"{message}."
    if isinstance(error["input"], str) and re.fullmatch(r"[-+]?\d+[eE][-+]?\d+", error["input"]):
        message += "; YAML takes this for a text, write it with a point: 1.0e-3"
    if error["loc"][-1] == "[key]":
        return f"{'.'.join(map(str, place[:-1]))}: found the name {_shown(error['input'])}; {message}."
    return f"{where}: found {_shown(error['input'])}; {message}."


def _fields_at(kind: type[Settings], place: Iterable[int | str]) -> list[str]:
    """Return the keys allowed at a place of the tree, by walking the JSON schema."""
    schema = kind.model_json_schema()
    node: dict[str, Any] = schema
    for part in place:
        node = _resolved(schema, node)
        options = [_resolved(schema, option) for option in node.get("anyOf", node.get("oneOf", []))] or [node]
        for option in options:
            properties = option.get("properties", {})
            if part in properties:
                node = properties[part]
            elif isinstance(part, int) and "items" in option:
                node = option["items"]
            elif properties.get("by", {}).get("const") == part:
                node = option
            elif isinstance(option.get("additionalProperties"), dict):
                node = option["additionalProperties"]
            elif isinstance(option.get("patternProperties"), dict):
                node = next(iter(option["patternProperties"].values()))
            else:
                continue
            break
    node = _resolved(schema, node)
    options = [_resolved(schema, option) for option in node.get("anyOf", node.get("oneOf", []))] or [node]
    return sorted({key for option in options for key in option.get("properties", {})})


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node


def suggestion(value: str, allowed: Iterable[str]) -> str:
    """Return what was perhaps meant by a name that is not among the allowed ones, for a message."""
    close = difflib.get_close_matches(value, list(allowed), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
