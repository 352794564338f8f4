"""One of four workers, on two nodes or on one: sums many tensors by each way at once, and writes what came out."""

import os
import sys
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

from landbalance.distributed.group import joined
from landbalance.distributed.place import place_in_job
from landbalance.distributed.reduction import Member, chosen_way, ways_to_sum
from landbalance.files import write_json

NODES = {"two": ("a", "a", "a", "b"), "one": ("a", "a", "a", "a"), "walled": ("a", "a", "a", "a")}
PACES = (1.0, 3.0, 0.5, 2.5)
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def members(nodes):
    return [Member(node, 0, "cpu", pace) for node, pace in zip(nodes, PACES, strict=True)]


def large(rank):
    """Return tensors of one value a rank, too large for one piece, whose sum depends on the order of addition."""
    values = torch.rand(200_001, generator=torch.Generator().manual_seed(rank), dtype=torch.float64) * 10.0**rank
    return [values.to(dtype) for dtype in DTYPES]


def sums_of(ways, rank):
    """Return by way what it makes of many tensors at once."""
    sums = {}
    for name, way in ways.items():
        futures = [way(torch.arange(number, dtype=torch.float64) + 10**rank) for number in range(20)]
        sums[name] = [future.wait().tolist() for future in futures]
    return sums


def main():
    place = place_in_job()
    torch.set_num_threads(1)
    device, mine = torch.device("cpu"), {}
    with joined(place, 60):
        for title, nodes in NODES.items():
            # Where processes have numbers of their own, as in containers, this worker's leads the others to nowhere.
            number = 1 if title == "walled" and place.rank == 2 else os.getpid()
            with patch.object(os, "getpid", return_value=number):
                ways = ways_to_sum(members(nodes), device, 60)
            mine[title] = {
                "sums": sums_of(ways, place.rank),
                "by_rule": chosen_way(ways, 1000, device, measured=False),
                "by_clock": chosen_way(ways, 1000, device, measured=True),
            }
            if title == "one" and "memory" in ways:
                found = [ways["memory"](tensor).wait() for tensor in large(place.rank)]
                torch.save(found, Path(sys.argv[1]).with_name(f"large-{place.rank}.pt"))
        everyone = [None] * place.world_size
        dist.all_gather_object(everyone, mine)
        if place.rank == 0:
            write_json(Path(sys.argv[1]), everyone)
        dist.barrier()


if __name__ == "__main__":
    main()
