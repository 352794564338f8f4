"""The whole configuration, and how it is read."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from landbalance.config.base import Name, Settings
from landbalance.config.catalogue import completed
from landbalance.config.checks import checked, read_yaml, suggestion
from landbalance.config.data import Dataset
from landbalance.config.learning import Evaluate, Experiment, Map, Model, Profile, Report, Training


class Config(Settings):
    """Everything that decides what is computed."""

    datasets: dict[Name, Dataset] = Field(min_length=1, description="Datasets by name.")
    models: dict[Name, Model] = Field(min_length=1, description="Models by name.")
    training: dict[Name, Training] = Field(min_length=1, description="Ways to train, by name.")
    experiments: dict[Name, Experiment] = Field(min_length=1, description="Experiments by name; all are run.")
    profile: Profile = Field(default_factory=Profile, description="Measuring workers.")
    evaluate: Evaluate = Field(default_factory=Evaluate, description="Judging models.")
    map: Map = Field(default_factory=Map, description="Mapping scenes.")
    report: Report = Field(default_factory=Report, description="Reporting.")

    @model_validator(mode="after")
    def _references(self) -> Self:
        if "index" in self.experiments:
            raise ValueError("experiments.index: results/report/index.html is the overview; take another name")
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
                    "take unet for segmentation and a torchvision model for classification"
                )
        for name, dataset in self.datasets.items():
            self._check_map_files(name, list(dataset.scenes))
        return self

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
    """Return the checked configuration from plain values; `origin` names them in messages."""
    return checked(Config, completed(raw, origin), origin)
