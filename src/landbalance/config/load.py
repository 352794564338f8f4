"""Reading a configuration file and saying what is wrong with it."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from landbalance.config.base import PATTERNS_IN_WORDS, Name, Settings
from landbalance.config.data import Dataset
from landbalance.config.grids import Grid
from landbalance.config.learning import Evaluate, Experiment, Map, Model, Profile, Report, Training
from landbalance.errors import UserError

SettingsT = TypeVar("SettingsT", bound=Settings)


class Config(Settings):
    """Everything that decides what is computed."""

    datasets: dict[Name, Dataset] = Field(min_length=1, description="Datasets by name.")
    models: dict[Name, Model] = Field(min_length=1, description="Models by name.")
    training: dict[Name, Training] = Field(min_length=1, description="Ways to train, by name.")
    experiments: dict[Name, Experiment] = Field(
        default_factory=dict, description="Experiments by name; all are run. Needed unless there are `grids`."
    )
    grids: dict[Name, Grid] = Field(
        default_factory=dict, description="More experiments, written short: every combination of some lists."
    )
    profile: Profile = Field(default_factory=Profile, description="Measuring workers.")
    evaluate: Evaluate = Field(default_factory=Evaluate, description="Judging models.")
    map: Map = Field(default_factory=Map, description="Mapping scenes.")
    report: Report = Field(default_factory=Report, description="Reporting.")

    @model_validator(mode="after")
    def _references(self) -> Self:
        if not self.experiments and not self.grids:
            raise ValueError("experiments: this setting is needed and missing or empty, since there are no `grids`")
        if "index" in self.experiments:
            raise ValueError("experiments.index: results/report/index.html is the overview; take another name")
        self._check_grids()
        for name, experiment in self.experiments.items():
            for key, section in (("dataset", self.datasets), ("model", self.models), ("training", self.training)):
                value = getattr(experiment, key)
                if value not in section:
                    raise ValueError(
                        f"experiments.{name}.{key}: no {key} is called {value}"
                        f"{_suggestion(value, section)}; allowed: {', '.join(section)}"
                    )
            task = self.datasets[experiment.dataset].task
            architecture = self.models[experiment.model].architecture
            if (architecture == "unet") != (task == "segmentation"):
                raise ValueError(
                    f"experiments.{name}.model: {architecture} does not fit the task {task} of {experiment.dataset}; "
                    "take unet for segmentation and a torchvision model for classification"
                )
        for name, dataset in self.datasets.items():
            self._check_map_files(name, list(dataset.scenes))
        return self

    def _check_grids(self) -> None:
        """Refuse a grid that names what is not there, or makes what is there already."""
        names, training = list(self.experiments), list(self.training)
        for key, grid in self.grids.items():
            for section, wanted in (
                ("datasets", grid.datasets),
                ("models", grid.models),
                ("training", [grid.training]),
            ):
                known = getattr(self, section)
                if unknown := [name for name in wanted if name not in known]:
                    raise ValueError(
                        f"grids.{key}.{section}: {unknown[0]} does not stand under {section}"
                        f"{_suggestion(unknown[0], known)}; allowed: {', '.join(known)}"
                    )
            names += [name for name, _ in grid.experiments()]
            training += [name for name in map(grid.training_name, grid.seeds) if name in self.training]
        for what, found in (("experiments", names), ("training sections", training)):
            if repeated := sorted({name for name in found if found.count(name) > 1}):
                raise ValueError(f"grids: two {what} would be called {repeated[0]}; take other names")

    def without_grids(self) -> dict[str, Any]:
        """Return the same configuration as plain values, every experiment of its grids written out."""
        values = self.model_dump(mode="json")
        for grid in self.grids.values():
            for seed in grid.seeds:
                values["training"][grid.training_name(seed)] = {**values["training"][grid.training], "seed": seed}
            values["experiments"].update((name, item.model_dump(mode="json")) for name, item in grid.experiments())
        return {**values, "grids": {}}

    def _check_map_files(self, dataset: str, scenes: list[str]) -> None:
        """Refuse names of scenes that would make two files of the map stage one."""
        files = {f"{scene}.{ending}": scene for scene in scenes for ending in self.map.endings}
        clashes = [scene for scene in scenes for ending in self.map.endings if files[f"{scene}.{ending}"] != scene]
        if self.map.mosaic and "mosaic" in scenes:
            clashes.append("mosaic")
        if clashes:
            raise ValueError(
                f"datasets.{dataset}.scenes: {clashes[0]} is also the name of another map's file, or of the mosaic; "
                "take another name"
            )


def load_config(path: Path) -> Config:
    """Return the checked configuration in the YAML file `path`.

    Raises
    ------
    UserError
        When the file is missing, is no YAML, or says something that is not allowed; the message
        names every wrong key, what was found and what is allowed.
    """
    return parse_config(read_yaml(path), str(path))


class _Loader(yaml.SafeLoader):
    """Reads YAML, but refuses a key that stands twice, of which the last would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key_node.tag != "tag:yaml.org,2002:merge" and key in seen:
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


def parse_config(raw: Any, origin: str = "config.yaml") -> Config:
    """Return the checked configuration from plain values, grids written out; `origin` names them in messages."""
    config = checked(Config, raw, origin)
    return checked(Config, config.without_grids(), origin) if config.grids else config


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
    place = [part for part in error["loc"] if part not in ("block", "sample", "[key]")]
    where = ".".join(str(part) for part in place)
    if error["type"] == "extra_forbidden":
        allowed = _fields_at(kind, error["loc"][:-1])
        return (
            f"{where}: no such setting{_suggestion(str(error['loc'][-1]), allowed)}; "
            f"allowed here: {', '.join(allowed)}."
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


def _suggestion(value: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(value, list(allowed), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
