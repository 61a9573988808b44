"""The optimizer with its parameter groups, LARS, the learning rate of a step, and a watch.

The watch finds losses and gradients that are not finite, without a device synchronisation.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mtcon_ray.errors import DivergedError, SpecError
from mtcon_ray.methods import Method
from mtcon_ray.models.optimizers import SGD
from mtcon_ray.spec.optimizers import OPTIMIZERS, AdamSpec, LarsSpec
from mtcon_ray.spec.train import TrainSpec

# Length of a step relative to the length of the weights, at rate 1 and without momentum. The
# authors of LARS, SimCLR, BYOL and Barlow Twins all use this value.
TRUST = 0.001


class Lars(SGD):
    """LARS of You et al. 2017, arXiv:1708.03888, in the form of Barlow Twins, arXiv:2103.03230.

    A parameter group with the key `adapted_decay`, its weight decay, is adapted: the gradient
    g + decay * p of each parameter p is multiplied by TRUST * |p| / |g + decay * p|, unless a norm
    is 0. Other groups are trained by SGD. Momentum and step are SGD's in all groups. A new learning
    rate therefore also scales the momentum of earlier steps, whereas in You et al. and SimCLR each
    step enters the momentum with its own rate.

    A step overwrites the gradients of adapted groups.
    """

    # The ratio is not taken within torch's kernel, because it has no rate per parameter. The kernel
    # still makes the step, since it can skip a step without a device synchronisation. A closure
    # would recompute the gradients after they are scaled, so closures are not supported.
    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Makes a step."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if "adapted_decay" in group and weights:
                gradients = [p.grad for p in weights]
                torch._foreach_add_(gradients, weights, alpha=group["adapted_decay"])
                torch._foreach_mul_(gradients, _ratios(weights, gradients))
        super().step(closure)


def _ratios(weights: list[Tensor], gradients: list[Tensor]) -> tuple[Tensor, ...]:
    """Returns the factor on each gradient, scalars. It is 1 if weights or gradient are 0."""
    weight_P = torch.stack(torch._foreach_norm(weights))
    gradient_P = torch.stack(torch._foreach_norm(gradients))
    ratio_P = TRUST * weight_P / gradient_P
    return torch.where((weight_P > 0) & (gradient_P > 0), ratio_P, 1.0).unbind()


def make_optimizer(network: nn.Module, method: Method, spec: TrainSpec) -> Optimizer:
    """Returns the spec's optimizer, with learning rate 0 until `set_lr` sets each step's.

    Weight decay applies to the network's matrices and kernels (two axes or more). It does not apply
    to its biases and normalisation parameters, nor to the method's own parameters: decay would pull
    log sigma of learned task weights towards 0. So there are two groups for each `lr_group` of the
    method for the network's parameters (most methods have a single group), and then the method's.
    A plugin's class is called with the groups and its section.

    LARS adapts exactly the decayed parameters. The optimizer is fused on every device: it is fast,
    and only a fused optimizer can be stopped by a flag on the device.
    """
    own, make = spec.optimizer, OPTIMIZERS[spec.optimizer.name]
    # LARS applies its decay itself. The decay of SGD below it is then 0, the default.
    decay = "adapted_decay" if isinstance(own, LarsSpec) else "weight_decay"
    split: dict[int, tuple[list[nn.Parameter], list[nn.Parameter]]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decayed, kept = split.setdefault(method.lr_group(name), ([], []))
            (decayed if parameter.ndim >= 2 else kept).append(parameter)
    groups: list[dict[str, Any]] = []
    for index, (decayed, kept) in sorted(split.items()):
        groups.append({"params": decayed, decay: spec.weight_decay, "lr_group": index})
        groups.append({"params": kept, "weight_decay": 0.0, "lr_group": index})
    groups.append({"params": list(method.parameters()), "weight_decay": 0.0})
    # torch rejects an empty optimizer, as for an encoder without parameters and no heads.
    filled = [g for g in groups if g["params"]] or [{"params": [torch.zeros(0)]}]
    fields: Any = own.model_dump(exclude={"name", "beta2"})
    momentum: dict[str, Any] = {"momentum": spec.momentum}
    fields |= {"betas": (spec.momentum, own.beta2)} if isinstance(own, AdamSpec) else momentum
    is_plugin = hasattr(make, "Spec")
    made: Optimizer = make(filled, own) if is_plugin else make(filled, lr=0.0, fused=True, **fields)
    return made


def set_lr(optimizer: Optimizer, lr: float, scales: tuple[float, ...] = (1.0,)) -> None:
    """Sets every group's learning rate of the next step, times the scale of its `lr_group`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * scales[group.get("lr_group", 0)]


def match_strides(parameters: Iterable[nn.Parameter]) -> None:
    """Copies a gradient into its parameter's strides if its own strides differ.

    Autograd may choose another stride for an axis of length 1, where it has no meaning. CUDA's
    fused optimizers compare all strides and refuse such a gradient.
    """
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(gradient)


def start_momentum(optimizer: Optimizer) -> None:
    """Gives parameters with their first gradient a momentum of 0, with which SGD starts as without.

    Fused SGD requires momenta of all parameters of a group or of none, and in a later phase of
    training some parameters may have their first gradient.
    """
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else ():
        for parameter in group["params"] if group["momentum"] else ():
            if parameter.grad is not None and "momentum_buffer" not in optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def lr_at(step: int, spec: TrainSpec, *, steps_per_epoch: int) -> float:
    """Returns the learning rate of a step, counted from 0.

    During warm-up it rises on a line with value 0 one step before the first step. It reaches the
    peak, scaled with the batch by `lr_scaling`, after warmup_epochs (they may end within a step).
    So no step has rate 0. Then it follows the schedule.
    """
    exponent = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[spec.lr_scaling]
    peak = spec.lr * math.pow(spec.batch_size / 256, exponent)
    warmup = spec.warmup * steps_per_epoch
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    last = spec.epochs * steps_per_epoch - 1
    schedule, moment = spec.lr_schedule, (step - warmup, last - warmup, steps_per_epoch)
    share = schedule.share(*moment, spec.lr_final)
    if not (isinstance(share, int | float) and 0 <= share < math.inf):
        raise SpecError(f"schedule {schedule.name!r}: a share must be at least 0, got {share!r}")
    return peak * share


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
