"""Detection of losses and gradients that are not finite, without a device synchronisation."""

import torch
from torch import Tensor
from torch.optim import Optimizer

from mtcon_ray.errors import DivergedError


class Watch:
    """The first step with a non-finite gradient or loss, recorded on the device.

    From this step on, a fused optimizer passed to `guard` changes neither parameters nor its own
    state. The host can therefore `check` later and less often. A check is a device synchronisation.
    """

    def __init__(self) -> None:
        # float64: 1 if the step is bad, step, norm of the gradient (first bad step, else last).
        self._numbers: Tensor | None = None

    def see(
        self, norm: Tensor, objective: Tensor, *, step: float | Tensor, is_scaled: bool = False
    ) -> None:
        """Records the scalars of a step, counted from 0. Call it before the optimizer's step.

        The gradient of a scaled loss may overflow, and its scaler then skips the step. In a CUDA
        graph the step is a tensor on the device, and its value changes between replays.
        """
        watched = objective if is_scaled else norm + objective
        bad, wide = watched.isfinite().logical_not().double(), norm.double()
        # Filled on the device: a copy from the host would be a device synchronisation.
        when = step.double() if isinstance(step, Tensor) else wide.new_full((), step)
        numbers = torch.stack([bad, when, wide])
        if self._numbers is None:
            self._numbers = numbers
        else:
            # In place, because a CUDA graph reads and writes the same memory in each replay.
            torch.where(self._numbers[0] > 0, self._numbers, numbers, out=self._numbers)

    def guard(self, optimizer: Optimizer) -> None:
        """Makes a fused optimizer's next step a no-op if a step was bad.

        A plugin's optimizer that is not fused makes the step, and the next `check` ends the
        training.
        """
        assert self._numbers is not None
        if optimizer.defaults.get("fused"):
            # The attribute by which torch's GradScaler does the same. Fused kernels read it.
            optimizer.found_inf = self._numbers[0].float()  # type: ignore[attr-defined]

    def check(self) -> None:
        """Raises DivergedError naming the first bad step, if a step was bad."""
        if self._numbers is None or not self._numbers[0].item():
            return
        _, step, norm = self._numbers.tolist()
        raise DivergedError(
            f"gradient and loss must be finite, got a gradient of norm {norm:.4g} at step "
            f"{step + 1:.0f}; lower train.lr or lengthen train.warmup_epochs"
        )
