"""Why the work on a scene failed: noted by its job, shown at the end of a run and in the reports."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from landbalance.config import Config
from landbalance.errors import UserError
from landbalance.files import remove, write_text
from landbalance.layout import Layout


@dataclass(frozen=True)
class Failure:
    """A scene that could not be cut into tiles, or not be mapped.

    Attributes
    ----------
    stage : str
    name : str
        The dataset that is tiled, or the experiment whose model maps.
    scene, reason : str
    """

    stage: Literal["tile", "map"]
    name: str
    scene: str
    reason: str

    @property
    def what(self) -> str:
        """Return what did not come about, without the reason."""
        if self.stage == "tile":
            return f"scene {self.scene} of dataset {self.name} was not cut into tiles"
        return f"scene {self.scene} was not mapped with experiment {self.name}"


@contextmanager
def noted(output: Path) -> Iterator[None]:
    """Note beside `output` why the work on it failed; when it went well, no note stays."""
    try:
        yield
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        with suppress(UserError):  # a full disk, say: the log has the reason
            write_text(_note(output), reason + "\n")
        raise
    remove(_note(output))


def failed_scenes(config: Config, layout: Layout) -> list[Failure]:
    """Return the scenes of a configuration whose last job failed, those of the tile stage first."""
    tiled = [
        Failure("tile", name, scene, reason)
        for name, dataset in config.datasets.items()
        for scene in dataset.cut_scenes
        if (reason := _reason(layout.tile_scene(name, scene)))
    ]
    mapped = [
        Failure("map", name, scene, reason)
        for name, experiment in config.experiments.items()
        for scene in config.datasets[experiment.dataset].scenes
        if (reason := _reason(layout.map(name, scene)))
    ]
    return tiled + mapped


def failures_of(experiment: str, config: Config, layout: Layout) -> list[Failure]:
    """Return the failed scenes that an experiment lacks: of its dataset, and of its maps."""
    concerned = {("tile", config.experiments[experiment].dataset), ("map", experiment)}
    return [failure for failure in failed_scenes(config, layout) if (failure.stage, failure.name) in concerned]


def _note(output: Path) -> Path:
    return output.with_name(f"{output.name}.failed")


def _reason(output: Path) -> str | None:
    """Return why the work on a file failed; None where it did not, or where it has been made since."""
    note = _note(output)
    if not note.is_file() or (output.exists() and output.stat().st_mtime_ns > note.stat().st_mtime_ns):
        return None
    return note.read_text(encoding="utf-8").strip()
