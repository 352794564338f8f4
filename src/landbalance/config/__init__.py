"""The typed configuration: what is computed (``config.yaml``), not where.

`landbalance.config.data` describes datasets, `landbalance.config.scenes` their scenes and labels,
`landbalance.config.learning` models, training and outputs, `landbalance.config.load` reads and checks a whole file.
"""

from landbalance.config.data import (
    BlockSplit,
    ClassInfo,
    Dataset,
    RandomSplit,
    Source,
    Tiles,
)
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

__all__ = [
    "BlockSplit",
    "ClassInfo",
    "Config",
    "Dataset",
    "Evaluate",
    "Experiment",
    "Folders",
    "Map",
    "Model",
    "Optimiser",
    "Profile",
    "RandomSplit",
    "RasterLabels",
    "Report",
    "Scene",
    "Source",
    "Tiles",
    "Training",
    "VectorLabels",
    "load_config",
    "parse_config",
]
