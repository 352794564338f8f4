"""The profile stage: how long a training step takes on each worker of a node."""

from landbalance.profile.job import run

__all__ = ["run"]
