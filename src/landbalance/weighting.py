"""The weighting of gradients: the one place where the three arms differ.

Let worker i hold the loss sum L_i over its labelled elements, and W_i, the sum of their weights.
One process on the whole batch would minimise Σ L_i / Σ W_i, so the exact gradient is

    Σ_i ∇L_i / Σ_i W_i                                                             (`balanced`)

however the batch is split. Each worker multiplies its loss by 1 / Σ W_i before the backward pass,
and the workers' gradients are *summed*. Σ W_i is known once labels are, so it is reduced while the
forward pass runs. The usual mean of the p workers' mean gradients,

    1/p · Σ_i ∇L_i / W_i                                              (`equal`, `unweighted`)

equals it only if all W_i are equal; with unequal shares each element of a worker with a small
share counts too much.

After Moreno-Álvarez, Paoletti, Cavallaro, Rico-Gallego and Haut, "Remote Sensing Image
Classification Using CNNs With Balanced Gradient for Distributed Heterogeneous Computing", IEEE
GRSL 19, 2022, doi 10.1109/LGRS.2022.3173052, whose weights are amounts of data; weights of labelled
elements make it exact with ignored pixels and class weights too.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from landbalance.config.learning import Arm
from landbalance.distributed.clock import Clock
from landbalance.distributed.reduction import StartSum


@dataclass
class StepTotals:
    """Sums over all workers that a step needs, on their way while the forward pass runs."""

    arm: Arm
    local_weight: float
    _sums: Tensor
    _work: dist.Work

    def wait(self, clock: Clock) -> None:
        """Return when the sums have arrived."""
        with clock.waiting():
            self._work.wait()

    @property
    def loss_factor(self) -> float:
        """Return what to multiply this worker's loss sum by, so that summed gradients are the arm's."""
        if self.arm == "balanced":
            return 1 / self.weight if self.weight else 0.0
        return 1 / (self.local_weight * dist.get_world_size()) if self.local_weight else 0.0

    @property
    def weight(self) -> float:
        """Return Σ W_i."""
        return float(self._sums[0])

    @property
    def computed(self) -> NDArray[np.float64]:
        """Return the seconds that each worker computed in the step before; shape (world size,)."""
        return self._sums[3:].numpy()

    @property
    def stop(self) -> bool:
        """Return whether any worker was asked to stop."""
        return bool(self._sums[1])

    @property
    def checkpoint(self) -> bool:
        """Return whether a checkpoint is due."""
        return bool(self._sums[2])


def start_totals(arm: Arm, weight: float, stop: bool, checkpoint: bool, computed: float = 0.0) -> StepTotals:
    """Begin to sum what a step needs to know of all workers; `computed` are this one's seconds of the step before."""
    sums = torch.zeros(3 + dist.get_world_size(), dtype=torch.float64)
    sums[:3] = torch.tensor([weight, stop, checkpoint], dtype=torch.float64)
    sums[3 + dist.get_rank()] = computed
    work = dist.all_reduce(sums, async_op=True)
    assert work is not None
    return StepTotals(arm, weight, sums, work)


def sum_gradients(network: DistributedDataParallel, clock: Clock, start_sum: StartSum, sent: torch.dtype) -> None:
    """Make `network` sum its gradients over workers, bucket by bucket while the backward pass runs.

    Parameters
    ----------
    start_sum : StartSum
        The way to sum, see `landbalance.distributed.reduction`.
    sent : torch.dtype
        What gradients are sent as: their own type, or bfloat16 for half the traffic and 8 bits of precision.
    """

    def hook(state: None, bucket: GradBucket) -> Future[Tensor]:
        # An accelerator runs ahead of this thread: to wait for it would end the overlap, except at the last bucket.
        if clock.device.type == "cpu" or clock.slowdown > 1 or bucket.is_last():
            clock.pause()
        gradient = bucket.buffer()
        if sent == gradient.dtype:
            return start_sum(gradient)
        return start_sum(gradient.to(sent)).then(lambda future: gradient.copy_(future.value()))

    network.register_comm_hook(None, hook)
