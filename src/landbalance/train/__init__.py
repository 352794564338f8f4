"""The train stage: one model on all workers of the plan, exactly as one process would train it."""

from landbalance.train.allocation import Site
from landbalance.train.job import run

__all__ = ["Site", "run"]
