"""What the Snakefile settles before any rule: the configuration and the cluster description of a run."""

import argparse
import copy
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.config.checks import checked
from landbalance.errors import UserError
from landbalance.failures import failed_scenes
from landbalance.files import read_json, write_json, write_text
from landbalance.layout import Layout

CLUSTER_VARIABLE = "LANDBALANCE_CLUSTER"
_CLUSTER_NAME = "cluster.yaml"


def overridden(merged: Mapping[str, Any], options: Sequence[str], flag: str = "--config") -> dict[str, Any]:
    """Return a configuration with the values of ``--config`` read as YAML.

    Snakemake itself leaves numbers inside ``--config 'map={window: 128}'`` as text.

    Parameters
    ----------
    merged : mapping
        What Snakemake made of configuration files and options.
    options : sequence of str
        The options, as ``key=value``. The key ``cluster`` belongs to the machine and is taken out.
    flag : str
        The option that brought them, for messages.

    Raises
    ------
    UserError
        When a value is no YAML.
    """
    result = copy.deepcopy(dict(merged))
    for option in options:
        key, _, text = option.partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UserError(f"{flag} {option}: not valid YAML: {' '.join(str(error).split())}") from error
        if key == "cluster":
            result.pop(key, None)
        else:
            _merge(result, {key: value})
    return result


def _merge(target: dict[str, Any], update: Mapping[str, Any]) -> None:
    for key, value in update.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


def frozen(config: Config) -> tuple[Path, str]:
    """Return where a run's configuration is kept, below the results, and its text, defaults included."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    return Path("config", f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"), text


def freeze(config: Config, results: Path) -> None:
    """Write the configuration of a run beside its results, if it is not there yet."""
    name, text = frozen(config)
    if not (results / name).exists():
        write_text(results / name, text)


def cluster_path(
    option: str | None, exported: str | None, folders: Sequence[Path], start: Path, fallback: Path
) -> Path:
    """Return the cluster description of a run.

    Parameters
    ----------
    option : str or None
        The value of ``--config cluster=…``; it comes first.
    exported : str or None
        The value of the variable LANDBALANCE_CLUSTER; it comes second.
    folders : sequence of Path
        Folders of the profiles that were named; the last one that holds a ``cluster.yaml`` comes third.
        A named profile must have one: training on the nodes of another would be a surprise.
    start : Path
        The folder that relative paths are relative to.
    fallback : Path
        Folder of the profile that is used when none is named.

    Raises
    ------
    UserError
        When there is none at that place.
    """
    if named := option or exported:
        path = start / named
    else:
        holding = [folder for folder in folders if (folder / _CLUSTER_NAME).is_file()]
        path = (holding or list(folders) or [fallback])[-1] / _CLUSTER_NAME
    if not path.is_file():
        raise UserError(
            f"{path}: not found; it should describe the nodes and workers to train on. Write it (see "
            f"profiles/local/cluster.yaml), or name another by --config cluster=PATH or {CLUSTER_VARIABLE}."
        )
    return path


def profile_folders(
    arguments: Sequence[str], variable: str | None, places: Sequence[Path], workflow_places: Sequence[Path]
) -> list[Path]:
    """Return the folders of the Snakemake profiles that were named; later ones win.

    Parameters
    ----------
    arguments : sequence of str
        Snakemake's command line, without the program.
    variable : str or None
        The value of SNAKEMAKE_PROFILE, which counts where ``--profile`` is not given.
    places, workflow_places : sequence of Path
        Where ``--profile`` and ``--workflow-profile`` are looked up, in order.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--profile", action="append", default=[])
    parser.add_argument("--workflow-profile")
    options, _ = parser.parse_known_args(list(arguments))
    wanted = [(name, places) for name in options.profile or [variable]]
    wanted.append((options.workflow_profile, workflow_places))
    found = [_profile_folder(name, where) for name, where in wanted if name not in (None, "", "none")]
    return [folder for folder in found if folder is not None]


def _profile_folder(name: str, places: Sequence[Path]) -> Path | None:
    for path in (place / name for place in places):
        if path.exists():
            return path.resolve() if path.is_dir() else path.resolve().parent
    return None


def chosen_cluster(
    option: str | None, start: Path, root: Path, site_folders: Sequence[Path], is_main_process: bool
) -> Path:
    """Return the cluster description of this process's run, and export the choice to its jobs.

    A job's own Snakemake knows no profile; it takes what its parent exported.

    Parameters
    ----------
    option : str or None
        The value of ``--config cluster=…``.
    start, root : Path
        The folder that Snakemake was started in, and the one that holds the Snakefile.
    site_folders : sequence of Path
        Where Snakemake looks profiles up besides `start`.
    is_main_process : bool
        Whether this is the user's Snakemake, not a job's.

    Raises
    ------
    UserError
        When there is none.
    """
    exported = os.environ.get(CLUSTER_VARIABLE)
    folders = profile_folders(
        sys.argv[1:],
        os.environ.get("SNAKEMAKE_PROFILE"),
        [start, *site_folders],
        [start, start / "profiles", root / "profiles"],
    )
    if exported and not is_main_process:
        option = None
    path = cluster_path(option, exported, folders, start, root / "profiles" / "default")
    os.environ[CLUSTER_VARIABLE] = str(path)
    return path


def recorded_cluster(record: Path, site: str, science: str) -> Cluster | None:
    """Return the cluster description that an experiment was made with, if another one and the result is still valid.

    Parameters
    ----------
    record : Path
        What `record_site` wrote.
    site : str
        The cluster description in use, as a path.
    science : str
        A digest of what decides the model now.
    """
    if not record.exists():
        return None
    found = read_json(record)
    if found["site"] == site or found["science"] != science:
        return None
    return checked(Cluster, found["cluster"], str(record))


def record_site(record: Path, plan: Path, site: str, science: str, cluster: Cluster) -> None:
    """Note that an experiment was made with a cluster description, if its plan is for that."""
    if not plan.exists():
        return
    planned = sorted((worker["node"], worker["node_index"], worker["title"]) for worker in read_json(plan)["workers"])
    described = sorted(
        (node.name, index, worker.title)
        for node in cluster.nodes
        for index in range(node.count)
        for worker in node.workers
        for _ in range(worker.count)
    )
    content = {"site": site, "science": science, "cluster": cluster.model_dump(mode="json")}
    if planned == described and not (record.exists() and read_json(record) == content):
        write_json(record, content)


def use_own_commands() -> None:
    """Put the commands installed beside this Python first, for where its environment is not activated."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def show_failures(config: Config, cluster: Path, results: Path) -> None:
    """List the scenes that failed, at the end of a run and in the reports that can be made without them.

    The reports are written out of turn: their time of change is long ago, so that the next run writes them anew.
    """
    layout = Layout(results)
    failures = failed_scenes(config, layout)
    if not failures:
        return
    sys.stderr.write("\n".join(["Scenes that failed:", *(f"  {item.what}: {item.reason}" for item in failures), ""]))
    files = ["--config", str(results / frozen(config)[0]), "--results", str(results)]
    unmapped = dict.fromkeys(item.name for item in failures if item.stage == "map")
    pages = {layout.report(name): [name, "--cluster", str(cluster)] for name in unmapped}
    for page, words in {**pages, layout.report("index"): []}.items():
        done = subprocess.run(["landbalance", "report", *words, *files], capture_output=True, check=False)
        if done.returncode == 0:
            os.utime(page, (1, 1))
            sys.stderr.write(f"{page} lists them.\n")
