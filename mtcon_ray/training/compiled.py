"""The network as CUDA graphs (`train.compile: graphs`)."""

import logging
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch

log = logging.getLogger(__name__)

Compile = Literal["none", "graphs"]


class Compiled(nn.Module):
    """A network by torch.compile with CUDA graphs; uncompiled, with one warning, if that fails.

    Evaluation and checkpoints use the network itself.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._call: Callable[[Tensor], dict[str, Tensor]] | None = None
        if not any(parameter.is_cuda for parameter in network.parameters()):
            self._give_up("CUDA graphs need a GPU")
        elif any(isinstance(module, nn.SyncBatchNorm) for module in network.modules()):
            # A capture cannot contain its exchange, in which the host waits for the GPU.
            self._give_up("global batch norm exchanges moments; model.batch_norm: local does not")
        else:
            # Its import takes a second.
            from torch._inductor import config as inductor

            # Inductor would start a process for each core of the node, whatever a trial may use.
            inductor.compile_threads = torch.get_num_threads()
            # Frees the graphs of the process's earlier trainings and their recompilation count.
            torch.compiler.reset()
            # With fullgraph a failure comes before anything has run: no running moment has moved.
            self._call = torch.compile(
                network.forward, fullgraph=True, dynamic=False, mode="reduce-overhead"
            )

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Each head's rows."""
        if self._call is not None:
            # An earlier chunk's gradients may lie in memory that this replay overwrites.
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.clone()
            torch.compiler.cudagraph_mark_step_begin()
            try:
                # Compiles the backward too: a failure within `backward()` would end the training.
                with functorch.patch(force_non_lazy_backward_lowering=True):
                    # Cloned, for the next replay overwrites its outputs.
                    return {head: z_ND.clone() for head, z_ND in self._call(x_NCHW).items()}
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # torch.compile raises errors of any type
                cause = getattr(error, "inner_exception", error)
                first_line = str(cause).strip().partition("\n")[0]
                self._give_up(f"compiling failed: {type(cause).__name__}: {first_line}")
        z_by_head: dict[str, Tensor] = self.network(x_NCHW)
        return z_by_head

    def _give_up(self, reason: str) -> None:
        self._call = None
        log.warning("train.compile graphs: trains without, for %s", reason)
