"""Fitting and scoring of probes by kind of label: classes, label sets, numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from mtcon_ray import metrics
from mtcon_ray.data.sources.base import LabelTable
from mtcon_ray.evaluation.average_precision import (
    map_std,
    mean_average_precision,
    tie_aware_average_precision,
)
from mtcon_ray.evaluation.bootstrap import bootstrap_std
from mtcon_ray.evaluation.f_score import best_thresholds, f1_scores
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.neighbours import neighbours_correct
from mtcon_ray.evaluation.probe import LabelledFeatures, Probe, SetProbe
from mtcon_ray.evaluation.regression import (
    NumberProbe,
    r_squared,
    r_squared_std,
    train_number_probe,
)
from mtcon_ray.evaluation.sgd import train_probes
from mtcon_ray.evaluation.spec import ConvergedProbeSpec, EvaluateSpec, ProbeSpec

LabelProbe = Probe | SetProbe | NumberProbe


class Fit(NamedTuple):
    """Probes by label.

    gradient is the largest relative gradient norm, as in `logistic.LinearFit`; None with SGD.
    """

    probes: dict[str, LabelProbe]
    gradient: float | None


@dataclass(frozen=True)
class Measurement:
    """Features and settings of one evaluation.

    Probes are trained on `train`, selected on `val` (if given) and scored on `measured`. split_of
    maps each label to the split in the names of its metrics, such as "test".
    """

    train: LabelledFeatures
    val: LabelledFeatures | None
    measured: LabelledFeatures
    split_of: Mapping[str, str]
    recipe: ProbeSpec
    spec: EvaluateSpec
    seed: int

    def scores(self, table: LabelTable) -> dict[str, float]:
        """Fits all probes; returns their scores and standard deviations by metric name."""
        return self.scores_of(self.fit(table).probes)

    def fit(self, table: LabelTable) -> Fit:
        """Returns a probe for each label, of the type for its kind.

        Softmax for classes, sigmoids for a label set, ridge regression for a number. Raises
        DivergedError if a feature or a logit is not finite.
        """
        classes, sets, numbers = (
            [label for label in self.split_of if table.kind_of(label) == kind]
            for kind in metrics.SCORES
        )
        num_classes = {label: len(table.classes[label]) for label in classes}
        train, probes = self.train.of([*classes, *sets]), dict[str, LabelProbe]()
        gradient: float | None = None
        if not isinstance(self.recipe, ConvergedProbeSpec):
            assert self.val is not None, "SGD chooses its epoch on val"
            sgd = self.recipe, self.spec.label_sets
            probes |= train_probes(train, num_classes, *sgd, seed=self.seed, val=self.val)
        elif train.labels:
            found = fit(train, num_classes, self.recipe.penalties, val=self.val)
            probes, gradient = {**found.probes}, found.gradient
        else:
            gradient = 0.0
        for label in numbers:
            probes[label] = train_number_probe(
                label, self.train, self.spec.numbers.penalties, val=self.val
            )
        return Fit(probes, gradient)

    def neighbours(self, table: LabelTable) -> dict[str, float]:
        """Returns the k-nearest-neighbour accuracy of each label with classes, by metric name."""
        values = {}
        for label, split in self.split_of.items():
            if table.kind_of(label) == "classes":
                size, k = len(table.classes[label]), self.spec.neighbours
                correct_N = neighbours_correct(label, self.train, self.measured, size, k)
                name = metrics.neighbours(split, metrics.slug(label))
                values[name] = correct_N.double().mean().item()
        return values

    def scores_of(self, probes: Mapping[str, LabelProbe]) -> dict[str, float]:
        """Returns scores and bootstrap standard deviations of these probes, by metric name.

        A label set has its tie-aware mean average precision and F1 scores too, if `val` is given.
        """
        values: dict[str, float] = {}
        for label, probe in probes.items():
            known = self.measured.known(label)
            y, draws = known.labels[label], (self.spec.bootstrap, self.seed)
            more: dict[str, float] = {}
            match probe:
                case Probe():
                    correct_N = probe.correct(known)
                    value, std = correct_N.double().mean().item(), bootstrap_std(correct_N, *draws)
                case SetProbe():
                    scores_NL = probe.scores(known.features)
                    value = mean_average_precision(scores_NL, y)
                    std = map_std(scores_NL, y, *draws)
                    more = self._decisions(probe, scores_NL, y)
                case NumberProbe():
                    predicted_N = probe.predictions(known.features)
                    value, std = r_squared(predicted_N, y), r_squared_std(predicted_N, y, *draws)
            place = probe.kind, self.split_of[label], metrics.slug(label)
            values |= {metrics.score(*place): value, metrics.score_std(*place): std, **more}
        return values

    def _decisions(self, probe: SetProbe, scores_NL: Tensor, bits_NL: Tensor) -> dict[str, float]:
        """Returns scores of a label set that need thresholds, {} without `val` to choose them."""
        if self.val is None:
            return {}
        split, slug = self.split_of[probe.label], metrics.slug(probe.label)
        on_val = probe.scores(self.val.features)
        threshold_L = best_thresholds(on_val, self.val.labels[probe.label])
        f1 = f1_scores(scores_NL, bits_NL, threshold_L)
        tie_aware = tie_aware_average_precision(scores_NL, bits_NL).mean().item()
        return {
            metrics.average_precision(split, slug): tie_aware,
            **{metrics.f1(split, mean, slug): value for mean, value in f1.items()},
        }
