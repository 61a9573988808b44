"""Linear probes on fixed features, and how softmax probes of several labels are trained by SGD.

The labels' probes share nothing but their input, so one matrix product serves them all: their
weights stand side by side in [D + 1, P * C], padded to the largest number of classes C: P probes,
one of each label for each learning rate. Each is, to rounding, what training it alone would give,
whatever stands beside it.
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

    Those are int64 [n], MISSING where unknown; of sets uint8 [n, L], UNKNOWN_BIT where unknown;
    of numbers float64 [n], NaN where unknown.
    """

    features: Tensor
    labels: dict[str, Tensor]

    def of(self, labels: Iterable[str]) -> "LabelledFeatures":
        """The same items with these labels alone."""
        return LabelledFeatures(self.features, {label: self.labels[label] for label in labels})

    def known(self, label: str) -> "LabelledFeatures":
        """The items whose class of this label is known, with that label alone."""
        is_known = self.labels[label] != MISSING
        return LabelledFeatures(self.features[is_known], {label: self.labels[label][is_known]})


@dataclass(frozen=True)
class Probe:
    """One label's softmax layer: weight [D + 1, C], its last row the offset.

    `made` says how it was trained, for messages: "after 3 epochs".
    """

    label: str
    weight: Tensor
    made: str

    def predicted(self, data: LabelledFeatures) -> Tensor:
        """The class of the highest logit, int64 [n]. Raises DivergedError if one is not finite."""
        logits_NC = _linear(data.features, self.weight, f"probe of {self.label!r} {self.made}")
        return logits_NC.argmax(dim=1)

    def correct(self, data: LabelledFeatures) -> Tensor:
        """Whether the prediction is the right one, bool [n]; a MISSING label is never right.

        Raises DivergedError where a logit is not finite.
        """
        return self.predicted(data) == data.labels[self.label]


@dataclass(frozen=True)
class SetProbe:
    """One logit per label of a set: weight [D + 1, L], its last row the offset; `made` as above."""

    label: str
    weight: Tensor
    made: str

    def scores(self, features_ND: Tensor) -> Tensor:
        """Logits, [n, L]. Raises DivergedError where one is not finite."""
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
    """One probe per label of `train`, of its best epoch on `val` (CCN, section 3, "Results").

    Of equal epochs the first is taken, of several learning rates likewise the best on `val`. SGD at
    a constant rate on the mean cross-entropy of each minibatch, from zero weights: the problem is
    convex, no symmetry needs breaking. A label's minibatches hold only items where it is known;
    their order follows from `seed` and the number of these items. Features are taken as they are,
    not standardised.

    Raises DivergedError where a logit on `val` is not finite, of several rates with all of them.
    """
    chosen: dict[str, Probe] = {}
    for labels in _groups_known_together(train):
        epochs = _epochs(labels, train, num_classes, recipe, seed)
        chosen |= _best(epochs, val, len(recipe.rates) > 1)
    return chosen


def _groups_known_together(train: LabelledFeatures) -> list[list[str]]:
    """Labels known on the very same items, which can therefore share their minibatches."""
    groups: dict[bytes, list[str]] = {}
    for label, value_N in train.labels.items():
        groups.setdefault((value_N != MISSING).cpu().numpy().tobytes(), []).append(label)
    return list(groups.values())


def _best(
    epochs: Iterator[dict[str, Probe]], val: LabelledFeatures, may_diverge: bool
) -> dict[str, Probe]:
    """With `may_diverge` it is enough if one of a label's probes does not."""
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
                best[label] = Probe(label, probe.weight.clone(), probe.made)
    hopeless = [label for label in failed if label not in best]
    if hopeless:
        raise failed[hopeless[0]]
    return best


class _State(NamedTuple):
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
    """The labels' probes after each epoch, rate by rate: views of weights that change later."""
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
    padding_LC = x_ND.new_zeros(len(sizes), max(sizes))
    for i, size in enumerate(sizes):
        padding_LC[i, size:] = -torch.inf
    rate = x_ND.new_tensor(rates).repeat_interleave(padding_LC.numel())
    weight = x_ND.new_zeros(x_ND.shape[1], len(rate))
    return _State(weight, torch.zeros_like(weight), padding_LC.flatten().repeat(len(rates)), rate)


def _train_epoch(state: _State, x_ND: Tensor, y_NP: Tensor, recipe: SGDProbeSpec) -> None:
    """One pass in the given order; torch.optim.SGD's update with the gradient in closed form."""
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
