"""Where each stage writes its files, below one results folder."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Paths of all results; `root` is ``results`` unless the user chose another folder."""

    root: Path = Path("results")

    def download(self, dataset: str) -> Path:
        """Return the folder of a dataset's source files; ``manifest.json`` lies in it."""
        return self.root / "download" / dataset

    def tile(self, dataset: str) -> Path:
        """Return the tile store: shards, ``index.parquet``, ``statistics.json``."""
        return self.root / "tile" / dataset

    def tile_scene(self, dataset: str, scene: str) -> Path:
        """Return the note that a scene is cut; its tiles lie in a folder of the same name."""
        return self.tile(dataset) / "scenes" / f"{scene}.json"

    def profile(self, dataset: str, model: str, node: str) -> Path:
        """Return the profile of one node kind for one model on one dataset's tiles."""
        return self.root / "profile" / dataset / model / f"{node}.json"

    def plan(self, experiment: str) -> Path:
        """Return the plan of an experiment; its picture lies beside it as ``.svg``."""
        return self.root / "plan" / f"{experiment}.json"

    def train(self, experiment: str) -> Path:
        """Return the folder of the model bundle, ``history.parquet`` and ``timing.parquet``."""
        return self.root / "train" / experiment

    def evaluate(self, experiment: str) -> Path:
        """Return the folder of ``metrics.json``, ``confusion.csv`` and ``predictions.parquet``."""
        return self.root / "evaluate" / experiment

    def map(self, experiment: str, scene: str) -> Path:
        """Return the class map of one scene."""
        return self.root / "map" / experiment / f"{scene}.tif"

    def map_product(self, experiment: str, scene: str, ending: str) -> Path:
        """Return a file beside a map; `ending` is one of `config.Map.endings`."""
        return self.root / "map" / experiment / f"{scene}.{ending}"

    def mosaic(self, experiment: str) -> Path:
        """Return the maps of all scenes of an experiment as one."""
        return self.root / "map" / experiment / "mosaic.tif"

    def design(self, experiment: str) -> Path:
        """Return the sample of an experiment's maps for a person to label."""
        return self.root / "design" / f"{experiment}.gpkg"

    def assess(self, experiment: str) -> Path:
        """Return what a labelled sample says of an experiment's maps."""
        return self.root / "assess" / f"{experiment}.json"

    def report(self, experiment: str) -> Path:
        """Return the HTML report of an experiment."""
        return self.root / "report" / f"{experiment}.html"

    def compare(self) -> Path:
        """Return the folder of the comparison of arms: table, picture, page."""
        return self.root / "compare"
