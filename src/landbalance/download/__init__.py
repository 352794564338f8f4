"""Stage 1: fetch a dataset's sources, check them and unpack them into one folder.

`stage` goes through the sources. `fetch` gets the file of one of them (`package` through pip, `transfer` over
http, `cloud` from object stores), `cache` says where it lies and who else may be fetching it. `place` puts it into the
folder, `unpack` and `archives` open it without trusting it, `manifest` says what came of it.
"""

from landbalance.download.cache import offline
from landbalance.download.stage import run

__all__ = ["offline", "run"]
