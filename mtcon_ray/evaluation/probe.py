"""Linear probes on fixed features, and training of softmax probes by SGD.

Probes of several labels and learning rates are trained together, with one matrix product for all:
their weights are concatenated to [D + 1, P * C], where P is the number of probes (labels times
rates) and C the largest number of classes, to which all are padded. The probes do not influence
each other; up to rounding, each is the result of training it alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.spec import SGDProbeSpec


@dataclass(frozen=True)
class LabelledFeatures:
    """Features [n, D] of n items, and their labels by name.

    Labels are int64 [n], MISSING where unknown, for classes; uint8 [n, L], UNKNOWN_BIT where
    unknown, for label sets; float64 [n], NaN where unknown, for numbers.
    """

    features: Tensor
    labels: dict[str, Tensor]

    def of(self, labels: Iterable[str]) -> "LabelledFeatures":
        """Returns the same items with only these labels."""
        return LabelledFeatures(self.features, {label: self.labels[label] for label in labels})

    def known(self, label: str) -> "LabelledFeatures":
        """Returns the items whose class of this label is known, with only that label."""
        is_known = self.labels[label] != MISSING
        return LabelledFeatures(self.features[is_known], {label: self.labels[label][is_known]})


@dataclass(frozen=True)
class Probe:
    """Softmax layer of one label: weight [D + 1, C], whose last row is the offset.

    `made` describes the training for messages, such as "after 3 epochs".
    """

    label: str
    weight: Tensor
    made: str

    def predicted(self, data: LabelledFeatures) -> Tensor:
        """Returns the class with the highest logit, int64 [n].

        Raises DivergedError if a logit is not finite.
        """
        logits_NC = _linear(data.features, self.weight, f"probe of {self.label!r} {self.made}")
        return logits_NC.argmax(dim=1)

    def correct(self, data: LabelledFeatures) -> Tensor:
        """Returns True for each correct prediction, bool [n]; False where the label is MISSING.

        Raises DivergedError if a logit is not finite.
        """
        return self.predicted(data) == data.labels[self.label]


@dataclass(frozen=True)
class SetProbe:
    """Layer with one logit per label of a set: weight [D + 1, L], whose last row is the offset.

    `made` is as in `Probe`.
    """

    label: str
    weight: Tensor
    made: str

    def scores(self, features_ND: Tensor) -> Tensor:
        """Returns the logits [n, L]. Raises DivergedError if one is not finite."""
        return _linear(features_ND, self.weight, f"probe of {self.label!r} {self.made}")


def _linear(features_ND: Tensor, weight: Tensor, what: str) -> Tensor:
    logits_NC = torch.addmm(weight[-1], features_ND.to(weight.dtype), weight[:-1])
    if not torch.isfinite(logits_NC).all():
        raise DivergedError(
            f"logits of the {what} must be finite, got inf or nan; look at the encoder's features, "
            "or lower evaluate.probe.lr, which solver sgd has"
        )
    return logits_NC


def train_probes(
    train: LabelledFeatures,
    num_classes: dict[str, int],
    recipe: SGDProbeSpec,
    *,
    seed: int,
    val: LabelledFeatures,
) -> dict[str, Probe]:
    """Returns one probe per label of `train`, from the epoch with the highest accuracy on `val`.

    The recipe of CCN (Mu and Guttag 2022, "Conditional Contrastive Networks", section 3,
    "Results"): SGD at a constant rate on the mean cross-entropy of each minibatch. Weights start at
    zero, because the problem is convex and no symmetry has to be broken. Minibatches of a label
    hold only items where it is known; their order depends on `seed` and on the number of these
    items. Features are not standardised. Of epochs with equal accuracy the first is chosen; with
    several learning rates, the best one on `val`.

    Raises DivergedError if a logit on `val` is not finite; with several rates, only if this
    happens with all of them.
    """
    chosen: dict[str, Probe] = {}
    for labels in _groups_known_together(train):
        epochs = _epochs(labels, train, num_classes, recipe, seed)
        chosen |= _best(epochs, val, len(recipe.rates) > 1)
    return chosen


def _groups_known_together(train: LabelledFeatures) -> list[list[str]]:
    """Returns groups of labels that are known on the same items and can share minibatches."""
    groups: dict[bytes, list[str]] = {}
    for label, value_N in train.labels.items():
        groups.setdefault((value_N != MISSING).cpu().numpy().tobytes(), []).append(label)
    return list(groups.values())


def _best(
    epochs: Iterator[dict[str, Probe]], val: LabelledFeatures, may_diverge: bool
) -> dict[str, Probe]:
    """Returns the best probe of each label on `val`.

    Raises DivergedError if a logit is not finite; with `may_diverge`, only if no probe of a label
    is finite.
    """
    known = {label: val.known(label) for label in val.labels}
    best: dict[str, Probe] = {}
    accuracy: dict[str, float] = {}
    failed: dict[str, DivergedError] = {}
    for probes in epochs:
        for label, probe in probes.items():
            try:
                value = probe.correct(known[label]).float().mean().item()
            except DivergedError as error:
                if not may_diverge:
                    raise
                failed[label] = error
                continue
            if label not in best or value > accuracy[label]:
                accuracy[label] = value
                # A copy: the weight is a view that the next epoch overwrites.
                best[label] = Probe(label, probe.weight.clone(), probe.made)
    hopeless = [label for label in failed if label not in best]
    if hopeless:
        raise failed[hopeless[0]]
    return best


class _State(NamedTuple):
    """Weights and optimizer state of P probes that are trained together."""

    weight: Tensor  # [D + 1, P * C]
    velocity: Tensor  # the same shape
    padding: Tensor  # [P * C]: -inf at classes that a label does not have, else 0
    rate: Tensor  # [P * C]


def _epochs(
    labels: list[str],
    train: LabelledFeatures,
    num_classes: dict[str, int],
    recipe: SGDProbeSpec,
    seed: int,
) -> Iterator[dict[str, Probe]]:
    """Yields the labels' probes after each epoch, one dict per learning rate.

    The probes are views of weights that the next epoch overwrites.
    """
    is_known = train.labels[labels[0]] != MISSING
    features_ND = train.features[is_known]
    x_ND = torch.cat([features_ND, torch.ones_like(features_ND[:, :1])], dim=1)
    y_NL = torch.stack([train.labels[label][is_known] for label in labels], dim=1)
    y_NP = y_NL.repeat(1, len(recipe.rates))
    sizes = [num_classes[label] for label in labels]
    state = _start(x_ND, sizes, recipe.rates)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(1, recipe.epochs + 1):
        order_N = torch.randperm(len(x_ND), generator=generator).to(x_ND.device)
        _train_epoch(state, x_ND[order_N], y_NP[order_N], recipe)
        for of_rate in state.weight.chunk(len(recipe.rates), dim=1):
            weights = of_rate.unflatten(1, (len(labels), max(sizes))).unbind(dim=1)
            yield {
                label: Probe(label, weight[:, :size], f"after {epoch} epochs")
                for label, weight, size in zip(labels, weights, sizes, strict=True)
            }


def _start(x_ND: Tensor, sizes: list[int], rates: tuple[float, ...]) -> _State:
    # Logits of -inf have probability 0 and therefore no gradient: padded weights stay zero.
    padding_LC = x_ND.new_zeros(len(sizes), max(sizes))
    for i, size in enumerate(sizes):
        padding_LC[i, size:] = -torch.inf
    rate = x_ND.new_tensor(rates).repeat_interleave(padding_LC.numel())
    weight = x_ND.new_zeros(x_ND.shape[1], len(rate))
    return _State(weight, torch.zeros_like(weight), padding_LC.flatten().repeat(len(rates)), rate)


def _train_epoch(state: _State, x_ND: Tensor, y_NP: Tensor, recipe: SGDProbeSpec) -> None:
    """Trains for one pass in the given order, by torch.optim.SGD's update without dampening.

    The gradient is computed in closed form, without autograd.
    """
    P = y_NP.shape[1]
    minus_one = x_ND.new_full((1, 1, 1), -1.0)
    for start in range(0, len(x_ND), recipe.batch_size):
        x_BD = x_ND[start : start + recipe.batch_size]
        y_BP = y_NP[start : start + recipe.batch_size]
        B = len(x_BD)
        logits = torch.addmm(state.padding, x_BD, state.weight)
        # d loss / d logits = softmax - onehot, for the mean over the batch divided by B.
        error_BPC = logits.view(B, P, -1).softmax(dim=2)
        error_BPC.scatter_add_(2, y_BP[:, :, None], minus_one.expand(B, P, 1))
        state.velocity.addmm_(x_BD.T, error_BPC.view(B, -1), beta=recipe.momentum, alpha=1 / B)
        if recipe.weight_decay:
            state.velocity.add_(state.weight, alpha=recipe.weight_decay)
        state.weight.addcmul_(state.velocity, state.rate, value=-1)
