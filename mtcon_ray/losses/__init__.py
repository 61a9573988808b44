"""Loss functions for users with their own training loop, independent of the rest of the package.

`z` is [B, V, D] with unit rows: B items in V views. Labels are integers [B], -1 where unknown.
Label sets are [B, L]. Losses are in nats. A temperature is a number, or a tensor with one element,
which may need a gradient. `nt_xent`, `supcon` and `multisupcon` take an option `reduction`: "mean"
or "sum" over the anchors with positives gives a scalar. "none" gives the loss of each anchor,
[B, V], which is 0 for an anchor without positives.

Every function raises ValueError for wrong shapes, embeddings with nan or inf, labels below -1 and
temperatures that are not positive. The message names the argument and its value.
"""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from mtcon_ray.losses.amcl import TemperatureNet, amcl
from mtcon_ray.losses.contrastive import contrast, contrast_by_head
from mtcon_ray.losses.numeric import check_floating, check_rows
from mtcon_ray.losses.positives import EqualLabel, LabelSets, OwnView, Relation, is_known
from mtcon_ray.losses.weighting import penalty_terms
from mtcon_ray.spec.problem import MISSING

__all__ = ["TemperatureNet", "amcl", "mtcon", "multisupcon", "nt_xent", "supcon"]


def nt_xent(z: Tensor, *, temperature: float | Tensor, reduction: str = "mean") -> Tensor:
    """Returns NT-Xent, averaged over the V - 1 positives of each anchor, its other views.

    z is [B, V, D] with unit rows. Chen et al. 2020, arXiv:2002.05709, eq. 1.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)  # two items, two equal views each
    >>> round(nt_xent(z, temperature=0.5).item(), 4)  # log(e^2 + 2) - 2
    0.2395
    """
    return _in_space(z, OwnView(), temperature, reduction)


def supcon(
    z: Tensor, labels: Tensor, *, temperature: float | Tensor, reduction: str = "mean"
) -> Tensor:
    """Returns the supervised contrastive loss in the "out" form.

    z is [B, V, D] with unit rows, labels are [B]. Positives are all other rows with the anchor's
    label. Rows without label stay in every denominator, have no positives and are none. Khosla et
    al. 2020, arXiv:2004.11362, eq. 2.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> round(supcon(z, torch.tensor([0, 0]), temperature=0.5).item(), 4)
    1.5729
    """
    return _in_space(z, _equal_label(labels, z), temperature, reduction)


