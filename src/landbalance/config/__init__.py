"""The typed configuration: what is computed (``config.yaml``), not where.

`landbalance.config.data` describes sources, scenes and classes, `landbalance.config.learning` models,
training and outputs, `landbalance.config.load` reads and checks a whole file.
"""

from landbalance.config.data import (
    BlockSplit,
    ClassInfo,
    Dataset,
    Folders,
    PolygonLabels,
    RandomSplit,
    Scene,
    Source,
    Tiles,
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

__all__ = [
    "BlockSplit",
    "ClassInfo",
    "Config",
    "Dataset",
    "Evaluate",
    "Experiment",
    "Folders",
    "Grid",
    "Map",
    "Model",
    "Optimiser",
    "PolygonLabels",
    "Profile",
    "RandomSplit",
    "Report",
    "Scene",
    "Source",
    "Tiles",
    "Training",
    "load_config",
    "parse_config",
]
