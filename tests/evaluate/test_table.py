import numpy as np

from landbalance.evaluate.accuracy import scores
from landbalance.evaluate.table import by_class, comparison

RESULT = scores(np.array([[8, 2, 0], [1, 9, 0], [0, 0, 0]]), ["Forest", "Water", "Ice"])


def test_undefined_is_not_available() -> None:
    lines = by_class(RESULT).splitlines()
    assert lines[3].split() == ["Ice", "n/a", "n/a", "n/a", "n/a", "0", "0"]
    assert lines[1].split() == ["Forest", "0.800", "0.889", "0.842", "0.727", "10", "9"]
    assert lines[4].split()[:3] == ["macro", "average", "0.850"]


def test_columns_line_up() -> None:
    lines = comparison({"unet": RESULT, "random forest": RESULT}).splitlines()
    assert lines[1].index("0.850") == lines[2].index("0.850")
