"""Timing real training steps on one worker, while the others of its node do the same."""

import logging
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median

import psutil
import torch
import torch.distributed as dist
from torch import nn

from landbalance.cluster import Node
from landbalance.config import Config
from landbalance.config.learning import Model, Optimiser
from landbalance.distributed.batchnorm import SinglePixelError, collectives_per_step, with_global_batch_norm
from landbalance.distributed.clock import Clock
from landbalance.distributed.device import cuda_device
from landbalance.distributed.group import Communicator, joined
from landbalance.distributed.launch import end_with_launcher
from landbalance.distributed.place import place_in_job
from landbalance.errors import UserError
from landbalance.files import write_json
from landbalance.layout import Layout
from landbalance.models import build_model
from landbalance.objective import summed_loss
from landbalance.optimiser import build_optimiser
from landbalance.profile.job import batch_sizes, expanded
from landbalance.profiles import AllReduce, Curve, Machine, NodeProfile
from landbalance.progress import Progress
from landbalance.tiles import StoreInfo, open_tiles

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 600.0
_ALLREDUCE_REPEATS = 20


def measure(dataset: str, model: str, node: Node, config: Config, layout: Layout) -> None:
    """Be one worker of the node's measurement; rank 0 writes the profile."""
    place = place_in_job()
    assert place is not None
    end_with_launcher()
    logging.getLogger().setLevel(logging.INFO if place.rank == 0 else logging.WARNING)
    workers = expanded(node)
    worker = workers[place.rank]
    device = torch.device("cpu")
    if worker.device == "cuda":
        device = cuda_device(sum(other.device == "cuda" for other in workers[: place.rank]), node.name)
    torch.set_num_threads(worker.threads)
    info = open_tiles(layout.tile(dataset)).info
    sizes = batch_sizes(config, dataset, model)
    with joined(place, _TIMEOUT_SECONDS):
        clock = Clock(device, worker.slowdown)
        step = _TrainingStep(config.models[model], info, clock)
        timings = _step_timings(step, sizes, config)
        allreduce = _allreduce(step.network, device) if place.world_size > 1 else None
        everyone: list[tuple[str, dict[int, list[float]]]] = [("", {})] * place.world_size
        dist.all_gather_object(everyone, (_device_name(device), timings))
        if place.rank == 0:
            profile = NodeProfile(
                dataset=dataset,
                model=model,
                node=node.name,
                measured=datetime.now(UTC).isoformat(timespec="seconds"),
                machine=_machine(),
                bands=len(info.bands),
                tile_size=info.tile_size,
                curves=_curves(node, everyone),
                allreduce=allreduce,
            )
            write_json(layout.profile(dataset, model, node.name), profile.model_dump(mode="json"))
            _report(profile)
        dist.barrier()


class _TrainingStep:
    """A training step on fixed tensors: forward, backward and update, as the train stage does them.

    Communication is left out: it is measured by itself.
    """

    def __init__(self, model: Model, info: StoreInfo, clock: Clock) -> None:
        self._info, self._clock = info, clock
        torch.manual_seed(0)
        self._dtype = torch.float64 if model.precision == "float64" else torch.float32
        network = build_model(model, len(info.bands), len(info.classes)).to(clock.device, self._dtype)
        self.network: nn.Module = with_global_batch_norm(network, Communicator(clock)).train()
        # AdamW is the costliest optimiser on offer, and its update takes little of a step.
        self._optimiser = build_optimiser(self.network, Optimiser(name="adamw"))
        self._half = model.precision == "bfloat16"

    def seconds(self, samples: int) -> Callable[[], float]:
        """Return a function that takes a step on `samples` samples and returns the seconds it took."""
        info, device = self._info, self._clock.device
        size = info.tile_size
        shape = (samples, size, size) if info.task == "segmentation" else (samples,)
        images = torch.randn(samples, len(info.bands), size, size, device=device, dtype=self._dtype)
        images = images.contiguous(memory_format=torch.channels_last)
        labels = torch.randint(len(info.classes), shape, device=device)

        def step() -> float:
            self._clock.start()
            with torch.autocast(device.type, torch.bfloat16, enabled=self._half):
                logits = self.network(images)
            torch.autograd.backward(summed_loss(logits, labels, None) / labels.numel())
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
            self._clock.pause()
            return self._clock.computed

        return step


