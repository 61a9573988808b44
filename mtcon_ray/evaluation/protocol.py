"""Evaluation of the frozen encoder: a short probe in training, a full probe at the end."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.base import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.evaluation import scores as measures
from mtcon_ray.evaluation.features import evaluating, extract_features, rankme
from mtcon_ray.evaluation.logistic import fit, train_probes
from mtcon_ray.evaluation.neighbours import neighbours_correct, retrieval
from mtcon_ray.evaluation.predictions import LabelPredictions, Predictions, save_predictions
from mtcon_ray.evaluation.probe import Fit, LabelledFeatures, LinearProbe
from mtcon_ray.evaluation.probe_data import rows_with_any, short_probe_rows
from mtcon_ray.models.network import Network
from mtcon_ray.spec.evaluate import ConvergedProbeSpec, EvaluateSpec
from mtcon_ray.spec.run_spec import RunSpec


class Measurement(NamedTuple):
    """Features and settings of an evaluation.

    Probes of `spec.probe` are trained on `train`, selected on `val` (if given) and scored on
    `measured`. `table` gives the kinds and classes of the labels. places maps each label to split
    and name in the names of its metrics, such as ("test", "heel-height"). `heads` are the
    outputs for `measured` of the heads of tasks with classes, [n, D] by task. Metrics in their
    space have `head` in place of a split. `augmented` returns `train` with the features of a new
    view of each image, for SGD with `augment`.
    """

    table: LabelTable
    train: LabelledFeatures
    val: LabelledFeatures | None
    measured: LabelledFeatures
    places: Mapping[str, tuple[str, str]]
    spec: EvaluateSpec
    seed: int
    heads: Mapping[str, Tensor] = {}
    augmented: Callable[[torch.Generator], LabelledFeatures] | None = None
    head: str = metrics.HEAD

    def fit(self) -> Fit:
        """Returns a probe for each label, of the type for its kind.

        Softmax for classes, sigmoids for a label set. Raises DivergedError if a feature or a logit
        is not finite.
        """
        recipe = self.spec.probe
        num_classes = {label: len(names) for label, names in self.table.classes.items()}
        if isinstance(recipe, ConvergedProbeSpec):
            return fit(self.train, num_classes, recipe.penalties, val=self.val)
        assert self.val is not None, "SGD chooses its epoch on val"
        new, draws = self.augmented if recipe.augment else None, torch.Generator()
        draws.manual_seed(self.seed)
        epochs = (new(draws) if new else self.train for _ in range(recipe.epochs))
        return Fit(train_probes(epochs, num_classes, recipe, seed=self.seed, val=self.val), None)

    def neighbours(self) -> dict[str, float]:
        """Returns the k-nearest-neighbour accuracy of each label with classes, by metric name."""
        values = {}
        for label, (split, name) in self.places.items():
            if self.table.kind_of(label) == "classes":
                size, k = len(self.table.classes[label]), self.spec.neighbours
                right_N = neighbours_correct(label, self.train, self.measured, size, k)
                values[metrics.retrieval(split, metrics.KNN, name)] = right_N.double().mean().item()
        return values

    def retrieval(self) -> dict[str, float]:
        """Returns the retrieval scores of each label with classes, by metric name.

        They are measured in the encoder's space, and for a task with a head of its name also in the
        space of this head. Labels without two items of a class have none.
        """
        classes = [label for label in self.places if self.table.kind_of(label) == "classes"]
        spaces = [("", self.measured.features, classes)] if classes else []
        spaces += [(self.head, z_ND, [label]) for label, z_ND in self.heads.items()]
        values = {}
        for space, z_ND, labels in spaces:
            found = retrieval(z_ND, {label: self.measured.labels[label] for label in labels})
            for label, scores in found.items():
                split, name = self.places[label]
                for score, score_N in scores.items():
                    if not score_N.isnan().all():
                        place = metrics.retrieval(space or split, score, name)
                        values[place] = score_N.nanmean().item()
        return values

    def plugin_scores(self) -> dict[str, float]:
        """Returns the finite scores of plugins' metrics (`evaluate.metrics`), by metric name."""
        values = {}
        for metric, (label, (split, name)) in product(self.spec.metrics, self.places.items()):
            if self.table.kind_of(label) in metric.kinds:
                known = self.measured.known(label)
                value = metric.checked(label, known.features, known.labels[label])
                values[metrics.retrieval(split, metric.name, name)] = value
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def scores_of(self, probes: Mapping[str, LinearProbe]) -> dict[str, float]:
        """Returns scores and bootstrap standard deviations of these probes, by metric name.

        A label set has its F1 scores, and its mean average precision on `train` too, if `val` is
        given.
        """
        values: dict[str, float] = {}
        for label, probe in probes.items():
            place = probe.kind, *self.places[label]
            values[metrics.score(*place)] = probe.score(self.measured)
            known = self.measured.known(label)
            both = probe.predicted(known), known.labels[label]
            std = measures.score_std(probe.kind, *both, self.spec.bootstrap, self.seed)
            values[metrics.score_std(*place)] = std
            if probe.kind == "set" and self.val is not None:
                values |= self._decisions(probe, self.val)
        return values

    def predictions(self, probes: Mapping[str, LinearProbe]) -> Predictions:
        """Returns the probes' predictions of the items of test, by (split, label).

        Raises DivergedError if a logit is not finite.
        """
        found, table = {}, self.table
        rows = rows_with_any(table, "test", tuple(self.places))
        for label, probe in probes.items():
            is_known = table.known(label)[rows]
            known = LabelledFeatures(self.measured.features[is_known], {})
            truth = (table.labels | table.multi_hot)[label][rows[is_known]]
            predicted = probe.predicted(known)
            if probe.kind == "set":
                predicted = predicted.float()
            seen = (table.classes | table.multi_hot_names)[label]
            names = (*seen, *table.unseen.get(label, ()))
            arrays = rows[is_known], truth, predicted.cpu().numpy()
            groups = [codes[rows[is_known]] for codes in table.groups.values()]
            found[self.places[label]] = LabelPredictions(*arrays, names, *groups)
        return found

    def _decisions(self, probe: LinearProbe, val: LabelledFeatures) -> dict[str, float]:
        """Returns the further scores of a label set. Thresholds are chosen on `val`."""
        split, slug = self.places[probe.label]
        scores_NL = probe.scores(self.measured.features)
        bits_NL = self.measured.labels[probe.label]
        threshold_L = measures.best_thresholds(probe.scores(val.features), val.labels[probe.label])
        f1 = measures.f1_scores(scores_NL, bits_NL, threshold_L)
        return {
            metrics.score(probe.kind, "train", slug): probe.score(self.train),
            **{metrics.retrieval(split, f"f1_{mean}", slug): value for mean, value in f1.items()},
        }