def mtcon(
    z_by_task: Mapping[str, Tensor],
    labels_by_task: Mapping[str, Tensor],
    *,
    temperature: float | Tensor | Mapping[str, float | Tensor],
    log_variance: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Returns MTCon's loss: the sum over tasks of exp(-s) L + s, or of L without log variances s.

    L is `supcon` of the task. `temperature` is common to all tasks, or a mapping with a temperature
    for each. `log_variance` holds s = log sigma^2, a tensor with one element per task. If no
    anchor of a task has a positive, L = 0 and the task adds no term s. Otherwise s would fall in
    each batch without labels of the task.

    L is a mean over anchors: with sums, s overshoots and the weights exp(-s) vanish for hundreds of
    steps. Mu et al. 2023, arXiv:2307.02712. Raises ValueError also if the mappings have different
    tasks, or if a log variance has several elements.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> labels = {"shape": torch.tensor([0, 0]), "colour": torch.tensor([0, 1])}
    >>> round(mtcon({"shape": z, "colour": z}, labels, temperature=0.5).item(), 4)
    1.8124
    """
    if not z_by_task:
        raise ValueError("z_by_task must hold at least one task, got none")
    _check_tasks("labels_by_task", labels_by_task, z_by_task)
    if isinstance(temperature, Mapping):
        _check_tasks("temperature", temperature, z_by_task)
        temperature = {t: _positive(of, f"temperature[{t!r}]") for t, of in temperature.items()}
    else:
        temperature = dict.fromkeys(z_by_task, _positive(temperature))
    if log_variance is not None:
        _check_tasks("log_variance", log_variance, z_by_task)
        log_variance = {t: _scalar(s, f"log_variance[{t!r}]") for t, s in log_variance.items()}
    # All tasks are checked before the first loss is computed, so errors come at once.
    relations = {task: _equal_label(labels_by_task[task], z) for task, z in z_by_task.items()}
    losses = list(contrast_by_head(z_by_task, relations, temperature))
    # Not task by task: in a small batch each operation costs a hundredth of the time.
    loss_T = torch.cat([of for _, of in losses]) if len(losses) > 1 else losses[0][1]
    _check_finite(loss_T, z_by_task.values())
    if log_variance is None:
        return loss_T.sum()
    s_T = torch.stack([log_variance[task] for tasks, _ in losses for task in tasks])
    return (torch.exp(-s_T) * loss_T + penalty_terms(s_T, loss_T)).sum()


def multisupcon(
    z: Tensor,
    label_sets: Tensor,
    *,
    temperature: float | Tensor,
    threshold: float,
    reduction: str = "mean",
) -> Tensor:
    """Returns MultiSupCon's loss: positives overlap by `threshold` at least and weigh as much.

    z is [B, V, D] with unit rows. label_sets is [B, L] with 0 and 1. Unknown entries are 255 in
    uint8 and -1 in any other dtype. The overlap of two sets is their Jaccard index on the labels
    known in both. It is 1 if both sets are empty there. An item without known labels is treated
    like an item without label in `supcon`. The loss of an anchor is divided by the number of its
    positives, not by the sum of their weights.

    Zaigrajew and Zieba, code at github.com/WolodjaZ/MultiSupContrast. Raises ValueError also for
    a threshold outside [0, 1] and for other entries of label_sets.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> sets = torch.tensor([[1, 1, 0], [1, 0, 0]])  # they overlap by a half
    >>> round(multisupcon(z, sets, temperature=0.5, threshold=0.5).item(), 4)
    0.8264
    >>> round(multisupcon(z, sets, temperature=0.5, threshold=1.0).item(), 4)
    0.2395
    """
    if label_sets.ndim != 2 or len(label_sets) != len(z):
        raise ValueError(f"label_sets must have shape [{len(z)}, L], got {list(label_sets.shape)}")
    known = label_sets[is_known(label_sets)]
    if len(bad := known[(known != 0) & (known != 1)]):
        raise ValueError(f"label_sets must hold 0, 1 or what is unknown, got {bad[0]}")
    return _in_space(z, LabelSets(label_sets, threshold=threshold), temperature, reduction)


def _in_space(z: Tensor, relation: Relation, temperature: float | Tensor, reduction: str) -> Tensor:
    """Returns the contrastive loss of z."""
    check_floating(z)
    loss_H = contrast([z], relation, _positive(temperature), reduction)
    _check_finite(loss_H, [z])
    return loss_H[0]


def _check_finite(loss: Tensor, rows: Iterable[Tensor]) -> None:
    """Raises ValueError if losses are not finite because some rows z_BVD are not.

    Each row is in the denominator of all others, so a single check of the loss covers the rows of
    all spaces. In a small batch a check of each space costs a tenth of the time.
    """
    if not math.isfinite(loss.detach().sum().item()):
        for z in rows:
            check_rows(z)


def _positive(temperature: float | Tensor, name: str = "temperature") -> float | Tensor:
    """Returns a temperature. A tensor with one element becomes a scalar tensor.

    Raises ValueError unless it is a single positive and finite number. `contrast` itself does not
    check it: in training, reading a tensor's value would be a device synchronisation.
    """
    value = temperature
    if isinstance(temperature, Tensor):
        temperature = _scalar(temperature, name)
        value = temperature.item()
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, got {value}")
    return temperature


def _scalar(value: Tensor, name: str) -> Tensor:
    """Returns a tensor with one element without dimensions. Raises ValueError for another size."""
    if value.numel() != 1:
        shape = list(value.shape)
        raise ValueError(f"{name} must be a number or have one element, got shape {shape}")
    return value.reshape(())


def _equal_label(labels: Tensor, z: Tensor) -> EqualLabel:
    """Returns the positives of one task.

    Raises ValueError for rows of a wrong dtype, and for labels of a wrong shape, dtype or value.
    """
    check_floating(z)
    if labels.shape != z.shape[:1]:
        raise ValueError(f"labels must have shape {[len(z)]}, got {list(labels.shape)}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be of integer dtype, got {labels.dtype}; use labels.long()")
    labels = labels.long()  # in uint8 -1 (unknown) would be 255, which may be a label
    if labels.numel() and int(labels.min()) < MISSING:
        raise ValueError(
            f"labels must be at least -1 (-1 is unknown), got {int(labels.min())} at item "
            f"{int(labels.argmin())}"
        )
    return EqualLabel(labels)


def _check_tasks(name: str, given: Mapping[str, object], z_by_task: Mapping[str, Tensor]) -> None:
    if given.keys() != z_by_task.keys():
        raise ValueError(f"{name} must have the tasks {sorted(z_by_task)}, got {sorted(given)}")
