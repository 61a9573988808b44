"""Fitting and scoring of probes by kind of label: classes, label sets, numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mtcon_ray.base import metrics
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.evaluation.average_precision import tie_aware_average_precision
from mtcon_ray.evaluation.f_score import best_thresholds, f1_scores
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.neighbours import neighbours_correct
from mtcon_ray.evaluation.probe import Fit, LabelledFeatures, LinearProbe
from mtcon_ray.evaluation.regression import train_number_probe
from mtcon_ray.evaluation.sgd import train_probes
from mtcon_ray.spec.evaluate import ConvergedProbeSpec, EvaluateSpec, ProbeSpec


@dataclass(frozen=True)
class Measurement:
    """Features and settings of an evaluation.

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

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each label in the names of its metrics."""
        return metrics.slugs(self.split_of)

    def scores(self, table: LabelTable) -> dict[str, float]:
        """Fits all probes. Returns their scores and standard deviations by metric name."""
        return self.scores_of(self.fit(table).probes)

    def fit(self, table: LabelTable) -> Fit:
        """Returns a probe for each label, of the type for its kind.

        Softmax for classes, sigmoids for a label set, ridge regression for a number. Raises
        DivergedError if a feature or a logit is not finite.
        """
        kinds = {label: table.kind_of(label) for label in self.split_of}
        num_classes = {t: len(table.classes[t]) for t, kind in kinds.items() if kind == "classes"}
        numbers = [label for label, kind in kinds.items() if kind == "number"]
        train = self.train.of(label for label in kinds if label not in numbers)
        if isinstance(self.recipe, ConvergedProbeSpec):
            found = fit(train, num_classes, self.recipe.penalties, val=self.val)
        else:
            assert self.val is not None, "SGD chooses its epoch on val"
            probes = train_probes(train, num_classes, self.recipe, seed=self.seed, val=self.val)
            found = Fit(probes, None)
        for label in numbers:
            penalties = self.spec.numbers.penalties
            found.probes[label] = train_number_probe(label, self.train, penalties, val=self.val)
        return found

    def neighbours(self, table: LabelTable) -> dict[str, float]:
        """Returns the k-nearest-neighbour accuracy of each label with classes, by metric name."""
        values = {}
        for label, split in self.split_of.items():
            if table.kind_of(label) == "classes":
                size, k = len(table.classes[label]), self.spec.neighbours
                correct_N = neighbours_correct(label, self.train, self.measured, size, k)
                name = metrics.neighbours(split, self.names[label])
                values[name] = correct_N.double().mean().item()
        return values

    def scores_of(self, probes: Mapping[str, LinearProbe]) -> dict[str, float]:
        """Returns scores and bootstrap standard deviations of these probes, by metric name.

        A label set has its tie-aware mean average precision, its F1 scores, and its mean average
        precision on `train` too, if `val` is given.
        """
        values: dict[str, float] = {}
        for label, probe in probes.items():
            place = probe.kind, self.split_of[label], self.names[label]
            values[metrics.score(*place)] = probe.score(self.measured)
            std = probe.score_std(self.measured, self.spec.bootstrap, self.seed)
            values[metrics.score_std(*place)] = std
            if probe.kind == "set" and self.val is not None:
                values |= self._decisions(probe, self.val)
        return values

    def _decisions(self, probe: LinearProbe, val: LabelledFeatures) -> dict[str, float]:
        """Returns the further scores of a label set. Thresholds are chosen on `val`."""
        split, slug = self.split_of[probe.label], self.names[probe.label]
        scores_NL = probe.scores(self.measured.features)
        bits_NL = self.measured.labels[probe.label]
        threshold_L = best_thresholds(probe.scores(val.features), val.labels[probe.label])
        f1 = f1_scores(scores_NL, bits_NL, threshold_L)
        tie_aware = tie_aware_average_precision(scores_NL, bits_NL).mean().item()
        return {
            metrics.average_precision(split, slug): tie_aware,
            metrics.score(probe.kind, "train", slug): probe.score(self.train),
            **{metrics.f1(split, mean, slug): value for mean, value in f1.items()},
        }
