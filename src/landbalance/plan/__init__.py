"""The plan stage: exact shares of the global batch for unequal workers, and what they promise.

Read in this order: `curves` (step time by batch size), `communication` (time to sum the gradient),
`workers` (all workers of the cluster, with their curves), `shares` (the search), `predict` (speed-ups
beside their limits), `planning` (the stage).
"""

from landbalance.plan.planning import planned, run

__all__ = ["planned", "run"]
