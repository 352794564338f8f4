"""The catalogue of benchmark data sets: a YAML file each, whose keys a dataset of the configuration may take over."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from landbalance.config.base import Positive, Settings, Text
from landbalance.config.checks import checked, read_yaml, suggestion
from landbalance.config.data import Dataset, Source
from landbalance.errors import UserError

_FOLDER = Path(__file__).with_name("datasets")


class Entry(Settings):
    """A data set of the catalogue."""

    title: Text = Field(description="What it is called.")
    about: Text = Field(description="What it holds.")
    homepage: Text = Field(description="Where its makers describe it.")
    licence: Text = Field(description="The licence of all its sources.")
    citation: Text = Field(description="What to cite; it is also whom to name when the data are shown.")
    bytes: Positive | None = Field(None, description="About how much is fetched.")
    bands: Positive | None = Field(None, description="How many there are, where `dataset` does not name them.")
    splits: Text | None = Field(None, description="The usual split, where there is one.")
    note: Text | None = Field(None, description="What to watch out for.")
    by_hand: Text | None = Field(None, description="How to get it, where no address serves it to programs.")
    fetch_only: Text | None = Field(None, description="Why the stage tile cannot read it.")
    dataset: dict[str, Any] = Field(description="Keys of a dataset, as in the configuration.")


def names() -> list[str]:
    """Return the names of the entries that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def entry(name: str, key: str) -> Entry:
    """Return an entry by its name, or the one in a YAML file of the user.

    Parameters
    ----------
    name : str
        A name, or a path that ends in .yaml or .yml.
    key : str
        Who asks, for messages.

    Raises
    ------
    UserError
        When there is no such entry, or something in the file is not allowed.
    """
    if name.endswith((".yaml", ".yml")):
        return checked(Entry, read_yaml(Path(name).expanduser()), name)
    if name not in names():
        raise UserError(
            f"{key}: no data set of the catalogue is called {name}{suggestion(name, names())}; allowed: "
            f"{', '.join(names())}, or the path of a .yaml file. See `landbalance datasets`."
        )
    return _packaged(name)


@cache
def _packaged(name: str) -> Entry:
    return checked(Entry, read_yaml(_FOLDER / f"{name}.yaml"), f"{name}.yaml")


def sources(name: str, key: str) -> list[Source]:
    """Return what to fetch for an entry.

    Raises
    ------
    UserError
        When there is no such entry, or it is to be had by hand only.
    """
    found = entry(name, key)
    if found.by_hand is not None:
        raise UserError(f"{key}: {found.title} must be fetched by hand. {found.by_hand}")
    return [
        checked(Source, source, f"{name}: dataset.sources") for source in _licensed(found.dataset, found)["sources"]
    ]


def completed(raw: Any, origin: str) -> Any:
    """Return a configuration whose datasets have the keys of the catalogue's entries that they name.

    A key that a dataset gives itself comes first; mappings are joined key by key, lists replaced. Sources without
    a licence get the entry's.

    Raises
    ------
    UserError
        When a dataset names no entry, or one that cannot be had or tiled.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("datasets"), Mapping):
        return raw
    datasets = {
        name: _completed(dataset, f"{origin}: datasets.{name}")
        if isinstance(dataset, Mapping) and isinstance(dataset.get("catalogue"), str)
        else dataset
        for name, dataset in raw["datasets"].items()
    }
    return {**raw, "datasets": datasets}


def _completed(dataset: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = entry(dataset["catalogue"], f"{key}.catalogue")
    if found.fetch_only is not None:
        raise UserError(
            f"{key}.catalogue: {found.title} cannot be cut into tiles yet: {found.fetch_only}. "
            f"`landbalance download {dataset['catalogue']}` fetches it."
        )
    if found.by_hand is not None and "sources" not in dataset:
        raise UserError(f"{key}.sources: {found.title} must be fetched by hand. {found.by_hand}")
    return _licensed(_joined(found.dataset, dataset), found)


def _joined(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _joined(below[key], value) if isinstance(value, Mapping) and isinstance(below.get(key), Mapping) else value
        for key, value in above.items()
    }
    return {**below, **both}


def _licensed(dataset: Mapping[str, Any], found: Entry) -> dict[str, Any]:
    """Return a dataset whose sources have the entry's licence and citation where they have none of their own."""
    rights = {"licence": found.licence, "attribution": found.citation}
    wanted = dataset.get("sources")
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return dict(dataset)
    return {**dataset, "sources": [{**rights, **item} if isinstance(item, Mapping) else item for item in wanted]}


def listing() -> str:
    """Return a table of all entries that come with the package."""
    rows = [("NAME", "SIZE", "TASK", "CLASSES", "BANDS", "USE", "LICENCE")]
    for name in names():
        found = _packaged(name)
        keys = found.dataset
        bands = str(found.bands or len(keys["folders"]["bands"]))
        use = "by hand" if found.by_hand else "fetch only" if found.fetch_only else "fetch, tile"
        use += " (see its note)" if found.note else ""
        rows.append((name, _size(found.bytes), keys["task"], str(len(keys["classes"])), bands, use, found.licence))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def details(name: str) -> str:
    """Return all that there is to say about an entry, and how a configuration takes it.

    Raises
    ------
    UserError
        When it is not there, or it would be no dataset.
    """
    found = entry(name, "landbalance datasets")
    facts = {
        "About": found.about,
        "Homepage": found.homepage,
        "Licence": found.licence,
        "Cite": found.citation,
        "Size": _size(found.bytes),
        "Classes": ", ".join(item["name"] for item in found.dataset.get("classes", [])),
        "Split": found.splits,
        "Note": found.note,
        "By hand": found.by_hand,
        "No tiles": f"{found.fetch_only}; `landbalance download {name}` fetches it" if found.fetch_only else None,
    }
    lines = [found.title, *(f"{title}: {fact}" for title, fact in facts.items() if fact)]
    if found.fetch_only is None:
        own = ", sources: [{path: FOLDER}]" if found.by_hand else ""
        checked(Dataset, _completed({"catalogue": name, **({"sources": [{"path": "x"}]} if own else {})}, name), name)
        lines += ["In a configuration:", f"  datasets: {{{Path(name).stem}: {{catalogue: {name}{own}}}}}"]
    return "\n".join(lines)


def _size(count: int | None) -> str:
    if count is None:
        return "?"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
