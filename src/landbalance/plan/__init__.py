"""The plan stage: exact shares of the global batch for unequal workers, and what they promise.

Read in this order: `curves` (step time by batch size), `communication` (time to sum the gradient),
`workers` (all workers of the cluster, with their curves), `problem` and `shares` (the search), `predict`
(speed-ups beside their limits) and `uncertainty` (its interval), `batches` (other global batch sizes), `planning`
(the stage), `whatif` (other nodes).
"""

from landbalance.plan.planning import planned, run
from landbalance.plan.whatif import Scenario, imagined_cluster, what_if

__all__ = ["Scenario", "imagined_cluster", "planned", "run", "what_if"]
