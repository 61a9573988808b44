"""Linear probe of one label set on fixed features, trained by SGD as in MultiSupCon."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.data.batch import UNKNOWN_BIT
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.average_precision import mean_average_precision
from mtcon_ray.evaluation.probe import LabelledFeatures, SetProbe
from mtcon_ray.evaluation.spec import LabelSetsSpec, SGDProbeSpec

GAMMA_NEGATIVE, CLIP = 4, 0.05


def train_set_probe(
    label: str,
    train: LabelledFeatures,
    recipe: SGDProbeSpec,
    sets: LabelSetsSpec,
    *,
    seed: int,
    val: LabelledFeatures,
) -> SetProbe:
    """Returns the probe of the epoch with the highest mean average precision on `val`.

    SGD at a constant learning rate from zero weights. The loss is the sum over labels of the mean
    over a minibatch, so that each label is trained as if it were alone. The code of MultiSupCon
    (github.com/WolodjaZ/MultiSupContrast) averages over labels, which makes the effective rate
    depend on their number. An unknown bit has no gradient; an item without a known bit is left
    out. With sets.ema each epoch has two candidates, its weights and their moving average. Several
    learning rates are tried one after the other.

    Raises DivergedError if a logit on `val` is not finite; with several rates, only if this
    happens with all of them.
    """
    epochs = chain.from_iterable(
        _epochs(label, train, recipe, sets, seed, rate) for rate in recipe.rates
    )
    features_ND, bits_NL = val.features, val.labels[label]
    best, highest, failed = None, -1.0, None
    for probes in epochs:
        for probe in probes:
            try:
                value = mean_average_precision(probe.scores(features_ND), bits_NL)
            except DivergedError as error:
                if len(recipe.rates) == 1:
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
    label: str,
    train: LabelledFeatures,
    recipe: SGDProbeSpec,
    sets: LabelSetsSpec,
    seed: int,
    rate: float,
) -> Iterator[tuple[SetProbe, ...]]:
    """Yields the probe after each epoch and, with sets.ema, its moving average.

    The probes are views of weights that the next epoch overwrites.
    """
    is_known_N = (train.labels[label] != UNKNOWN_BIT).any(dim=1)
    features_ND, bits_NL = train.features[is_known_N], train.labels[label][is_known_N]
    x_ND = torch.cat([features_ND, torch.ones_like(features_ND[:, :1])], dim=1)
    weight = x_ND.new_zeros(x_ND.shape[1], bits_NL.shape[1])
    # The average starts at the initial weights, which are zero, and needs no bias correction.
    velocity, average = torch.zeros_like(weight), torch.zeros_like(weight)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(1, recipe.epochs + 1):
        order_N = torch.randperm(len(x_ND), generator=generator).to(x_ND.device)
        for rows in order_N.split(recipe.batch_size):
            x_BD = x_ND[rows]
            error_BL = _error(x_BD @ weight, bits_NL[rows], sets.loss)
            velocity.addmm_(x_BD.T, error_BL, beta=recipe.momentum, alpha=1 / len(rows))
            velocity.add_(weight, alpha=recipe.weight_decay)
            weight.add_(velocity, alpha=-rate)
            if sets.ema is not None:
                average.lerp_(weight, 1 - sets.ema)
        made = f"after {epoch} epochs"
        probes = SetProbe(label, weight, made), SetProbe(label, average, made)
        yield probes if sets.ema is not None else probes[:1]


def _error(logits_BL: Tensor, bits_BL: Tensor, loss: str) -> Tensor:
    """Returns the gradient of the summed loss with respect to the logits; 0 at unknown bits."""
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
    of 0.05. -log p for positives; -q^4 log(1 - q) with q = max(p - 0.05, 0) for negatives, which
    down-weights easy negatives. The gradient includes that of the weight q^4.
    """
    p = logits.sigmoid()
    q = (p - CLIP).clamp(min=0)
    negative = -(q**GAMMA_NEGATIVE) * torch.log1p(-q)
    return torch.where(is_positive, -F.logsigmoid(logits), negative)