class Evaluation(NamedTuple):
    """A network, the data of its evaluation, and the spec with the settings.

    The encoder runs in `autocast_dtype`.
    """

    network: Network
    dataset: Dataset
    spec: RunSpec
    device: torch.device
    autocast_dtype: torch.dtype | None = None

    def validate(self) -> dict[str, float]:
        """Returns the validation metrics of a short probe, by name, with the objective among them.

        The objective is the mean over tasks of their scores on `val`: val/accuracy if all tasks
        have classes, else val/score. With weights it is val/objective, in addition to the mean.
        Its metrics without a probe are val/knn/<task>, val/map_at_r/<task> (retrieval among the
        measured items) and val/head/map_at_r/<task>, as in `report`. Others are not measured.
        A task's score is its accuracy, or its mean average precision for a label set. The other
        metrics are each task's score, val/accuracy/<task> or val/map/<task>, and its standard
        deviation. Without tasks val/rankme is the objective and the only metric: the effective rank
        of the features (`rankme`).

        Only images of train and val are read, and only the tasks' labels. The choice of items
        depends on the seed alone, so all epochs are measured on the same items. The penalty is
        fixed: choosing it on the scored items would bias the score upwards.

        Raises DataError if a task is known for no item read from train, or from val, DivergedError
        if features or logits are not finite.
        """
        spec, table, tasks = self.spec.evaluate, self.dataset.table, self.dataset.tasks
        weights, seed = self.spec.search.weights, self.spec.seed
        labels = metrics.Labels(tasks, (), {t: table.kind_of(t) for t in tasks}, weights)
        rows = short_probe_rows(table, labels, spec, seed)
        if not tasks:
            return {metrics.RANK: rankme(self.read(rows["val"], ()).features)}
        probe = ConvergedProbeSpec(penalties=(spec.short_probe.penalty,))
        spec = spec.model_copy(update={"probe": probe})
        train, val = (self.read(rows[split], tasks) for split in SPLITS[:2])
        # Nothing is selected on val, because val is what is scored.
        places = {task: ("val", name) for task, name in metrics.slugs(tasks).items()}
        measurement = Measurement(table, train, None, val, places, spec, seed)
        values = measurement.scores_of(measurement.fit().probes)
        scores = {t: values[metrics.score(kind, *places[t])] for t, kind in labels.kinds.items()}
        means = {metrics.objective_name(labels.kinds.values()): fmean(scores.values())}
        others = {t: places[t] for metric, t in labels.shares if metric in metrics.OF_CLASSES}
        heads = self._heads(val, others)
        part = measurement._replace(places=others, heads=heads, head=f"val/{metrics.HEAD}")
        chosen = {metric for metric, _ in labels.shares} - {metrics.SCORE}
        found = part.neighbours() if metrics.KNN in chosen else {}
        found |= part.retrieval() if chosen - {metrics.KNN} else {}
        values |= {name: found[name] for name in labels.parts if name not in values}
        if weights:
            parts = labels.parts
            means[metrics.OBJECTIVE] = fmean(map(values.__getitem__, parts), parts.values())
        return {**means, **values}

    def report(self, predictions: Path | None = None) -> dict[str, float]:
        """Returns the metrics of the test evaluation, of all tasks and held-out labels, by name.

        For each label a probe is trained on all known items of `train`, its penalty (with SGD, its
        epoch) is chosen on `val`, and it is scored on `test`. Only the training of a probe with
        `evaluate.probe.augment` has augmentations. Metrics are

        - for classes: accuracy, accuracy_std, knn, the accuracy of the nearest training items, and
          the scores of `retrieval` among the test items. For a task with a head also the scores in
          this head's space, named as head/map_at_r/<task>
        - for a label set: map, map_std, f1_micro, f1_macro and f1_sample at
          thresholds chosen on `val`, and train/map/<label>, the probe's map on its own items, a
          higher value (table 1 of MultiSupCon gives both)
        - the scores of plugins' metrics
        - for all labels together: probe/gradient, the largest relative gradient norm of their
          probes (not with SGD), and probe/features, the width of the features
        - without tasks: test/rankme, the effective rank of the features (`rankme`)

        All but the last three are named as test/accuracy/<task> or heldout/accuracy/<label>. An
        accuracy depends on the number of classes, dataset.table.size_of(label). If `predictions`
        is given, the predictions are written to this path.

        Raises DivergedError if features or logits are not finite, StorageError if the predictions
        cannot be written.
        """
        table, values = self.dataset.table, {}
        if not self.dataset.tasks:
            values[metrics.TEST_RANK] = rankme(self.read(table.rows("test"), ()).features)
        if not (self.dataset.tasks or self.dataset.held_out):
            return values
        measurement = self.full_measurement()
        probes, gradient = measurement.fit()
        values |= measurement.plugin_scores()  # first: none replaces a score of this package
        values |= measurement.scores_of(probes) | measurement.neighbours() | measurement.retrieval()
        values[metrics.PROBE_FEATURES] = float(measurement.train.features.shape[1])
        if gradient is not None:
            values[metrics.PROBE_GRADIENT] = gradient
        if predictions is not None:
            save_predictions(predictions, self.dataset.fingerprint, measurement.predictions(probes))
        return values

    def full_measurement(self) -> Measurement:
        """Returns the features of all splits with the settings of the test evaluation."""
        data, spec = self.dataset, self.spec
        labels = (*data.tasks, *data.held_out)
        rows = [rows_with_any(data.table, split, labels) for split in SPLITS]
        train, val, test = (self.read(of_split, labels) for of_split in rows)
        augmented = partial(self.read, rows[0], labels)
        places = metrics.Labels(data.tasks, data.held_out, {}).places
        of = places, spec.evaluate, spec.seed, self._heads(test, data.tasks), augmented
        return Measurement(data.table, train, val, test, *of)

    def _heads(self, measured: LabelledFeatures, tasks: Container[str]) -> dict[str, Tensor]:
        """Returns the outputs of the heads of tasks with classes, [n, D] by task."""
        network, classes = self.network, self.dataset.table.labels
        if network.probed is not None:
            return {}
        named = zip(network.names, network.heads, strict=True)
        with evaluating(network):
            return {n: f(measured.features) for n, f in named if n in tasks and n in classes}

    def read(
        self, rows: np.ndarray, labels: Sequence[str], augment: torch.Generator | None = None
    ) -> LabelledFeatures:
        """Returns features and labels of these rows of the data, on the device.

        With `augment` the features are of one view of each image, drawn by this generator.
        """
        table, spec = self.dataset.table, self.spec
        shown = self.network, self.dataset.images, rows, spec.views, spec.evaluate.batch_size
        features_ND = extract_features(*shown, self.device, self.autocast_dtype, augment=augment)
        columns = table.labels | table.multi_hot
        values = {name: torch.from_numpy(columns[name][rows]).to(self.device) for name in labels}
        return LabelledFeatures(features_ND.to(self.device), values)
