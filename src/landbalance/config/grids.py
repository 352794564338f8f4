"""Many experiments written short: every combination of data, model, nodes, arm and seed."""

from collections.abc import Iterator
from itertools import product
from typing import Annotated

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
        default_factory=lambda: ["equal", "unweighted", "balanced"], min_length=1, description="The arms to compare."
    )
    seeds: list[int] = Field(
        default_factory=lambda: [0], min_length=1, description="Seeds of the training, instead of `training.….seed`."
    )

    def training_name(self, seed: int) -> str:
        """Return the name of the training section with `seed`."""
        return f"{self.training}-{seed}"

    def experiments(self) -> Iterator[tuple[str, Experiment]]:
        """Yield the experiments with their names."""
        for dataset, model, node, arm, seed in product(
            self.datasets, self.models, self.nodes or [None], self.arms, self.seeds
        ):
            name = "-".join(str(part) for part in (dataset, model, node, arm, seed) if part is not None)
            yield (
                name,
                Experiment(
                    dataset=dataset,
                    model=model,
                    training=self.training_name(seed),
                    arm=arm,
                    nodes=[] if node is None else [node],
                ),
            )
