"""Tile: cut scenes and labels, or folders of images, into a store of tiles split for train, validation and test.

`landbalance.tile.stage` runs it; `blocks` lays blocks and tiles, `labels` reads and burns polygons, `split`
draws the splits, `scenes` and `folders` fill the store, `statistics` and `write` describe and write it.
"""

from landbalance.tile.stage import run

__all__ = ["run"]
