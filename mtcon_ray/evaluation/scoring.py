"""Fitting and scoring of probes by kind of label: classes, label sets, numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from mtcon_ray import metrics
from mtcon_ray.data.batch import UNKNOWN_BIT
from mtcon_ray.data.sources.base import LabelTable
from mtcon_ray.evaluation.average_precision import (
    map_std,
    mean_average_precision,
    tie_aware_average_precision,
)
from mtcon_ray.evaluation.bootstrap import bootstrap_std
from mtcon_ray.evaluation.f_score import best_thresholds, f1_scores
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.multilabel import train_set_probe
from mtcon_ray.evaluation.neighbours import neighbours_correct
from mtcon_ray.evaluation.probe import LabelledFeatures, Probe, SetProbe, train_probes
from mtcon_ray.evaluation.regression import (
    NumberProbe,
    r_squared,
    r_squared_std,
    train_number_probe,
)
from mtcon_ray.evaluation.spec import (
    ConvergedProbeSpec,
    EvaluateSpec,
    ProbeSpec,
    SGDProbeSpec,
)

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
        of_kind = {
            kind: [label for label in self.split_of if table.kind_of(label) == kind]
            for kind in metrics.SCORES
        }
        num_classes = {label: len(table.classes[label]) for label in of_kind["classes"]}
        if isinstance(self.recipe, ConvergedProbeSpec):
            found = self._converged(self.recipe, num_classes, of_kind["set"])
        else:
            found = self._descended(self.recipe, num_classes, of_kind["set"])
        penalties = self.spec.numbers.penalties
        for label in of_kind["number"]:
            found.probes[label] = train_number_probe(label, self.train, penalties, val=self.val)
        return found

    def neighbours(self, table: LabelTable) -> dict[str, float]:
        """Returns the k-nearest-neighbour accuracy of each label with classes, by metric name."""
        values = {}
        for label in filter(lambda each: table.kind_of(each) == "classes", self.split_of):
            correct_N = neighbours_correct(
                label, self.train, self.measured, len(table.classes[label]), self.spec.neighbours
            )
            name = metrics.neighbours(self.split_of[label], metrics.slug(label))
            values[name] = correct_N.double().mean().item()
        return values

    def _converged(
        self, recipe: ConvergedProbeSpec, num_classes: dict[str, int], sets: list[str]
    ) -> Fit:
        """Returns converged probes of classes and label sets, by L-BFGS."""
        labels = [*num_classes, *sets]
        if not labels:
            return Fit({}, 0.0)
        train = self.train.of(labels)
        found = fit(train, num_classes, recipe.penalties, val=self.val)
        return Fit(dict(found.probes), found.gradient)

    def _descended(self, recipe: SGDProbeSpec, num_classes: dict[str, int], sets: list[str]) -> Fit:
        """Returns probes of classes and label sets trained by SGD."""
        assert self.val is not None, "SGD chooses its epoch on val"
        probes: dict[str, LabelProbe] = {}
        if num_classes:
            train, val = self.train.of(num_classes), self.val.of(num_classes)
            probes |= train_probes(train, num_classes, recipe, seed=self.seed, val=val)
        for label in sets:
            probes[label] = train_set_probe(
                label, self.train, recipe, self.spec.label_sets, seed=self.seed, val=self.val
            )
        return Fit(probes, None)

    def scores_of(self, probes: Mapping[str, LabelProbe]) -> dict[str, float]:
        """Returns scores and bootstrap standard deviations of these probes, by metric name."""
        values: dict[str, float] = {}
        for probe in probes.values():
            match probe:
                case Probe():
                    values |= self._of_classes(probe)
                case SetProbe():
                    values |= self._of_set(probe)
                case NumberProbe():
                    values |= self._of_number(probe)
        return values

    def _of_classes(self, probe: Probe) -> dict[str, float]:
        """Returns the top-1 accuracy and its deviation."""
        correct_N = probe.correct(self.measured.known(probe.label))
        std = bootstrap_std(correct_N, self.spec.bootstrap, self.seed)
        return self._scored("classes", probe.label, correct_N.double().mean().item(), std)

    def _of_set(self, probe: SetProbe) -> dict[str, float]:
        """Returns the mean average precision and its deviation; with `val` F1 scores too."""
        label = probe.label
        bits_NL = self.measured.labels[label]
        is_known_N = (bits_NL != UNKNOWN_BIT).any(dim=1)
        bits_NL = bits_NL[is_known_N]
        scores_NL = probe.scores(self.measured.features[is_known_N])
        std = map_std(scores_NL, bits_NL, self.spec.bootstrap, self.seed)
        values = self._scored("set", label, mean_average_precision(scores_NL, bits_NL), std)
        if self.val is None:
            return values
        threshold_L = best_thresholds(probe.scores(self.val.features), self.val.labels[label])
        return values | self._of_decisions(label, scores_NL, bits_NL, threshold_L)

    def _of_decisions(
        self, label: str, scores_NL: Tensor, bits_NL: Tensor, threshold_L: Tensor
    ) -> dict[str, float]:
        split, slug = self.split_of[label], metrics.slug(label)
        tie_aware = tie_aware_average_precision(scores_NL, bits_NL).mean().item()
        f1 = f1_scores(scores_NL, bits_NL, threshold_L)
        return {
            metrics.average_precision(split, slug): tie_aware,
            **{metrics.f1(split, mean, slug): value for mean, value in f1.items()},
        }

    def _of_number(self, probe: NumberProbe) -> dict[str, float]:
        """Returns R^2 and its deviation."""
        predicted_N = probe.predictions(self.measured.features)
        y_N = self.measured.labels[probe.label]
        std = r_squared_std(predicted_N, y_N, self.spec.bootstrap, self.seed)
        return self._scored("number", probe.label, r_squared(predicted_N, y_N), std)

    def _scored(self, kind: str, label: str, value: float, std: float) -> dict[str, float]:
        split, slug = self.split_of[label], metrics.slug(label)
        return {
            metrics.score(kind, split, slug): value,
            metrics.score_std(kind, split, slug): std,
        }
