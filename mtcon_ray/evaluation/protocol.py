"""What accuracy a frozen encoder gives: cheaply during training, in full at the end."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from mtcon_ray import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sources.base import MISSING, SPLITS, LabelTable, Split
from mtcon_ray.data.views import ViewsSpec
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.bootstrap import bootstrap_std
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.evaluation.probe import LabelledFeatures, Probe, train_probes
from mtcon_ray.evaluation.spec import EvaluateSpec, ProbeSpec
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
    """val/accuracy, the objective: mean over the tasks of a short probe's accuracy on `val`.

    With it val/accuracy/<task> and val/accuracy_std/<task>. Reads the tasks' labels and the
    images of train and val only; which of these follows from `seed` alone, so that every epoch
    is measured on the same ones. The accuracies are of the probe's last epoch: an epoch chosen
    on the items that the number stands for would flatter it.

    Raises DataError as `check_labels` does, and DivergedError.
    """
    reader = _Reader(network, dataset, spec.batch_size, views, device, autocast_dtype)
    rows = _short_probe_rows(dataset.table, dataset.tasks, spec, seed)
    recipe = ProbeSpec(
        **spec.short_probe.model_dump(exclude={"max_items"}),
        momentum=spec.probe.momentum,
        weight_decay=spec.probe.weight_decay,
    )
    train = reader.read(rows["train"], dataset.tasks)
    probes = train_probes(train, _num_classes(dataset), recipe, seed=seed)
    val = reader.read(rows["val"], dataset.tasks)
    values = _accuracies("val", probes, val, spec, seed)
    means = [values[metrics.accuracy("val", metrics.slug(task))] for task in dataset.tasks]
    return {metrics.OBJECTIVE: float(np.mean(means)), **values}


def report(
    network: Network,
    dataset: Dataset,
    spec: EvaluateSpec,
    views: ViewsSpec,
    *,
    device: torch.device,
    seed: int,
    autocast_dtype: torch.dtype | None = None,
) -> dict[str, float]:
    """The reported accuracies (METHODS 12): test/accuracy/<task>, heldout/accuracy/<label>.

    With each its accuracy_std. A probe per label is trained on all known items of `train`, its
    epoch chosen on `val`, its accuracy measured on `test`, all without augmentation. A label's
    number of classes, which an accuracy should stand beside, is len(dataset.table.classes[label]).

    Raises DataError as `check_labels` does, and DivergedError.
    """
    labels = (*dataset.tasks, *dataset.held_out)
    rows = _full_probe_rows(dataset.table, labels)
    reader = _Reader(network, dataset, spec.batch_size, views, device, autocast_dtype)
    train, val, test = (reader.read(rows[split], labels) for split in SPLITS)
    probes = train_probes(train, _num_classes(dataset), spec.probe, seed=seed, val=val)
    tasks = {label: probes[label] for label in dataset.tasks}
    held_out = {label: probes[label] for label in dataset.held_out}
    return {
        **_accuracies("test", tasks, test, spec, seed),
        **_accuracies("heldout", held_out, test, spec, seed),
    }


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
    _short_probe_rows(table, tasks, spec, seed)
    _full_probe_rows(table, (*tasks, *held_out))


@dataclass(frozen=True)
class _Reader:
    """Reads features and labels of rows, with all that extracting them takes."""

    network: Network
    dataset: Dataset
    batch_size: int
    views: ViewsSpec
    device: torch.device
    autocast_dtype: torch.dtype | None

    def read(self, rows: np.ndarray, labels: Iterable[str]) -> LabelledFeatures:
        features_ND = extract_features(
            self.network,
            self.dataset.images,
            rows,
            self.views,
            batch_size=self.batch_size,
            device=self.device,
            autocast_dtype=self.autocast_dtype,
        )
        values = {
            label: torch.from_numpy(self.dataset.table.labels[label][rows]) for label in labels
        }
        values = {label: value.to(self.device) for label, value in values.items()}
        return LabelledFeatures(features_ND.to(self.device), values)


def _num_classes(dataset: Dataset) -> dict[str, int]:
    return {label: len(names) for label, names in dataset.table.classes.items()}


def _accuracies(
    split: str,
    probes: dict[str, Probe],
    data: LabelledFeatures,
    spec: EvaluateSpec,
    seed: int,
) -> dict[str, float]:
    values: dict[str, float] = {}
    for label, probe in probes.items():
        correct_N = probe.correct(data.known(label))
        slug = metrics.slug(label)
        values[metrics.accuracy(split, slug)] = correct_N.double().mean().item()
        values[metrics.accuracy_std(split, slug)] = bootstrap_std(correct_N, spec.bootstrap, seed)
    return values


def _short_probe_rows(
    table: LabelTable, tasks: tuple[str, ...], spec: EvaluateSpec, seed: int
) -> dict[Split, np.ndarray]:
    rows: dict[Split, np.ndarray] = {}
    for split in SPLITS[:2]:
        known = _rows_with_any(table, split, tasks)
        generator = np.random.default_rng((seed, SPLITS.index(split)))
        # Ascending again, so that the memory map is read in order.
        rows[split] = np.sort(generator.permutation(known)[: spec.short_probe.max_items])
        _check_known(table, tasks, rows[split], split, "; raise evaluate.short_probe.max_items or ")
    return rows


def _full_probe_rows(table: LabelTable, labels: tuple[str, ...]) -> dict[Split, np.ndarray]:
    rows: dict[Split, np.ndarray] = {}
    for split in SPLITS:
        rows[split] = _rows_with_any(table, split, labels)
        _check_known(table, labels, rows[split], split, "; ")
    return rows


def _rows_with_any(table: LabelTable, split: Split, labels: tuple[str, ...]) -> np.ndarray:
    """Rows of the split where at least one of the labels is known, ascending."""
    rows = table.rows(split)
    return rows[np.any([table.labels[label][rows] != MISSING for label in labels], axis=0)]


def _check_known(
    table: LabelTable,
    labels: tuple[str, ...],
    rows: np.ndarray,
    split: Split,
    way_out: str,
) -> None:
    for label in labels:
        if (table.labels[label][rows] == MISSING).all():
            raise DataError(
                f"label {label!r} must be known for at least one of the items that its probe reads "
                f"of split {split!r}, got none of {len(rows)}{way_out}label more items, split them "
                "otherwise, or leave the column out"
            )
