"""The evaluate stage: how good a trained model is on the test split, beside a random forest."""

from landbalance.evaluate.stage import run

__all__ = ["run"]
