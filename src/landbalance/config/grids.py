"""Many experiments written short: every combination of data, model, nodes, arm and seed."""

from collections.abc import Iterator
from itertools import product
from typing import Annotated, get_args

from pydantic import Field

from landbalance.config.base import Name, Settings
from landbalance.config.learning import Arm, Experiment

Names = Annotated[list[Name], Field(min_length=1)]


class Grid(Settings):
    """Experiments in every combination of the lists, called `<dataset>-<model>-<node>-<arm>-<seed>`."""

    datasets: Names = Field(description="Names under `datasets`.")
    models: Names = Field(description="Names under `models`.")
    training: Name = Field(
        description="A name under `training`. Each seed makes a section of its own of it, `<training>-<seed>`."
    )
    nodes: list[Name] = Field(
        default_factory=list,
        description="Kinds of nodes in the cluster description, one for each experiment; when empty, every experiment "
        "may use all nodes, and none stands in its name.",
    )
    arms: list[Arm] = Field(
        default_factory=lambda: list(get_args(Arm)), min_length=1, description="The arms to compare."
    )
    seeds: list[int] = Field(
        default_factory=lambda: [0], min_length=1, description="Seeds of the training, instead of `training.….seed`."
    )

    def training_name(self, seed: int) -> str:
        """Return the name of the training section with `seed`."""
        return f"{self.training}-{seed}"

    def experiments(self) -> Iterator[tuple[str, Experiment]]:
        """Yield the experiments with their names."""
        kinds = [[node] for node in self.nodes] or [[]]
        for dataset, model, nodes, arm, seed in product(self.datasets, self.models, kinds, self.arms, self.seeds):
            yield (
                "-".join([dataset, model, *nodes, arm, str(seed)]),
                Experiment(dataset=dataset, model=model, training=self.training_name(seed), arm=arm, nodes=nodes),
            )
