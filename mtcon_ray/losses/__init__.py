"""The mathematics alone, for people who bring their own training loop.

`z` is [B, V, D] with unit rows, labels are int64 [B] with -1 where unknown; losses are in nats.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mtcon_ray.losses.adaptive import TemperatureNet
from mtcon_ray.losses.amcl import amcl
from mtcon_ray.losses.contrastive import contrastive
from mtcon_ray.losses.relations import EqualLabel, OwnView

__all__ = ["TemperatureNet", "amcl", "mtcon", "nt_xent", "supcon"]


def nt_xent(z: Tensor, *, temperature: float, reduction: str = "mean") -> Tensor:
    """SimCLR's loss, averaged over the V - 1 other views of each anchor (METHODS 1).

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)  # two items, two equal views each
    >>> round(nt_xent(z, temperature=0.5).item(), 4)  # log(e^2 + 2) - 2
    0.2395
    """
    return contrastive(z, OwnView(), temperature=temperature, reduction=reduction)


def supcon(
    z: Tensor,
    labels: Tensor,
    *,
    temperature: float,
    reduction: str = "mean",
    average_over: str = "valid",
    missing: str = "skip",
) -> Tensor:
    """Supervised contrastive loss, the "out" form: Khosla 2020, arXiv:2004.11362, eq. 2.

    A row without label stays in every denominator; missing="skip" gives it no partner,
    "self_only" its own other views.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> round(supcon(z, torch.tensor([0, 0]), temperature=0.5).item(), 4)
    1.5729
    """
    if labels.shape != z.shape[:1]:
        raise ValueError(f"labels must have shape {list(z.shape[:1])}, got {list(labels.shape)}")
    if missing not in ("skip", "self_only"):
        raise ValueError(f"missing must be 'skip' or 'self_only', got {missing!r}")
    return contrastive(
        z,
        EqualLabel(labels, missing=missing),
        temperature=temperature,
        reduction=reduction,
        average_over=average_over,
    )


def mtcon(
    z_by_task: Mapping[str, Tensor],
    labels_by_task: Mapping[str, Tensor],
    *,
    temperature: float,
    log_variance: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Sum over tasks of exp(-s) L + s; without log variances s, the plain sum (METHODS 4, 5).

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> labels = {"shape": torch.tensor([0, 0]), "colour": torch.tensor([0, 1])}
    >>> round(mtcon({"shape": z, "colour": z}, labels, temperature=0.5).item(), 4)
    1.8124
    """
    losses = {
        t: supcon(z, labels_by_task[t], temperature=temperature) for t, z in z_by_task.items()
    }
    if log_variance is None:
        return torch.stack(list(losses.values())).sum()
    return torch.stack(
        [torch.exp(-log_variance[t]) * v + log_variance[t] for t, v in losses.items()]
    ).sum()
