"""One of four workers on two nodes: sums many tensors by each way at once, and writes what came out."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from landbalance.distributed.group import joined
from landbalance.distributed.place import place_in_job
from landbalance.distributed.reduction import chosen_way, ways_to_sum
from landbalance.files import write_json
from landbalance.plans import PlannedWorker

NODES = ("a", "a", "a", "b")


def planned(rank, node):
    return PlannedWorker(
        rank=rank, node=node, node_index=0, local_index=0, title=node, device="cpu", threads=1, slowdown=1.0,
        emulated=False, share=1, micro_batch=None, speed=1, predicted_seconds=1, left_out=None,
    )  # fmt: skip


def main():
    place = place_in_job()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    with joined(place, 60):
        ways = ways_to_sum([planned(rank, node) for rank, node in enumerate(NODES)], device)
        sums = {}
        for name, way in ways.items():
            futures = [way(torch.arange(1 + number, dtype=torch.float64) + 10**place.rank) for number in range(20)]
            sums[name] = [future.wait().tolist() for future in futures]
        by_rule = chosen_way(ways, 1000, device, measured=False)
        by_clock = chosen_way(ways, 1000, device, measured=True)
        chosen = [name for name, way in ways.items() if way is by_clock]
        everyone = [None] * place.world_size
        dist.all_gather_object(everyone, (sums, chosen, [name for name, way in ways.items() if way is by_rule]))
        if place.rank == 0:
            write_json(Path(sys.argv[1]), everyone)
        dist.barrier()


if __name__ == "__main__":
    main()
