import pytest

from landbalance.distributed.heartbeat import _verdict

TITLES = ["cpu, 2 threads", "cuda"]


def sign(beats, steps=7, waits=1):
    return {"beats": beats, "steps": steps, "waits": waits}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([sign(3), sign(9)], [sign(3), sign(12)], "worker 0 (cpu, 2 threads) gives no sign of life since step 7"),
        ([sign(3), sign(9)], [sign(6), sign(12, 8, 0)], "worker 1 (cuda) computes on in step 8"),
        ([{}, sign(9)], [{}, sign(12)], "worker 0 (cpu, 2 threads) gives no sign of life since step 0"),
        ([sign(3), sign(9)], [sign(6), sign(12)], "look at the network"),
        ([sign(3), sign(9)], [sign(6, 7, 0), sign(12, 7, 0)], "look at the network"),
    ],
)
def test_who_is_silent_is_named_before_who_is_slow(before, after, said):
    assert said in _verdict(before, after, TITLES)
