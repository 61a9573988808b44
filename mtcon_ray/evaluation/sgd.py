"""Linear probes of classes and label sets on fixed features, trained by SGD as in the papers.

Each label is trained separately, with closed-form gradients instead of autograd.
"""

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe, Probe, SetProbe
from mtcon_ray.spec.evaluate import LabelSetsSpec, SGDProbeSpec
from mtcon_ray.spec.problem import UNKNOWN_BIT

GAMMA_NEGATIVE, CLIP = 4, 0.05
Course = Iterator[tuple[Tensor, ...]]  # weights after each epoch


def train_probes(
    train: LabelledFeatures,
    num_classes: Mapping[str, int],
    recipe: SGDProbeSpec,
    sets: LabelSetsSpec,
    *,
    seed: int,
    val: LabelledFeatures,
) -> dict[str, LinearProbe]:
    """Returns the probe of each label of `train`, from the epoch with the highest score on `val`.

    The score is the accuracy, or mean average precision for a label set. Labels in `num_classes`
    have classes, all others are label sets. Of equal scores the earliest epoch is chosen, then the
    first learning rate.

    The recipe of CCN (Mu and Guttag 2022, "Conditional Contrastive Networks", section 3,
    "Results"): SGD at a constant rate on the mean cross-entropy of each minibatch. Weights start at
    zero, because the problem is convex and no symmetry has to be broken. Minibatches of a label
    hold only its known items. Their order depends on `seed` and on the number of these items.
    Features are not standardised.

    For a label set the loss is the sum over labels of the mean over a minibatch: each label is
    trained as if it were alone. The code of MultiSupCon (github.com/WolodjaZ/MultiSupContrast)
    averages over labels, so its effective rate depends on their number. An unknown bit has no
    gradient. With sets.ema each epoch has two candidates, its weights and their moving average.

    Raises DivergedError if a logit on `val` is not finite. With several rates, it is raised only
    if this happens with all of them.
    """
    probes: dict[str, LinearProbe] = {}
    for label in train.labels:
        known, size = train.known(label), num_classes.get(label)
        courses = [_epochs(known, label, size, recipe, sets, seed, rate) for rate in recipe.rates]
        probes[label] = _best(courses, SetProbe if size is None else Probe, label, val)
    return probes


def _best(
    courses: list[Course], probe_type: type[Probe | SetProbe], label: str, val: LabelledFeatures
) -> Probe | SetProbe:
    """Returns the best probe on `val` of all epochs of all learning rates (see `_epochs`)."""
    best, highest, failed = None, -math.inf, None
    for epoch, candidates in enumerate(zip(*courses, strict=True), start=1):
        for weight in chain.from_iterable(candidates):
            probe = probe_type(label, weight, f"after {epoch} epochs")
            try:
                value = probe.score(val)
            except DivergedError as error:
                if len(courses) == 1:
                    raise
                failed = error
                continue
            if value > highest:
                best, highest = deepcopy(probe), value  # the next epoch overwrites its weights
    if best is None:
        assert failed is not None
        raise failed
    return best


def _epochs(
    known: LabelledFeatures,
    label: str,
    num_classes: int | None,
    recipe: SGDProbeSpec,
    sets: LabelSetsSpec,
    seed: int,
    rate: float,
) -> Course:
    """Yields the weights [D + 1, C] after each epoch and, with sets.ema, their moving average.

    The next epoch overwrites both. `num_classes` is None for a label set.
    """
    x_ND = torch.cat([known.features, torch.ones_like(known.features[:, :1])], dim=1)
    y = known.labels[label]
    weight = x_ND.new_zeros(x_ND.shape[1], num_classes or y.shape[1])
    # The average starts at the initial weights, which are zero, and needs no bias correction.
    velocity, average = torch.zeros_like(weight), torch.zeros_like(weight)
    ema = sets.ema if num_classes is None else None
    generator = torch.Generator().manual_seed(seed)
    for _ in range(recipe.epochs):
        order_N = torch.randperm(len(x_ND), generator=generator).to(x_ND.device)
        for rows in order_N.split(recipe.batch_size):
            x_BD = x_ND[rows]
            logits_BC = x_BD @ weight
            if num_classes is None:
                error_BC = _error_of_sets(logits_BC, y[rows], sets.loss)
            else:
                error_BC = logits_BC.softmax(dim=1) - F.one_hot(y[rows], num_classes)
            velocity.addmm_(x_BD.T, error_BC, beta=recipe.momentum, alpha=1 / len(rows))
            velocity.add_(weight, alpha=recipe.weight_decay)
            weight.add_(velocity, alpha=-rate)
            if ema is not None:
                average.lerp_(weight, 1 - ema)
        yield (weight,) if ema is None else (weight, average)


def _error_of_sets(logits_BL: Tensor, bits_BL: Tensor, loss: str) -> Tensor:
    """Returns the gradient of the summed loss by the logits, 0 at unknown bits."""
    known_BL, y_BL = bits_BL != UNKNOWN_BIT, bits_BL == 1
    if loss == "bce":
        return (logits_BL.sigmoid() - y_BL.float()) * known_BL
    with torch.enable_grad():  # the caller may have disabled gradients
        leaf_BL = logits_BL.detach().requires_grad_()
        total = (asymmetric_loss(leaf_BL, y_BL) * known_BL).sum()
        return torch.autograd.grad(total, leaf_BL)[0]


def asymmetric_loss(logits: Tensor, is_positive: Tensor) -> Tensor:
    """Returns the asymmetric loss of each decision, of the logits' shape, in nats.

    Ridnik et al. 2021, arXiv:2009.14119, with gamma 4 for negatives, 0 for positives, and a margin
    of 0.05. It is -log p for positives, and -q^4 log(1 - q) with q = max(p - 0.05, 0) for
    negatives. Easy negatives get a low weight. The gradient includes the gradient of q^4.
    """
    p = logits.sigmoid()
    q = (p - CLIP).clamp(min=0)
    negative = -(q**GAMMA_NEGATIVE) * torch.log1p(-q)
    return torch.where(is_positive, -F.logsigmoid(logits), negative)
