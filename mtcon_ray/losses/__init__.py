"""The mathematics alone, for people who bring their own training loop.

`z` is [B, V, D] with unit rows, labels are int64 [B] with -1 where unknown, label sets [B, L];
losses are in nats.
All take `reduction`: "mean" and "sum" over anchors give a scalar, "none" gives [B, V], 0 where
an anchor has no partner. `average_over` says what a mean divides by: anchors that have a partner
("valid") or all of them ("all").

Every function raises ValueError naming the argument and its value for wrong shapes, embeddings
that are not finite, labels out of range and temperatures that are not positive. For
`torch.compile` `nt_xent`, `supcon` and `mtcon` of small batches are one graph, in which values are
not looked at; large ones gain nothing by it.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING
from mtcon_ray.losses.adaptive import TemperatureNet
from mtcon_ray.losses.amcl import amcl
from mtcon_ray.losses.checks import check_finite, check_floating, check_missing
from mtcon_ray.losses.contrastive import check_reduction, contrast, contrastive, joined_temperatures
from mtcon_ray.losses.relations import EqualLabel, OwnView, are_plain, extremes
from mtcon_ray.losses.similarity import LabelSets, is_known

__all__ = ["TemperatureNet", "amcl", "mtcon", "multisupcon", "nt_xent", "supcon"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def nt_xent(
    z: Tensor, *, temperature: float, reduction: str = "mean", average_over: str = "valid"
) -> Tensor:
    """SimCLR's loss, averaged over the V - 1 other views of each anchor (METHODS 1).

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)  # two items, two equal views each
    >>> round(nt_xent(z, temperature=0.5).item(), 4)  # log(e^2 + 2) - 2
    0.2395
    """
    check_floating(z)
    return contrastive(
        z,
        OwnView(),
        temperature=temperature,
        reduction=reduction,
        average_over=average_over,
        check=check_finite,
    )


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
    check_floating(z)
    check_missing(missing)
    return contrastive(
        z,
        _equal_label([labels], z, missing),
        temperature=temperature,
        reduction=reduction,
        average_over=average_over,
        check=check_finite,
    )


def mtcon(
    z_by_task: Mapping[str, Tensor],
    labels_by_task: Mapping[str, Tensor],
    *,
    temperature: float | Mapping[str, float],
    log_variance: Mapping[str, Tensor] | None = None,
    reduction: str = "mean",
    average_over: str = "valid",
    missing: str = "skip",
) -> Tensor | dict[str, Tensor]:
    """Sum over tasks of exp(-s) L + s; without log variances s, the plain sum (METHODS 4, 5).

    L is `supcon` of the task, at its own temperature where a mapping gives one for each. With
    reduction="none" a dict of exp(-s) L by task, [B, V] each, and no s added.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> labels = {"shape": torch.tensor([0, 0]), "colour": torch.tensor([0, 1])}
    >>> round(mtcon({"shape": z, "colour": z}, labels, temperature=0.5).item(), 4)
    1.8124
    """
    _check_tasks(z_by_task, labels_by_task, temperature, log_variance)
    check_missing(missing)
    check_reduction(reduction, average_over)
    for z in z_by_task.values():
        check_floating(z)
    by_task: dict[str, Tensor] = {}
    totals: list[Tensor] = []
    # All labels are looked at before anything is computed.
    groups = [
        (tasks, _equal_label([labels_by_task[t] for t in tasks], z_by_task[tasks[0]], missing))
        for tasks in _alike(z_by_task)
    ]
    for tasks, relation in groups:
        rows = [z_by_task[task] for task in tasks]
        shared: float | Tensor
        if isinstance(temperature, Mapping):
            shared = joined_temperatures([temperature[task] for task in tasks], rows[0])
        else:
            shared = temperature
        total = log_variance is None
        loss = contrast(
            rows, relation, shared, reduction, average_over, total=total, check=check_finite
        ).loss
        if log_variance is not None:
            s_T = torch.stack([log_variance[task] for task in tasks])
            if reduction == "none":
                loss = torch.exp(-s_T)[:, None, None] * loss
            else:
                loss = (torch.exp(-s_T) * loss + s_T).sum()
        if reduction == "none":
            by_task |= dict(zip(tasks, loss.unbind(), strict=True))
        else:
            totals.append(loss)
    if reduction == "none":
        return {task: by_task[task] for task in z_by_task}
    return totals[0] if len(totals) == 1 else torch.stack(totals).sum()


def multisupcon(
    z: Tensor,
    label_sets: Tensor,
    *,
    temperature: float,
    threshold: float,
    reduction: str = "mean",
    average_over: str = "valid",
    missing: str = "skip",
) -> Tensor:
    """MultiSupCon's loss: partners overlap by the threshold, weighed by the overlap (METHODS 10.1).

    label_sets is [B, L] of 0 and 1, or of counts; what is unknown is 255 in uint8, -1 in any
    other type. The overlap is Jaccard's (of counts the weighted one) on the labels known in
    both; sets that are empty there are equal. An item without any known label is treated as
    supcon treats one without label. The normaliser is the number of partners.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)
    >>> sets = torch.tensor([[1, 1, 0], [1, 0, 0]])  # they overlap by a half
    >>> round(multisupcon(z, sets, temperature=0.5, threshold=0.5).item(), 4)
    0.8264
    >>> round(multisupcon(z, sets, temperature=0.5, threshold=1.0).item(), 4)
    0.2395
    """
    check_floating(z)
    check_missing(missing)
    if label_sets.ndim != 2 or label_sets.shape[0] != z.shape[0]:
        shape = list(label_sets.shape)
        raise ValueError(f"label_sets must have shape [{z.shape[0]}, L], got {shape}")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
    known = label_sets[is_known(label_sets)]
    bad = known[~(known >= 0) | known.isinf()]
    if len(bad):
        raise ValueError(f"label_sets must hold 0, 1, counts or what is unknown, got {bad[0]}")
    return contrastive(
        z,
        LabelSets(label_sets, threshold=threshold, counts=bool((known > 1).any()), missing=missing),
        temperature=temperature,
        reduction=reduction,
        average_over=average_over,
        check=check_finite,
    )


def _equal_label(columns: Sequence[Tensor], z: Tensor, missing: str) -> EqualLabel:
    """The relation of the tasks' labels, once they are looked at; all have rows like z."""
    for labels in columns:
        if labels.shape != z.shape[:1]:
            raise ValueError(f"labels must have shape {[len(z)]}, got {list(labels.shape)}")
        if labels.dtype not in _INTEGERS:
            known = ", ".join(map(str, _INTEGERS))
            raise ValueError(
                f"labels must be of an integer dtype ({known}), got {labels.dtype}; "
                "use labels.long()"
            )
        if labels.device != z.device:
            raise ValueError(f"labels must be on z's device {z.device}, got {labels.device}")
    # In uint8 a 255 would equal the -1 of an unknown label.
    labels_TB = torch.stack(list(columns)).long()
    if torch.compiler.is_compiling() or len(z) == 0:
        return EqualLabel(labels_TB, missing=missing, plain=False)
    least, greatest = extremes(labels_TB)
    if least < MISSING:
        labels = next(each for each in columns if int(each.min()) < MISSING)
        raise ValueError(
            f"labels must be at least -1 (-1 is unknown), got {int(labels.min())} at item "
            f"{int(labels.argmin())}"
        )
    return EqualLabel(labels_TB, missing=missing, plain=are_plain(least, greatest))


def _alike(z_by_task: Mapping[str, Tensor]) -> Iterable[list[str]]:
    """Tasks whose losses one computation gives: those with rows of one shape and dtype."""
    groups: dict[tuple[torch.Size, torch.dtype], list[str]] = {}
    for task, z in z_by_task.items():
        groups.setdefault((z.shape, z.dtype), []).append(task)
    return groups.values()


def _check_tasks(z_by_task: Mapping[str, Tensor], *others: object) -> None:
    if not z_by_task:
        raise ValueError("z_by_task must hold at least one task, got none")
    names = ("labels_by_task", "temperature", "log_variance")
    for name, given in zip(names, others, strict=True):
        if isinstance(given, Mapping) and given.keys() != z_by_task.keys():
            raise ValueError(
                f"{name} must have the tasks of z_by_task {sorted(z_by_task)}, got {sorted(given)}"
            )
