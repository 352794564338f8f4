"""How long a sum over the workers takes, by its size."""

import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from landbalance.distributed.batchnorm import collectives_per_step
from landbalance.distributed.reduction import StartSum, sum_in_group
from landbalance.profiles import AllReduce, typical

_REPEATS = 20
_PARTS = (64, 16, 4, 1)
"""A whole gradient, and these parts of it, are summed; besides a single number."""


def measured_allreduce(network: nn.Module, device: torch.device, way: str, start_sum: StartSum) -> AllReduce:
    """Return timings of summing a single number, parts of this network's gradient and all of it, and a line through.

    All workers must call it. They sum in one group, and all of the gradient also the `way` that training takes, if
    that is another.
    """
    parameters = list(network.parameters())
    elements = sum(parameter.numel() for parameter in parameters)
    width = parameters[0].element_size()
    sizes = sorted({1, *(max(elements // part, 1) for part in _PARTS)})
    flat = sum_in_group()
    timings = [_timings(flat, torch.zeros(size, device=device, dtype=parameters[0].dtype)) for size in sizes]
    whole = torch.zeros(elements, device=device, dtype=parameters[0].dtype)
    latency, bandwidth = fitted([size * width for size in sizes], [typical(values).median for values in timings])
    return AllReduce(
        backend=str(dist.get_backend()),
        world_size=dist.get_world_size(),
        gradient_bytes=elements * width,
        seconds=timings[-1],
        way=way,
        way_seconds=[] if way == "flat" else _timings(start_sum, whole),
        latency_seconds=timings[0],
        collectives_per_step=collectives_per_step(network) + 1,
        bytes=[size * width for size in sizes],
        timings=timings,
        latency=latency,
        bytes_per_second=bandwidth,
    )


def fitted(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float | None]:
    """Return latency and bandwidth of the line seconds = latency + bytes / bandwidth.

    The model is that of Hockney (1994, 10.1016/S0167-8191(06)80021-9).

    By least squares of relative errors, so that the small sums, which say what latency is, count as much as the
    large ones. A latency below 0 is 0, and without a slope above 0 there is no bandwidth (None).
    """
    times, lengths = np.asarray(seconds, np.float64), np.asarray(sizes, np.float64)
    columns = np.stack([1 / times, lengths / times], axis=1)
    latency, slope = np.linalg.lstsq(columns, np.ones(len(times)), rcond=None)[0].tolist()
    if slope <= 0:
        return float(np.median(times)), None
    if latency < 0:
        return 0.0, float((lengths / times) @ (lengths / times) / (lengths / times).sum())
    return latency, 1 / slope


def _timings(start_sum: StartSum, tensor: torch.Tensor) -> list[float]:
    dist.barrier()
    start_sum(tensor).wait()  # the first one sets up connections and buffers
    return [_timed_sum(start_sum, tensor) for _ in range(_REPEATS)]


def _timed_sum(start_sum: StartSum, tensor: torch.Tensor) -> float:
    began = time.perf_counter()
    start_sum(tensor).wait()
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter() - began
