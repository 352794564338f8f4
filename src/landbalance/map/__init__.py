"""The map stage: the class of every pixel of a scene, as a Cloud-Optimized GeoTIFF that a GIS shows at once."""

from landbalance.map.mosaic import mosaic
from landbalance.map.stage import run, run_bundle

__all__ = ["mosaic", "run", "run_bundle"]
