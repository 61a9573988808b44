"""Several workers with one loss: each computes its slice of the rows and the whole loss."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mtcon_ray.errors import ResourceError
from mtcon_ray.models.network import Network, make_global


@dataclass(frozen=True)
class Ranks:
    """Rank of this process and number of the trial's processes (torch's default group)."""

    rank: int = 0
    world: int = 1

    def share(self, num_items: int) -> slice:
        """Returns this rank's contiguous slice of a global batch. World must divide num_items."""
        assert num_items % self.world == 0, f"{num_items} items on {self.world} workers"
        size = num_items // self.world
        return slice(self.rank * size, (self.rank + 1) * size)


ALONE = Ranks()

# Seconds of training between two exchanges of whether ranks are asked to stop.
EXCHANGE_SECONDS = 2.0


def gather_rows(z_local: Tensor, ranks: Ranks) -> Tensor:
    """Returns all ranks' rows in rank order. Its backward multiplies this rank's gradient by W.

    With Z = [Z_0 .. Z_{W-1}] and Z_r computed from a copy of the parameters p on rank r, the
    global loss has dL/dp = sum over r of (dL/dZ_r)(dZ_r/dp). Every rank computes the whole L and
    therefore dL/dZ_r without an exchange. Its backward gives the r-th term. DDP averages over
    ranks, and the factor W turns this mean into the sum. With global batch norm Z_r depends on
    other ranks' inputs too. Batch norm's own backward exchanges these terms. They are scaled
    equally, because all ranks carry the same factor W.
    """
    if ranks.world == 1:
        return z_local
    z_all = z_local.new_empty(ranks.world * len(z_local), *z_local.shape[1:])
    dist.all_gather_into_tensor(z_all, z_local.detach().contiguous())
    z_all[ranks.share(len(z_all))] = z_local
    if z_all.requires_grad:
        z_all.register_hook(lambda gradient: ranks.world * gradient)
    return z_all


def parallelise(network: Network, ranks: Ranks, *, batch_norm: str) -> nn.Module:
    """Gives the network global batch norm if requested, and returns the module to call in training.

    This is the network itself, and on several workers DistributedDataParallel around it. The
    network keeps the names of its parameters and buffers, so a checkpoint fits any number of
    workers.
    """
    if ranks.world > 1 and batch_norm == "global":
        make_global(network)
    if ranks.world == 1 or not any(p.requires_grad for p in network.parameters()):
        return network
    forward = DistributedDataParallel(
        network, gradient_as_bucket_view=True, find_unused_parameters=network.skips_parameters
    )
    # DDP must not broadcast rank 0's buffers (running moments) before each forward: with local
    # batch norm each rank has its own, with global they are equal already. Set as an attribute,
    # because torch 2.15 renamed the option.
    forward.broadcast_buffers = False
    return forward


def exchange_gradients(forward: nn.Module, now: bool) -> AbstractContextManager[None]:
    """Returns a context. With now=False, backwards inside skip DDP's all-reduce and accumulate."""
    if isinstance(forward, DistributedDataParallel) and not now:
        return forward.no_sync()
    return nullcontext()


def average_gradients(module: nn.Module, ranks: Ranks) -> None:
    """Replaces the gradients of a small module by their means over ranks.

    For the method's own parameters, a handful. Each rank has the whole gradient already. The mean
    removes differences in the last digit, because they would let the ranks' copies drift apart.
    """
    for parameter in module.parameters() if ranks.world > 1 else ():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks.world


def any_rank(flag: bool, ranks: Ranks, device: torch.device) -> bool:
    """Returns whether the flag is set on any rank, the same on every rank."""
    return bool(_greatest([int(flag)], ranks, device)[0])


def check_same(step: int, folder: Path, ranks: Ranks, device: torch.device) -> None:
    """Raises ResourceError if the ranks have read checkpoints of different steps in a folder."""
    last, minus_first = _greatest([step, -step], ranks, device)
    if last != -minus_first:
        raise ResourceError(
            f"the workers read different checkpoints in {folder}; put storage.root on a file "
            "system that all nodes share"
        )


def _greatest(values: list[int], ranks: Ranks, device: torch.device) -> list[int]:
    """Returns the greatest value of all ranks at each place. Waits for the ranks and the device."""
    if ranks.world == 1:
        return values
    greatest = torch.tensor(values, device=device)
    dist.all_reduce(greatest, op=dist.ReduceOp.MAX)
    return greatest.tolist()


class Agreement:
    """Yes-or-no question with the same answer on every rank, such as whether to stop.

    A single worker asks in each step. With several workers a yes of any rank holds on all. An
    exchange of answers waits for the device, so there is one about every EXCHANGE_SECONDS.
    """

    def __init__(self, question: Callable[[], bool], *, ranks: Ranks, device: torch.device) -> None:
        self._question, self._ranks, self._device = question, ranks, device
        self._began = -math.inf  # time of the last exchange
        self._steps = 0  # since the last exchange
        self._interval = 1  # in steps, the same on all ranks

    def __call__(self) -> bool:
        """Returns the answer before a step, False between two exchanges.

        All ranks must call it in each step.
        """
        if self._ranks.world == 1:
            return self._question()
        self._steps += 1
        if self._steps < self._interval:
            return False
        # The slowest rank's rate holds, because the ranks must agree on the next exchange. The
        # first exchange follows after one step, because the rate is not known before.
        seconds = max(perf_counter() - self._began, 1e-9)
        interval = max(1, int(self._steps * EXCHANGE_SECONDS / seconds))
        mine = [int(self._question()), -interval]
        answer, minus_least = _greatest(mine, self._ranks, self._device)
        self._began, self._steps, self._interval = perf_counter(), 0, -minus_least
        return bool(answer)
