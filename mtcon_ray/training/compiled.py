"""The network's forward and backward by torch.compile, where that works."""

import logging
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch

from mtcon_ray.fusing import Renewing, reason
from mtcon_ray.models.batch_norm import GlobalBatchNorm
from mtcon_ray.models.network import Network

log = logging.getLogger(__name__)

Compile = Literal["none", "kernels", "graphs"]


class Compiled(nn.Module):
    """Calls the network, compiled as one graph for each shape of a batch; else as it is.

    `graphs` replays CUDA graphs on a GPU besides, and is the same as `kernels` elsewhere. Where
    compiling fails, of the backward too, the reason is logged once, and the network is called as it
    is from then on.
    The network itself stays as it was, for evaluation and checkpoints.
    """

    def __init__(self, network: Network, how: Compile) -> None:
        super().__init__()
        assert how != "none"
        self.network = network
        self._how = how
        self.replays = how == "graphs" and _is_on_gpu(network)
        if self.replays and any(isinstance(m, GlobalBatchNorm) for m in network.modules()):
            self.replays = False
            log.warning(
                "train.compile graphs: compiles kernels alone, for batch norm over several GPUs "
                "exchanges its moments within the network; model.batch_norm: local does not"
            )
        if self.replays:
            # The recordings of a process's earlier trainings would keep their memory.
            torch.compiler.reset()
        # Nothing has happened when one whole graph fails: no moment has moved yet.
        compiled: Callable[[Tensor], dict[str, Tensor]] = torch.compile(
            network.forward,
            fullgraph=True,
            dynamic=False,
            mode="reduce-overhead" if self.replays else None,
        )
        self._call: Renewing[[Tensor], dict[str, Tensor]] | None = Renewing(compiled)

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """What the network gives."""
        if self._call is None:
            plain: dict[str, Tensor] = self.network(x_NCHW)
            return plain
        try:
            if self.replays:
                torch.compiler.cudagraph_mark_step_begin()
            # Else the backward would be compiled, and fail, where nobody can fall back any more.
            with functorch.patch(force_non_lazy_backward_lowering=True):
                z_by_head = self._call(x_NCHW)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler's errors are of any kind
            self.give_up(error)
            return self.forward(x_NCHW)
        # A replay writes where the one before has written.
        return {h: z.clone() for h, z in z_by_head.items()} if self.replays else z_by_head

    def give_up(self, error: Exception) -> None:
        """Call the network as it is from now on, and say why."""
        self._call = None
        self.replays = False
        log.warning("train.compile %s: trains without, for %s", self._how, reason(error))


def _is_on_gpu(network: Network) -> bool:
    return next(network.parameters()).is_cuda


def stop_replays(forward: nn.Module, error: Exception) -> bool:
    """Have a network that replays CUDA graphs called as it is; False if none does.

    A backward's graph is captured within the backward, where only the step can begin anew.
    """
    replaying = [m for m in forward.modules() if isinstance(m, Compiled) and m.replays]
    for module in replaying:
        module.give_up(error)
    return bool(replaying)


def keep_gradients(forward: nn.Module) -> None:
    """Take the gradients out of memory that a network's next replay writes, if it replays."""
    for module in forward.modules():
        if isinstance(module, Compiled) and module.replays:
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.clone()
