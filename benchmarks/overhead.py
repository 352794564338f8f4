"""What exact weighting costs: steps on two workers with equal shares, ours against stock DistributedDataParallel.

All have the same model, memory format, optimiser and DDP settings. In every turn each variant takes one step,
in an order drawn anew, from a barrier outside the clock to the end of the slower worker's step: noise of the
machine meets all alike. `ddp_over_ddp` is stock DDP against itself: what the other ratios can resolve.

    python benchmarks/overhead.py [--quick]

prints one JSON object. Figures that compare are medians of the ratios turn by turn; `….low` and `….high` bound
them with a confidence of 95 %.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from comparison import Case, write_tiles
from landbalance.batches import BatchReader
from landbalance.config.learning import Model, Optimiser
from landbalance.distributed.batchnorm import with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.group import Communicator, joined
from landbalance.distributed.launch import LocalWorker, run_workers
from landbalance.distributed.place import place_in_job
from landbalance.distributed.reduction import sum_in_group
from landbalance.files import read_json, write_json
from landbalance.models import build_model
from landbalance.objective import summed_loss
from landbalance.optimiser import build_optimiser
from landbalance.tiles import IGNORED, TileStore, open_tiles
from landbalance.weighting import start_totals, sum_gradients
from measuring import benchmark_result

UNET = Model(architecture="unet", encoder="resnet18", depth=3, width=16)
SHARE = 16
Step = Callable[[], None]


def stock_step(model: Model, images: torch.Tensor, labels: torch.Tensor) -> Step:
    """Return a step of plain DDP: local batch norm, mean loss, averaged gradients."""
    torch.manual_seed(0)
    bare = build_model(model, images.shape[1], 3).train()
    network = DistributedDataParallel(bare, forward_sync_buffers=False, gradient_as_bucket_view=True)
    optimiser = build_optimiser(network, Optimiser())
    loss_of = nn.CrossEntropyLoss(ignore_index=IGNORED)

    def step() -> None:
        torch.autograd.backward(loss_of(network(images), labels))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def weighted_step(
    model: Model, images: torch.Tensor, labels: torch.Tensor, global_norm: bool, sent: torch.dtype = torch.float32
) -> Step:
    """Return a step of ours: weighted loss sums, summed gradients sent as `sent`, batch norm global or local."""
    torch.manual_seed(0)
    clock = Clock(torch.device("cpu"))
    bare = build_model(model, images.shape[1], 3).train()
    if global_norm:
        group = dist.new_group()
        assert isinstance(group, dist.ProcessGroup)
        with_global_batch_norm(bare, Communicator(clock, group))
    network = DistributedDataParallel(bare, forward_sync_buffers=False, gradient_as_bucket_view=True)
    sum_gradients(network, clock, sum_in_group(), sent)
    optimiser = build_optimiser(network, Optimiser())
    weight = float((labels != IGNORED).sum())

    def step() -> None:
        clock.start()
        totals = start_totals("balanced", weight, False, False)
        loss = summed_loss(network(images), labels, None)
        totals.wait(clock)
        torch.autograd.backward(loss * totals.loss_factor)
        clock.resume()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        clock.pause()

    return step


def turns(steps: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Return the step times of each variant, the slower worker's, turn by turn."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    # The same order on all workers, and no variant always after the same other one.
    random = np.random.default_rng(0)
    for turn in range(repeats + 3):
        for name in random.permutation(list(steps)).tolist():
            dist.barrier()
            began = time.perf_counter()
            steps[name]()
            seconds = torch.tensor([time.perf_counter() - began])
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            if turn >= 3:
                times[name].append(float(seconds))
    return times


def input_times(store: TileStore, repeats: int) -> tuple[float, float]:
    """Return median seconds to make a worker's augmented batch, and images per second read from shuffled tiles."""
    reader = BatchReader(store, None, True, 0)
    random = np.random.default_rng(0)
    ids = store.ids("train")
    made, read = [], []
    for epoch in range(repeats):
        chosen = random.permutation(ids)[:SHARE]
        began = time.perf_counter()
        reader.batch(chosen, epoch)
        made.append(time.perf_counter() - began)
        began = time.perf_counter()
        store.read(chosen)
        read.append(time.perf_counter() - began)
    return float(np.median(made)), SHARE / float(np.median(read))


def work(folder: Path, repeats: int) -> None:
    """Be one worker; rank 0 writes the times."""
    place = place_in_job()
    assert place is not None
    torch.set_num_threads(1)
    store = open_tiles(folder / "tiles")
    with joined(place, 120):
        batch = BatchReader(store, None, False, 0).batch(store.ids("train")[:SHARE], None)
        images, labels = batch.images, batch.labels
        group_norm = UNET.model_copy(update={"norm": "group"})
        times = turns(
            {
                "stock": stock_step(group_norm, images, labels),
                "stock_again": stock_step(group_norm, images, labels),
                "group": weighted_step(group_norm, images, labels, False),
                "bfloat16": weighted_step(group_norm, images, labels, False, torch.bfloat16),
            },
            repeats,
        )
        norms = turns(
            {
                "group_norm": weighted_step(group_norm, images, labels, False),
                "local": weighted_step(UNET, images, labels, False),
                "global": weighted_step(UNET, images, labels, True),
            },
            repeats // 2,
        )
        made, per_second = input_times(store, repeats)
        if place.rank == 0:
            write_json(folder / "times.json", {"times": times | norms, "made": made, "per_second": per_second})
        dist.barrier()


def ratio(name: str, ours: list[float], other: list[float]) -> dict[str, float]:
    """Return the median of the ratios turn by turn, and its 95 % bounds by order statistics (the sign test's)."""
    each = np.sort(np.array(ours) / np.array(other))
    reach = 0.98 * np.sqrt(len(each))
    low, high = max(0, int(len(each) / 2 - reach)), min(len(each) - 1, int(np.ceil(len(each) / 2 + reach)))
    return {name: float(np.median(each)), f"{name}.low": float(each[low]), f"{name}.high": float(each[high])}


def main() -> None:
    """Measure and print, or be a worker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Path(options.worker[0]), int(options.worker[1]))
        return
    repeats = 60 if options.quick else 600
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        case = Case("overhead", ((SHARE, SHARE),), samples=256)
        write_tiles(folder / "tiles", case, bands=13)
        command = [sys.executable, __file__, "--worker", str(folder), str(repeats)]
        run_workers(command, [LocalWorker(f"worker {rank}", 1) for rank in range(2)])
        found = read_json(folder / "times.json")
    times = found["times"]
    figures = {
        **ratio("hook_over_ddp", times["group"], times["stock"]),
        **ratio("ddp_over_ddp", times["stock_again"], times["stock"]),
        **ratio("bfloat16_sums_over_float32", times["bfloat16"], times["group"]),
        **ratio("syncbn_over_local", times["global"], times["local"]),
        **ratio("groupnorm_over_local", times["group_norm"], times["local"]),
        "input_share_of_step": found["made"] / float(np.median(times["group"])),
        "store_images_per_second": found["per_second"],
    }
    conditions = {"workers": 2, "share": SHARE, "tile": "13 bands of 32 × 32", "repeats": repeats, "backend": "gloo"}
    print(json.dumps(benchmark_result("overhead", conditions, figures), indent=2))


if __name__ == "__main__":
    main()
