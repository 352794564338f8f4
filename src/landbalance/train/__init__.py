"""The train stage: one model on all workers of the plan, exactly as one process would train it."""

from landbalance.train.job import Site, run

__all__ = ["Site", "run"]
