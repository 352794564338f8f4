"""The map stage: the class of every pixel of a scene, as a Cloud-Optimized GeoTIFF that a GIS shows at once."""

from landbalance.map.stage import run

__all__ = ["run"]
