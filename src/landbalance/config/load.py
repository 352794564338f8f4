"""The whole configuration, and how it is read."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from landbalance.config.base import Name, Settings
from landbalance.config.catalogue import completed
from landbalance.config.checks import checked, read_yaml, suggestion
from landbalance.config.data import Dataset
from landbalance.config.grids import Grid
from landbalance.config.learning import Evaluate, Experiment, Map, Model, Profile, Report, Training


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
                        f"{suggestion(value, section)}; allowed: {', '.join(section)}"
                    )
            task = self.datasets[experiment.dataset].task
            architecture = self.models[experiment.model].architecture
            if (architecture == "unet") != (task == "segmentation"):
                raise ValueError(
                    f"experiments.{name}.model: {architecture} does not fit the task {task} of {experiment.dataset}; "
                    "take unet for segmentation, and resnet9 or a torchvision model for classification"
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
                        f"{suggestion(unknown[0], known)}; allowed: {', '.join(known)}"
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


def parse_config(raw: Any, origin: str = "config.yaml") -> Config:
    """Return the checked configuration from plain values, grids written out; `origin` names them in messages."""
    config = checked(Config, completed(raw, origin), origin)
    return checked(Config, config.without_grids(), origin) if config.grids else config
