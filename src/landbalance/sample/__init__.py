"""A sample for people to label: which points to look at, and what their labels say of a map and of areas.

Scores on the test split say how well a network does where there are labels. How good the map is, and how much forest
there is, only a probability sample of the whole map can say. `design` draws it, `assess` evaluates it.
"""

from landbalance.sample.assess import assess
from landbalance.sample.design import Wanted, design

__all__ = ["Wanted", "assess", "design"]
