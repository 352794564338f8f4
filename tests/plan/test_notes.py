from types import SimpleNamespace

import pytest

from landbalance.plan.notes import _on_doubt


@pytest.mark.parametrize(("low", "high", "said"), [(0.095, 0.105, False), (0.05, 0.13, True), (None, None, False)])
def test_a_step_time_that_is_hardly_known_is_noted(low, high, said):
    predicted = SimpleNamespace(step_seconds=0.1, step_seconds_low=low, step_seconds_high=high)
    notes = list(_on_doubt(SimpleNamespace(predicted=predicted)))
    assert bool(notes) is said
    assert not said or "only to ±40 %" in notes[0]
