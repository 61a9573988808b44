"""LARS: stochastic gradient descent with steps relative to each layer's weights."""

import torch
from torch import Tensor
from torch.optim import SGD

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
