"""What is measured of each kind of label: probes of some items' features, scores of others'."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from mtcon_ray import metrics
from mtcon_ray.data.batch import UNKNOWN_BIT
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.evaluation.average_precision import (
    map_std,
    mean_average_precision,
    tie_aware_average_precision,
)
from mtcon_ray.evaluation.bootstrap import bootstrap_std
from mtcon_ray.evaluation.f_score import best_thresholds, f1_scores
from mtcon_ray.evaluation.multilabel import train_set_probe
from mtcon_ray.evaluation.probe import LabelledFeatures, train_probes
from mtcon_ray.evaluation.regression import r_squared, r_squared_std, train_number_probe
from mtcon_ray.evaluation.spec import EvaluateSpec, ProbeSpec


@dataclass(frozen=True)
class Measurement:
    """Items to train probes on, to choose them by, if any, and to score them on.

    split_of gives each label the split under which its scores are tracked.
    """

    train: LabelledFeatures
    val: LabelledFeatures | None
    measured: LabelledFeatures
    split_of: Mapping[str, str]
    recipe: ProbeSpec
    spec: EvaluateSpec
    seed: int

    def scores(self, dataset: Dataset) -> dict[str, float]:
        """Every label's scores with their deviations, by the names of `metrics`."""
        table = dataset.table
        labels = {
            kind: [label for label in self.split_of if table.kind_of(label) == kind]
            for kind in metrics.SCORES
        }
        values: dict[str, float] = {}
        if labels["classes"]:
            num_classes = {label: len(table.classes[label]) for label in labels["classes"]}
            values |= self._of_classes(num_classes)
        for label in labels["set"]:
            values |= self._of_set(label)
        for label in labels["number"]:
            values |= self._of_number(label)
        return values

    def _of_classes(self, num_classes: dict[str, int]) -> dict[str, float]:
        """Top-1 accuracy of softmax probes (METHODS 12)."""
        train = self.train.of(num_classes)
        val = None if self.val is None else self.val.of(num_classes)
        values: dict[str, float] = {}
        probes = train_probes(train, num_classes, self.recipe, seed=self.seed, val=val)
        for label, probe in probes.items():
            correct_N = probe.correct(self.measured.known(label))
            values |= self._scored(
                "classes",
                label,
                correct_N.double().mean().item(),
                bootstrap_std(correct_N, self.spec.bootstrap, self.seed),
            )
        return values

    def _of_set(self, label: str) -> dict[str, float]:
        """Mean average precision of a linear probe; with `val` to choose thresholds by, F1 too."""
        recipe, sets = self.recipe, self.spec.label_sets
        probe = train_set_probe(label, self.train, recipe, sets, seed=self.seed, val=self.val)
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

    def _of_number(self, label: str) -> dict[str, float]:
        """R^2 of a ridge regression."""
        penalties = self.spec.numbers.penalties
        probe = train_number_probe(label, self.train, penalties, val=self.val)
        predicted_N, y_N = probe.predictions(self.measured.features), self.measured.labels[label]
        std = r_squared_std(predicted_N, y_N, self.spec.bootstrap, self.seed)
        return self._scored("number", label, r_squared(predicted_N, y_N), std)

    def _scored(self, kind: str, label: str, value: float, std: float) -> dict[str, float]:
        split, slug = self.split_of[label], metrics.slug(label)
        return {
            metrics.score(kind, split, slug): value,
            metrics.score_std(kind, split, slug): std,
        }
