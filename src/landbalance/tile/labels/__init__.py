"""Labels: read, checked, brought to a scene's grid, and given as a class for each pixel of a window.

`scene` chooses by the configuration: `vector` (polygons, points) or `raster` (a raster of classes); `values` compares
what they hold with the classes.
"""

from landbalance.tile.labels.scene import SceneLabels, require_labels, scene_labels
from landbalance.tile.labels.values import FoundLabels, class_index, report_values

__all__ = ["FoundLabels", "SceneLabels", "class_index", "report_values", "require_labels", "scene_labels"]
