"""Linear probes of classes and label sets, converged or trained by SGD as in the papers.

The converged probes are L2-penalised logistic regressions, minimised by L-BFGS. The probe of a
label minimises

    mean over its known items of the cross-entropy + penalty / 2 * (squared norm of its weights)

on standardised features. The offset is not penalised. A label set has the binary cross-entropy,
summed over the labels of the set, each averaged over its known items. The objective is strictly
convex in the weights. Its minimum, and therefore the accuracy, does not depend on a seed, on the
order of the items, or on the scale of the features.

Each label is solved separately. All labels share the standardisation and the principal axes of the
features, over the rows where any of the labels is known. So a probe depends on which other labels
are probed if these are known for rows where its own label is not: such rows change the standardised
features, and thereby the size of the penalty. Without missing labels it does not.

By SGD each label is trained separately too, with closed-form gradients instead of autograd.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.base.metrics import Kind
from mtcon_ray.evaluation.probe import Fit, LabelledFeatures, LinearProbe, finite
from mtcon_ray.models.optimizers import LBFGS
from mtcon_ray.spec.evaluate import CONVERGED, SGDProbeSpec
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT

# Relative gradient norms at which the solver stops: of a short probe, while penalties are compared,
# and with the chosen penalty. benchmarks/probe_agreement.py on 20 encoders: if penalties were
# compared at ROUGH, 10 % of the labels would end over 0.3 points from scikit-learn. If FINAL were
# CONVERGED, the order of the items could change more than 1 prediction in 1,000.
ROUGH, COMPARED, FINAL = 3e-3, 1e-3, CONVERGED / 3
MOST_STEPS, HISTORY = 1000, 30
# A feature is constant if its deviation is below this share of its largest absolute value: float32
# rounding alone causes such a deviation.
ROUNDING = 1e-6
# Largest number of logits in memory at once, 8 bytes each. More would not fit a CPU's cache.
MOST_LOGITS = 2**20


class Design:
    """Standardised features in the basis of their principal axes. All entries of column D are 1.

    x is float64 [N, D + 1]. variance [D + 1] is the mean square of each of its columns. The
    squared norm of the weights is invariant under the rotation. In uncorrelated columns the
    Hessian is nearly diagonal, so scaling each weight preconditions the solver. Without scaling
    L-BFGS takes four to nine times as many steps.

    Raises DivergedError if a feature is not finite.
    """

    def __init__(self, features_ND: Tensor) -> None:
        z_ND = finite(features_ND)
        self.mean_D = z_ND.mean(dim=0)
        deviation_D = z_ND.std(dim=0, correction=0)
        varies_D = deviation_D > ROUNDING * z_ND.abs().amax(dim=0)
        self.scale_D = torch.where(varies_D, 1 / deviation_D.where(varies_D, 1), 0)
        z_ND = (z_ND - self.mean_D).mul_(self.scale_D)
        variance_D, self.axes_DD = torch.linalg.eigh(z_ND.T @ z_ND / len(z_ND))
        # eigh may return slightly negative eigenvalues for a singular matrix.
        self.variance = F.pad(variance_D.clamp(min=0), (0, 1), value=1.0)
        self.x = z_ND.new_ones(len(z_ND), len(self.variance))
        torch.mm(z_ND, self.axes_DD, out=self.x[:, :-1])


def fit(
    train: LabelledFeatures,
    num_classes: Mapping[str, int],
    penalties: Sequence[float],
    *,
    val: LabelledFeatures | None = None,
) -> Fit:
    """Returns the probe of each label of `train`, with the best penalty on `val`.

    Best means the highest accuracy, or mean average precision for a label set. Among equal scores
    it is the largest penalty. `val` may only be omitted with a single penalty, and the solution
    then has a relative gradient of ROUGH. Labels in `num_classes` have classes, all others are
    label sets.

    Raises DivergedError if a feature of `train`, or a logit on `val`, is not finite.
    """
    design = Design(train.features)
    probes: dict[str, LinearProbe] = {}
    worst = 0.0
    for label, y in train.labels.items():
        regression = Regression(design, label, y, num_classes.get(label))
        if val is None:
            (penalty,), start = penalties, regression.zero
        else:
            penalty, start = _best(regression, penalties, val)
        weight, left = regression.solve(penalty, start, ROUGH if val is None else FINAL)
        probes[label] = regression.probe(weight, penalty)
        worst = max(worst, left)
    return Fit(probes, worst)


def _best(
    regression: "Regression", penalties: Sequence[float], val: LabelledFeatures
) -> tuple[float, Tensor]:
    """Returns the best penalty on `val`, and weights near its minimum.

    Penalties are tried from the largest down, each warm-started at the previous solution.
    """

    def tried() -> Iterator[tuple[float, Tensor]]:
        weight = regression.zero
        for penalty in sorted(penalties, reverse=True):
            weight, _ = regression.solve(penalty, weight, COMPARED)
            yield penalty, weight

    return max(tried(), key=lambda found: regression.probe(found[1], found[0]).score(val))


class Regression:
    """Logistic regression of a label: softmax over its classes, or a sigmoid per label of a set.

    With `num_classes`, y is int64 [N], MISSING where unknown. Without, it is uint8 [N, C],
    UNKNOWN_BIT where unknown. Means are over known items. The means of a set's labels are summed.
    Weights and gradients are [D + 1, C].
    """

    def __init__(self, design: Design, label: str, y: Tensor, num_classes: int | None) -> None:
        self._design, self.label = design, label
        self.kind: Kind = "set" if num_classes is None else "classes"
        if num_classes is None:
            known, target, size = y != UNKNOWN_BIT, (y == 1).double(), y.shape[1]
        else:
            known, target, size = (y != MISSING)[:, None], y.clamp(min=0)[:, None], num_classes
        share = known.double() / known.sum(dim=0).clamp(min=1)
        every = max(1, MOST_LOGITS // size)
        self._parts = [*zip(*(t.split(every) for t in (design.x, target, share)), strict=True)]
        self.zero = design.x.new_zeros(design.x.shape[1], size)
        self._norm_at_zero = self.evaluate(self.zero, self.zero)[1].norm()

    def evaluate(self, weight: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the penalised objective and its gradient. `penalty` is [D + 1, C] too."""
        value, gradient = (penalty * weight * weight).sum() / 2, penalty * weight
        for x, target, share in self._parts:
            loss, error_NC = self._loss(x @ weight, target, share)
            value += loss
            gradient += (error_NC.T @ x).T
        return value, gradient

    def _loss(self, logits: Tensor, target: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the value, and its gradient by logits [N, C]."""
        if self.kind == "set":
            # softplus(x) - y x is the binary cross-entropy without overflow for large |x|.
            value = ((F.softplus(logits) - logits * target) * share).sum()
            return value, logits.sigmoid().sub_(target).mul_(share)
        p_NC = logits.log_softmax(dim=1)
        value = -(p_NC.gather(1, target) * share).sum()
        return value, p_NC.exp_().mul_(share).scatter_add_(1, target, -share)

    def _curvature(self, weight: Tensor) -> Tensor:
        """Returns the mean second derivative by each column of logits, p (1 - p): [C]."""
        found = torch.zeros_like(weight[0])
        for x, _, share in self._parts:
            logits = x @ weight
            p_NC = logits.sigmoid() if self.kind == "set" else logits.softmax(dim=1)
            found += (p_NC * (1 - p_NC) * share).sum(dim=0)
        return found

    def solve(self, penalty: float, start: Tensor, tolerance: float) -> tuple[Tensor, float]:
        """Returns the weights at the minimum of the objective, and the gradient that is left.

        This is the norm of the gradient there, relative to its norm at zero weights. Stops when it
        is at most `tolerance`, or after MOST_STEPS steps. L-BFGS with a strong Wolfe line search,
        preconditioned by the diagonal of the Hessian at `start`.

        Float64 is required: in float32 rounding stops the line search before the gradient is
        small, and the order of the items would then decide between penalties with close scores.
        """
        penalties = torch.full_like(self.zero, penalty)
        penalties[-1] = 0  # of the offsets
        curvature_C = self._curvature(start)
        diagonal = self._design.variance[:, None] * curvature_C + penalties
        scale = diagonal.clamp(min=torch.finfo(diagonal.dtype).tiny).rsqrt()
        scaled = (start / scale).requires_grad_()
        optimizer = LBFGS(
            [scaled],
            max_iter=MOST_STEPS,
            history_size=HISTORY,
            # Convergence is decided in the closure, by the norm of the unscaled gradient.
            tolerance_grad=0,
            tolerance_change=0,
            line_search_fn="strong_wolfe",
        )
        weight, left = start, self._norm_at_zero

        @torch.no_grad()
        def closure() -> Tensor:
            nonlocal weight, left
            weight = scaled * scale
            value, gradient = self.evaluate(weight, penalties)
            left = gradient.norm()
            if left <= tolerance * self._norm_at_zero:
                # The objective is convex, so a point without gradient is the minimum, also in the
                # middle of a line search. The optimizer itself only checks between its steps.
                raise _ConvergedError
            scaled.grad = gradient * scale
            return value

        with suppress(_ConvergedError):
            optimizer.step(closure)
        return weight, (left / self._norm_at_zero).item() if self._norm_at_zero else 0.0

    def probe(self, weight: Tensor, penalty: float) -> LinearProbe:
        """Returns the label's probe with these weights, as a function of the original features."""
        design = self._design
        slope_DC = design.scale_D[:, None] * (design.axes_DD @ weight[:-1])
        offset_C = weight[-1] - design.mean_D @ slope_DC
        on_features = torch.cat([slope_DC, offset_C[None]])
        return LinearProbe(self.kind, self.label, on_features, f"with penalty {penalty:g}")


class _ConvergedError(Exception):
    """Signal to end the solver from within its closure."""


# Weight and velocity [D + 1, C] of a label's probe, and the generator of the items' order.
_State = tuple[Tensor, Tensor, torch.Generator]


def train_probes(
    epochs: Iterable[LabelledFeatures],
    num_classes: Mapping[str, int],
    recipe: SGDProbeSpec,
    *,
    seed: int,
    val: LabelledFeatures,
) -> dict[str, LinearProbe]:
    """Returns the probe of each label, from the epoch with the highest score on `val`.

    `epochs` has the training items of each epoch. Only their features may differ between epochs.
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
    states: dict[str, _State] = {}
    best: dict[str, tuple[float, LinearProbe]] = {}
    for epoch, train in enumerate(epochs, start=1):
        for label in train.labels:
            size, y = num_classes.get(label), train.labels[label]
            if epoch == 1:
                shape = train.features.shape[1] + 1, size or y.shape[1]
                zeros = train.features.new_zeros(shape)
                states[label] = zeros, zeros.clone(), torch.Generator().manual_seed(seed)
            _descend(train.known(label), label, recipe, states[label])
            kind: Kind = "set" if size is None else "classes"
            probe = LinearProbe(kind, label, states[label][0].clone(), f"after {epoch} epochs")
            score = probe.score(val)
            if label not in best or score > best[label][0]:
                best[label] = score, probe
        del train  # before the features of the next epoch are computed
    return {label: probe for label, (_, probe) in best.items()}


def _descend(known: LabelledFeatures, label: str, recipe: SGDProbeSpec, state: _State) -> None:
    """Changes the state by an epoch of steps."""
    x_ND, y = F.pad(known.features, (0, 1), value=1.0), known.labels[label]
    weight, velocity, generator = state
    order_N = torch.randperm(len(x_ND), generator=generator).to(x_ND.device)
    for rows in order_N.split(recipe.batch_size):
        x_BD, y_B = x_ND[rows], y[rows]
        logits_BC = x_BD @ weight
        if y.dim() == 2:
            error_BC = (logits_BC.sigmoid() - (y_B == 1).float()) * (y_B != UNKNOWN_BIT)
        else:
            error_BC = logits_BC.softmax(dim=1) - F.one_hot(y_B, weight.shape[1])
        velocity.addmm_(x_BD.T, error_BC, beta=recipe.momentum, alpha=1 / len(rows))
        velocity.add_(weight, alpha=recipe.weight_decay)
        weight.add_(velocity, alpha=-recipe.lr)