def _step_timings(step: _TrainingStep, sizes: Sequence[int], config: Config) -> dict[int, list[float]]:
    """Return this worker's raw step times by batch size; all workers measure the same size at a time."""
    settings = config.profile
    began = time.monotonic()
    timings: dict[int, list[float]] = {}
    with Progress("profile", len(sizes), "batch size") as progress:
        for number, size in enumerate(sizes):
            spent = torch.tensor([time.monotonic() - began])
            dist.all_reduce(spent, op=dist.ReduceOp.MAX)
            if timings and float(spent) > settings.seconds:
                left = ", ".join(map(str, sizes[number:]))
                _tell("profile.seconds (%g) is used up: batch sizes %s are extrapolated", settings.seconds, left)
                break
            try:
                timings[size] = _together(step.seconds(size), settings.warmup, settings.repeats, f"size {size}")
            except SinglePixelError:
                _tell("batch size %d is not measured: batch norm needs more than one pixel of it", size)
                continue
            progress.advance(note=f"{size} samples: {median(timings[size]):.3f} s")
    if not timings:
        raise UserError("profile.batch_sizes: none could be measured. Give larger ones.")
    return timings


def _tell(message: str, *values: object) -> None:
    """Warn on one worker what all have found."""
    if dist.get_rank() == 0:
        _log.warning(message, *values)


def _together(step: Callable[[], float], warmup: int, repeats: int, key: str) -> list[float]:
    """Return `repeats` timings, and go on stepping until all other workers have theirs.

    So that each timing is taken while the node is as busy as in training.
    """
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    for _ in range(warmup):
        step()
    dist.barrier()
    timings = [step() for _ in range(repeats)]
    store.add(key, 1)
    while store.add(key, 0) < dist.get_world_size():
        step()
    return timings


def _allreduce(network: nn.Module, device: torch.device) -> AllReduce:
    """Return timings of summing a gradient of this network, and a single number, over the node's workers."""
    elements = sum(parameter.numel() for parameter in network.parameters())
    gradient = torch.zeros(elements, device=device)
    number = torch.zeros(1, device=device)
    return AllReduce(
        backend=str(dist.get_backend()),
        world_size=dist.get_world_size(),
        gradient_bytes=gradient.numel() * gradient.element_size(),
        seconds=[_timed_sum(gradient) for _ in range(_ALLREDUCE_REPEATS)],
        latency_seconds=[_timed_sum(number) for _ in range(_ALLREDUCE_REPEATS)],
        collectives_per_step=collectives_per_step(network) + 1,
    )


def _timed_sum(tensor: torch.Tensor) -> float:
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(tensor)
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter() - began


def _curves(node: Node, everyone: Sequence[tuple[str, dict[int, list[float]]]]) -> list[Curve]:
    """Return a curve per entry of the node's workers; timings of its processes stand together."""
    curves, rank = [], 0
    for worker in node.workers:
        members = everyone[rank : rank + worker.count]
        rank += worker.count
        sizes = sorted(members[0][1])
        curves.append(
            Curve(
                title=worker.title,
                device=worker.device,
                device_name=members[0][0],
                count=worker.count,
                emulated=worker.emulated,
                batch_sizes=sizes,
                seconds=[[value for _, timings in members for value in timings[size]] for size in sizes],
                largest_batch=None,
            )
        )
    return curves


def _report(profile: NodeProfile) -> None:
    for curve in profile.curves:
        best = median(curve.seconds[-1])
        size = curve.batch_sizes[-1]
        _log.info("%s: %.1f samples/s at a batch of %d", curve.title, size / best, size)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()


def _processor() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        torch=torch.__version__,
    )
