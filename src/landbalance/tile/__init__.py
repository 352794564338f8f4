"""Tile: cut scenes and labels, or folders of images, into a store of tiles split for train, validation and test.

`landbalance.tile.stage` runs it. `labels` reads labels of any kind, `blocks` lays blocks and tiles, `cut` cuts one
scene; `parting` (with `split`, `polygons`, `columns`) draws the splits, `masking` takes labels near others away,
`collect` puts the store together. `folders` and `masks` do it for images, which `images` reads. `statistics` and
`write` describe and write the store, `preview` draws some of it.
"""
