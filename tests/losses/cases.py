"""Inputs and reference values of cases A and D, random rows, and relations with their weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.contrastive import contrast
from mtcon_ray.losses.positives import EqualLabel, LabelSets, OwnView, Relation

# Names of two tasks.
TASKS = ("shape", "colour")
VALUES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "unit_values.json").read_text())

# Case D: rows of the first view, of the second view, and of the queue.
MATRICES: dict[str, list[list[float]]] = {
    "H": [[1, 0, 2], [0, 1, 1], [2, 1, 0], [1, 1, 1]],
    "G": [[1, 0.5, 2], [0.2, 1, 0.8], [1.5, 1, 0.1], [1, 0, 1]],
    "queue": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [-1, 0, 1]],
}


def at_angles(degrees_VB: list[list[float]]) -> Tensor:
    """Returns rows z_BVD on the unit circle."""
    angle_BV = torch.tensor(degrees_VB, dtype=torch.float64).T.deg2rad()
    return torch.stack([angle_BV.cos(), angle_BV.sin()], dim=2)


def case_a(*tasks: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns rows [B, V, 2] and labels of two tasks."""
    angles, labels = VALUES["A"]["angles_by_head"], VALUES["A"]["labels_by_task"]
    z_by_task = dict(zip(tasks, map(at_angles, angles), strict=True))
    return z_by_task, dict(zip(tasks, map(torch.tensor, labels), strict=True))


def case_c() -> Tensor:
    """Returns the rows of case C, those of case A's first head, [4, 2, 2]."""
    return at_angles(VALUES["A"]["angles_by_head"][0])


def raw(name: str) -> Tensor:
    """Returns one of case D's matrices, float64."""
    return torch.tensor(MATRICES[name], dtype=torch.float64)


def unit(name: str) -> Tensor:
    """Returns one of case D's matrices with unit rows."""
    return F.normalize(raw(name), dim=1)


def random_rows(*shape: int, seed: int) -> Tensor:
    """Returns random unit rows, float64."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def contrastive(z_BVD: Tensor, relation: Relation, *, temperature: Any, **options: Any) -> Tensor:
    """Returns the contrastive loss in one space."""
    return contrast([z_BVD], relation, temperature, **options)[0]


# Labels of six items by two columns, and their label sets. Some are unknown.
LABELS = torch.tensor([[0, 0, 7, -1, 7, -1], [3, 2, 2, 2, -1, 1]])
SETS = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [-1, -1, -1], [1, 1, -1], [0, 0, 0]])
RELATIONS: dict[str, Callable[[], Relation]] = {
    "own view": OwnView,
    "equal label": lambda: EqualLabel(LABELS),
    "sets": lambda: LabelSets(SETS, threshold=0.3),
}


def weight_of_sets(a: list[int], b: list[int], percent: int) -> float | None:
    """Returns the weight of a pair, or None. The threshold is in whole percent.

    It is the sum of minima over the sum of maxima, over the labels known in both.
    """
    both = [(x, y) for x, y in zip(a, b, strict=True) if x != -1 and y != -1]
    inter, union = sum(map(min, both)), sum(map(max, both))
    if not both or 100 * inter < percent * union:
        return None
    return inter / union if union else 1.0


def weight_of(name: str, h: int, i: int, j: int) -> float | None:
    """Returns the weight of item j's views for item i's in space h, None if they are no positives.

    The name is one of RELATIONS.
    """
    if name == "sets":
        return weight_of_sets(SETS[i].tolist(), SETS[j].tolist(), percent=30)
    is_positive = i == j if name == "own view" else LABELS[h, i] == LABELS[h, j] != -1
    return 1.0 if is_positive else None


def reference(
    z_HBVD: Tensor, weight_of: Callable[[int, int, int], float | None], temperature_H: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the loss per anchor [H, N], 0 without a positive, and whether each has a positive.

    This is the equation as it is written: Khosla et al. 2020, arXiv:2004.11362, eq. 2, with
    weighted positives. weight_of(h, i, j) is the weight of item j's views for item i's in space h,
    or None. An anchor is never its own positive.
    """
    H, B, V, _ = z_HBVD.shape
    found = [[[weight_of(h, i, j) for j in range(B)] for i in range(B)] for h in range(H)]
    numbers = [[[torch.nan if w is None else w for w in row] for row in rows] for rows in found]
    weight_HBB = torch.tensor(numbers, dtype=torch.float64)
    weight_HNN = weight_HBB.repeat_interleave(V, dim=1).repeat_interleave(V, dim=2)
    itself_NN, z_HND = torch.eye(B * V, dtype=torch.bool), z_HBVD.flatten(1, 2)
    is_positive_HNN = ~weight_HNN.isnan() & ~itself_NN
    logits_HNN = z_HND @ z_HND.mT / temperature_H[:, None, None]
    logsumexp_HN1 = logits_HNN.masked_fill(itself_NN, -torch.inf).logsumexp(dim=2, keepdim=True)
    loss_HNN = weight_HNN.nan_to_num() * (logsumexp_HN1 - logits_HNN)
    sum_HN = loss_HNN.where(is_positive_HNN, 0.0).sum(dim=2)
    return sum_HN / is_positive_HNN.sum(dim=2).clamp(min=1), is_positive_HNN.any(dim=2)
