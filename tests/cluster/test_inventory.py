"""What Slurm says is read right; the lines are of a real controller, with names changed."""

import pytest

from landbalance.cluster.inventory import gpu_count, gpu_counts, has_features, minutes_of, node_of, partition_of

NODE = (
    "NodeName=g07 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=4.97 AvailableFeatures=a100,ib "
    "ActiveFeatures=a100,ib Gres=gpu:a100:2(S:0-1),scratch:1 NodeAddr=10.1.2.7 NodeHostName=g07 Port=17011 "
    "Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=8000 AllocMem=0 State=DOWN*+DRAIN "
    "ThreadsPerCore=1 Partitions=accel,all  BootTime=2026-11-30T20:39:34 Reason=a fan is broken [root@2026-11-30]"
)
PARTITION = (
    "PartitionName=all AllowGroups=ALL AllowAccounts=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED "
    "MaxTime=1-02:30:00 MinNodes=0 Nodes=fast1,slow[1-2] State=UP TotalCPUs=8"
)


def test_node() -> None:
    node = node_of(NODE)
    assert (node.name, node.address, node.cpus, node.memory_mb) == ("g07", "10.1.2.7", 4, 8000)
    assert (node.features, node.partitions, node.gpus) == (("a100", "ib"), ("accel", "all"), 2)
    assert node.state == "DOWN*+DRAIN"


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("IDLE", True), ("MIXED", True), ("ALLOCATED", True), ("COMPLETING", True), ("IDLE+CLOUD+POWERED_DOWN", True),
        ("DOWN*", False), ("IDLE+DRAIN", False), ("IDLE*", False), ("IDLE+NOT_RESPONDING", False), ("FAIL", False),
    ],
)  # fmt: skip
def test_which_nodes_take_jobs(state: str, available: bool) -> None:
    assert node_of(NODE.replace("DOWN*+DRAIN", state)).available is available


def test_partition() -> None:
    found = partition_of(PARTITION)
    assert (found.name, found.default, found.minutes) == ("all", True, 24 * 60 + 150)


@pytest.mark.parametrize(
    ("text", "minutes"), [("UNLIMITED", None), ("01:00:00", 60), ("30:00", 30), ("7-00:00:00", 10080), ("00:00:30", 0)]
)
def test_time_limits(text: str, minutes: int | None) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    ("gres", "count"),
    [("(null)", 0), ("", 0), ("gpu:2", 2), ("gpu", 1), ("gpu:a100:2(S:0-1)", 2), ("gpu:a:2(S:0,1),gpu:b:1,x:5", 3)],
)
def test_gpus_of_a_gres(gres: str, count: int) -> None:
    assert gpu_count(gres) == count


def test_gpus_by_sort() -> None:
    assert gpu_counts("gpu:a100:2(S:0-1),gpu:v100:1(S:1),scratch:1") == [2, 1]


@pytest.mark.parametrize(
    ("constraint", "fits"), [(None, True), ("a", True), ("c", False), ("a&b", True), ("a&c", False), ("c|b", True)]
)
def test_constraints(constraint: str | None, fits: bool) -> None:
    assert has_features(constraint, ["a", "b"]) is fits
