"""Detection of losses and gradients that are not finite, without a device synchronisation."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from mtcon_ray.errors import DivergedError


class Watch:
    """The first step whose gradient or loss is not finite, recorded on the device.

    From that step on, a fused optimizer passed to `guard` changes neither parameters nor its own
    state. The host can therefore `check` later and less often, which is a device synchronisation.
    """

    def __init__(self) -> None:
        self._found: Tensor | None = None  # float32: 1 from the first bad step on, else 0
        self._numbers: Tensor | None = None  # float64: step, lr, norm, losses of that or the last
        self._heads: tuple[str, ...] = ()

    def see(
        self, norm: Tensor, objective: Tensor, losses: Mapping[str, Tensor], *, lr: float, step: int
    ) -> None:
        """Records the scalars of a step, counted from 0; call it before the optimizer's step."""
        bad = (norm + objective).isfinite().logical_not().float()
        wide = norm.double()
        # Filled on the device: a copy from the host would be a device synchronisation.
        known = (wide.new_full((), step + 1), wide.new_full((), lr), wide)
        numbers = torch.stack([*known, *(loss.double() for loss in losses.values())])
        self._heads = tuple(losses)
        if self._found is None or self._numbers is None:
            self._found, self._numbers = bad, numbers
        else:
            self._numbers = torch.where(self._found > 0, self._numbers, numbers)
            self._found = torch.maximum(self._found, bad)

    def guard(self, optimizer: Optimizer) -> None:
        """Makes the fused optimizer's next step a no-op if a step was bad."""
        # The attribute by which torch's GradScaler does the same; fused kernels read it.
        optimizer.found_inf = self._found  # type: ignore[attr-defined]

    def check(self) -> None:
        """Raises DivergedError naming the first bad step, if there was one."""
        if self._found is None or self._numbers is None or not self._found.item():
            return
        step, lr, norm, *values = self._numbers.tolist()
        losses = ", ".join(f"{h} {v:.4g}" for h, v in zip(self._heads, values, strict=True))
        raise DivergedError(
            f"gradient and loss must be finite, got norm {norm:.4g} at step {step:.0f} with lr "
            f"{lr:.4g} and losses {losses}; lower train.lr or lengthen train.warmup_epochs"
        )
