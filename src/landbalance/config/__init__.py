"""The typed configuration: what is computed (``config.yaml``), not where.

`landbalance.config.data` describes sources, scenes and classes, `landbalance.config.learning` models,
training and outputs, `landbalance.config.load` reads and checks a whole file.
"""

from landbalance.config.data import (
    ClassInfo,
    Dataset,
    Source,
)
from landbalance.config.grids import Grid
from landbalance.config.learning import (
    Evaluate,
    Experiment,
    Map,
    Model,
    Optimiser,
    Profile,
    Report,
    Training,
)
from landbalance.config.load import Config, load_config, parse_config
from landbalance.config.scenes import Folders, RasterLabels, Scene, VectorLabels
from landbalance.config.split import BlockSplit, ColumnSplit, ListSplit, PolygonSplit, RandomSplit, SceneSplit, Tiles

__all__ = [
    "BlockSplit",
    "ClassInfo",
    "ColumnSplit",
    "Config",
    "Dataset",
    "Evaluate",
    "Experiment",
    "Folders",
    "Grid",
    "ListSplit",
    "Map",
    "Model",
    "Optimiser",
    "PolygonSplit",
    "Profile",
    "RandomSplit",
    "RasterLabels",
    "Report",
    "Scene",
    "SceneSplit",
    "Source",
    "Tiles",
    "Training",
    "VectorLabels",
    "load_config",
    "parse_config",
]
