"""Linear probes of classes and label sets on fixed features, trained by SGD as in the papers.

Each label is trained separately, with closed-form gradients instead of autograd.
"""

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.base.metrics import Kind
from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe
from mtcon_ray.spec.evaluate import SGDProbeSpec
from mtcon_ray.spec.problem import UNKNOWN_BIT


def train_probes(
    train: LabelledFeatures,
    num_classes: Mapping[str, int],
    recipe: SGDProbeSpec,
    *,
    seed: int,
    val: LabelledFeatures,
) -> dict[str, LinearProbe]:
    """Returns the probe of each label of `train`, from the epoch with the highest score on `val`.

    The score is the accuracy, or mean average precision for a label set. Labels in `num_classes`
    have classes, all others are label sets. Of equal scores the earliest epoch is chosen.

    The recipe of CCN (Mu and Guttag 2022, "Conditional Contrastive Networks", section 3,
    "Results"): SGD at a constant rate on the mean cross-entropy of each minibatch. Weights start at
    zero, because the problem is convex and no symmetry has to be broken. Minibatches of a label
    hold only its known items. Their order depends on `seed` and on the number of these items.
    Features are not standardised.

    For a label set the loss is the sum over labels of the mean binary cross-entropy over a
    minibatch: each label is trained as if it were alone. The code of MultiSupCon
    (github.com/WolodjaZ/MultiSupContrast) averages over labels, so its effective rate depends on
    their number. An unknown bit has no gradient.

    Raises DivergedError if a logit on `val` is not finite.
    """
    probes: dict[str, LinearProbe] = {}
    for label in train.labels:
        known, size = train.known(label), num_classes.get(label)
        kind: Kind = "set" if size is None else "classes"
        epochs = (
            LinearProbe(kind, label, weight, f"after {epoch} epochs")
            for epoch, weight in enumerate(_epochs(known, label, size, recipe, seed), start=1)
        )
        probes[label] = max(epochs, key=lambda probe: probe.score(val))
    return probes


def _epochs(
    known: LabelledFeatures,
    label: str,
    num_classes: int | None,
    recipe: SGDProbeSpec,
    seed: int,
) -> Iterator[Tensor]:
    """Yields the weights [D + 1, C] after each epoch. `num_classes` is None for a label set."""
    x_ND = torch.cat([known.features, torch.ones_like(known.features[:, :1])], dim=1)
    y = known.labels[label]
    weight = x_ND.new_zeros(x_ND.shape[1], num_classes or y.shape[1])
    velocity = torch.zeros_like(weight)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(recipe.epochs):
        order_N = torch.randperm(len(x_ND), generator=generator).to(x_ND.device)
        for rows in order_N.split(recipe.batch_size):
            x_BD = x_ND[rows]
            logits_BC = x_BD @ weight
            if num_classes is None:
                bits_BC = y[rows]
                error_BC = (logits_BC.sigmoid() - (bits_BC == 1).float()) * (bits_BC != UNKNOWN_BIT)
            else:
                error_BC = logits_BC.softmax(dim=1) - F.one_hot(y[rows], num_classes)
            velocity.addmm_(x_BD.T, error_BC, beta=recipe.momentum, alpha=1 / len(rows))
            velocity.add_(weight, alpha=recipe.weight_decay)
            weight.add_(velocity, alpha=-recipe.lr)
        yield weight.clone()
