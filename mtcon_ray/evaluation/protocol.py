"""What a frozen encoder is worth to each label: cheaply during training, in full at the end."""

from pathlib import Path
from statistics import fmean

import torch

from mtcon_ray import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sources.base import SPLITS, LabelTable
from mtcon_ray.data.views import ViewsSpec
from mtcon_ray.evaluation.features import KeptViews
from mtcon_ray.evaluation.measures import Measurement
from mtcon_ray.evaluation.predictions import Predictions, predict, save_predictions
from mtcon_ray.evaluation.reading import Reader, full_probe_rows, short_probe_rows
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
    kept: KeptViews | None = None,
) -> dict[str, float]:
    """Returns the objective: the mean over the tasks of a short probe's score on `val`.

    It is val/accuracy if all tasks are of classes, else val/score. A task's score is its
    accuracy, of a label set the mean average precision, of a number R^2 or, where that is
    negative, 0. With it each task's own, as tracked: val/accuracy/<task>,
    val/map/<task> or val/r2/<task>, and its deviation. Reads the tasks' labels and the images of
    train and val only; which of these follows from `seed` alone, so that every epoch is measured
    on the same ones. There is one penalty: one that was chosen on the items that the number stands
    for would flatter it. `kept` saves the next probe of the same training the making of its views.

    Raises DataError as `check_labels` does, and DivergedError.
    """
    reader = Reader(network, dataset, spec.batch_size, views, device, autocast_dtype, kept)
    rows = short_probe_rows(dataset.table, dataset.tasks, spec, seed)
    recipe = ConvergedProbeSpec(solver="lbfgs", penalties=(spec.short_probe.penalty,))
    train, val = (reader.read(rows[split], dataset.tasks) for split in SPLITS[:2])
    split_of = dict.fromkeys(dataset.tasks, "val")
    values = Measurement(train, None, val, split_of, recipe, spec, seed).scores(dataset.table)
    kinds = {task: dataset.table.kind_of(task) for task in dataset.tasks}
    each = [values[metrics.score(kind, "val", metrics.slug(t))] for t, kind in kinds.items()]
    objective = metrics.objective_name(kinds.values())
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
    """The reported scores: test/accuracy/<task>, heldout/accuracy/<label>.

    With each its accuracy_std. A probe per label is trained on all known items of `train`, its
    penalty (by SGD its epoch) chosen on `val`, its accuracy measured on `test`, all without
    augmentation; test/knn/<task> and heldout/knn/<label> stand beside it, of the nearest training
    items. probe/gradient says how far the probes are from their minima. Of a label
    set it is map and map_std, with map_tie_aware and f1_micro, f1_macro and
    f1_sample at thresholds chosen on `val`; of a number r2 and r2_std, the ridge penalty chosen
    on `val`. A label's number of classes, which an accuracy should stand beside, is
    dataset.table.size_of(label). The predictions that the scores are of are written to the path
    `predictions`, if one is given.

    Raises DataError as `check_labels` does, DivergedError and StorageError.
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
    """What `report` measures: features of all splits, and how tasks and held-out are probed."""
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
    """Raises DataError naming the label and split that leave a probe without known values.

    Reads labels only, so that it can be asked before any image is decoded.
    """
    short_probe_rows(table, tasks, spec, seed)
    full_probe_rows(table, (*tasks, *held_out))
