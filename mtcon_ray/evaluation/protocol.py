"""Evaluation of the frozen encoder: a short probe during training, a full one at the end."""

from pathlib import Path
from statistics import fmean

import torch

from mtcon_ray import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sources.base import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.data.views import ViewsSpec
from mtcon_ray.evaluation.predictions import Predictions, predict, save_predictions
from mtcon_ray.evaluation.probe_data import Reader, full_probe_rows, short_probe_rows
from mtcon_ray.evaluation.scoring import Measurement
from mtcon_ray.evaluation.spec import ConvergedProbeSpec, EvaluateSpec
from mtcon_ray.models.network import Network


def validate(
    network: Network,
    dataset: Dataset,
    spec: EvaluateSpec,
    views: ViewsSpec,
    *,
    device: torch.device,
    seed: int,
    autocast_dtype: torch.dtype | None = None,
) -> dict[str, float]:
    """Returns the validation metrics of a short probe, by name, with the objective among them.

    The objective is the mean over tasks of their scores on `val`: val/accuracy if all tasks have
    classes, else val/score. A task's score is its accuracy, its mean average precision for a label
    set, or R^2 for a number (a negative R^2 counts as 0). The other metrics are each task's score,
    val/accuracy/<task>, val/map/<task> or val/r2/<task>, and its standard deviation.

    Only images of train and val are read, and only the tasks' labels. The choice of items depends
    on `seed` alone, so all epochs are measured on the same items. The penalty is fixed: choosing it
    on the items that are scored would bias the score upwards.

    Raises DataError as `check_labels` does, DivergedError if features or logits are not finite.
    """
    reader = Reader(network, dataset, spec.batch_size, views, device, autocast_dtype)
    rows = short_probe_rows(dataset.table, dataset.tasks, spec, seed)
    recipe = ConvergedProbeSpec(solver="lbfgs", penalties=(spec.short_probe.penalty,))
    train, val = (reader.read(rows[split], dataset.tasks) for split in SPLITS[:2])
    split_of = dict.fromkeys(dataset.tasks, "val")
    # Nothing is selected on val, because val is what is scored.
    values = Measurement(train, None, val, split_of, recipe, spec, seed).scores(dataset.table)
    kind_of = dataset.table.kind_of
    each = [values[metrics.score(kind_of(t), "val", metrics.slug(t))] for t in dataset.tasks]
    objective = metrics.objective_name(map(kind_of, dataset.tasks))
    # R^2 has no lower bound: one bad number would outweigh all other tasks in the mean.
    return {objective: fmean(max(0.0, value) for value in each), **values}


def report(
    network: Network,
    dataset: Dataset,
    spec: EvaluateSpec,
    views: ViewsSpec,
    *,
    device: torch.device,
    seed: int,
    autocast_dtype: torch.dtype | None = None,
    predictions: Path | None = None,
) -> dict[str, float]:
    """Returns the metrics of the test evaluation, of all tasks and held-out labels, by name.

    For each label a probe is trained on all known items of `train`, its penalty (with SGD, its
    epoch) is chosen on `val`, and it is scored on `test`, all without augmentation. Metrics are

    - for classes: accuracy, accuracy_std, and knn, the accuracy of the nearest training items;
    - for a label set: map, map_std, map_tie_aware, and f1_micro, f1_macro and f1_sample at
      thresholds chosen on `val`;
    - for a number: r2 and r2_std;
    - for all classes and label sets together: probe/gradient, the largest relative gradient norm
      of their probes (not with SGD).

    All but the last are named as test/accuracy/<task> or heldout/accuracy/<label>. An accuracy
    should be read beside the number of classes, dataset.table.size_of(label). If `predictions` is
    given, the predictions are written to that path.

    Raises DataError as `check_labels` does, DivergedError if features or logits are not finite,
    StorageError if the predictions cannot be written.
    """
    measurement = full_measurement(
        network, dataset, spec, views, device=device, seed=seed, autocast_dtype=autocast_dtype
    )
    table, split_of = dataset.table, measurement.split_of
    probes, gradient = measurement.fit(table)
    scores = measurement.scores_of(probes) | measurement.neighbours(table)
    if gradient is not None:
        scores[metrics.PROBE_GRADIENT] = gradient
    if predictions is not None:
        rows = full_probe_rows(table, tuple(split_of))["test"]
        found = predict(probes, measurement.measured, rows, split_of, table)
        save_predictions(predictions, Predictions(dataset.fingerprint, found))
    return scores


def full_measurement(
    network: Network,
    dataset: Dataset,
    spec: EvaluateSpec,
    views: ViewsSpec,
    *,
    device: torch.device,
    seed: int,
    autocast_dtype: torch.dtype | None = None,
) -> Measurement:
    """Returns the features of all splits with the settings of the test evaluation.

    Raises DataError as `check_labels` does.
    """
    labels = (*dataset.tasks, *dataset.held_out)
    rows = full_probe_rows(dataset.table, labels)
    reader = Reader(network, dataset, spec.batch_size, views, device, autocast_dtype)
    train, val, test = (reader.read(rows[split], labels) for split in SPLITS)
    split_of = dict.fromkeys(dataset.tasks, "test") | dict.fromkeys(dataset.held_out, "heldout")
    return Measurement(train, val, test, split_of, spec.probe, spec, seed)


def check_labels(
    table: LabelTable,
    tasks: tuple[str, ...],
    held_out: tuple[str, ...],
    spec: EvaluateSpec,
    *,
    seed: int,
) -> None:
    """Raises DataError if a probe would have no known value of its label in one of the splits.

    Reads labels only, so that it can be called before any image is decoded.
    """
    short_probe_rows(table, tasks, spec, seed)
    full_probe_rows(table, (*tasks, *held_out))
