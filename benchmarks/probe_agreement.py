"""The converged probe against scikit-learn's logistic regression, and under perturbations.

    python -m benchmarks.probe_agreement ROOT [--encoders 20]

ROOT is the folder of sweeps or comparisons on photographs. Kept networks are taken evenly from it.
For each network, the features of all splits are computed once. scikit-learn minimises the same
objective by its own solver and chooses its penalty on the same validation items. The table shows
the difference in test accuracy in points. Then our probes are trained again on reordered items, on
features multiplied by a random factor each, and with two threads. The table shows how many test
predictions change.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import perf_counter

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.machine import describe_machine
from benchmarks.table import markdown
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe
from mtcon_ray.evaluation.protocol import Measurement
from mtcon_ray.export.trained_network import open_checkpoint
from mtcon_ray.spec.evaluate import ConvergedProbeSpec

PENALTIES = ConvergedProbeSpec().penalties
SEED = 0
# Factors between 1/1,000 and 1,000: float32 features still have all their digits.
MAGNITUDE = 3.0

Counts = Mapping[str, int]  # classes by label
Perturbation = Callable[[LabelledFeatures], LabelledFeatures]


def main() -> None:
    """Prints the machine and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--encoders", type=int, default=20)
    options = parser.parse_args()
    paths = sorted(options.root.glob("sweeps/*/checkpoints/*/model.pt"))
    chosen = np.unique(np.linspace(0, len(paths) - 1, options.encoders).round().astype(int))
    print(describe_machine(), flush=True)
    print(measure([paths[i] for i in chosen], options.root))


def measure(paths: list[Path], root: Path) -> str:
    """Returns the table over the networks in these files. Takes minutes per network."""
    found = []
    for number, path in enumerate(paths, 1):
        begin = perf_counter()
        found.append(compare(*opened(path, root)))
        print(f"{number}/{len(paths)}: {perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return table(found)


def table(found: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """Returns the table of the results of `compare` for all networks."""
    header = ["label", "points from scikit-learn, mean (most)"]
    header += [
        f"of 1,000 predictions change: {name}, most" for name in ("order", "scale", "threads")
    ]
    rows = []
    for label in found[0]:
        points, *changed = zip(*(each[label] for each in found), strict=True)
        cells = [f"{fmean(points):.2f} ({max(points):.2f})", *(f"{max(c):.2f}" for c in changed)]
        rows.append([label, *cells])
    return f"{markdown(header, rows)}\n\n{len(found)} encoders"


def opened(path: Path, root: Path) -> tuple[Measurement, Counts]:
    """Returns the features of a kept network and the numbers of classes of its labels."""
    found = open_checkpoint(path, root=root, callbacks=Callbacks())
    torch.set_num_threads(1)
    measurement = found.full_measurement()
    classes = found.dataset.table.classes
    return measurement, {label: len(classes[label]) for label in measurement.places}


def compare(measurement: Measurement, num_classes: Counts) -> dict[str, tuple[float, ...]]:
    """Returns by label the points from scikit-learn's accuracy, then changes per 1,000 items."""
    train, val, test = measurement.train, measurement.val, measurement.measured
    assert val is not None
    ours = probes(train, val, num_classes)
    generator = torch.Generator().manual_seed(SEED)
    order = torch.randperm(len(train.features), generator=generator)
    exponent = 2 * torch.rand(train.features.shape[1], generator=generator) - 1
    factor = 10 ** (MAGNITUDE * exponent)
    permuted = probes(rows_of(train, order), val, num_classes)
    scaled = probes(scaled_by(train, factor), scaled_by(val, factor), num_classes)
    torch.set_num_threads(2)
    threaded = probes(train, val, num_classes)
    torch.set_num_threads(1)
    found = {}
    for label in num_classes:
        known = test.known(label)
        predicted = ours[label].predicted(known)
        accuracy = ours[label].correct(known).double().mean().item()
        others = (
            permuted[label].predicted(known),
            scaled[label].predicted(scaled_by(known, factor)),
            threaded[label].predicted(known),
        )
        points = 100 * abs(accuracy - scikit_accuracy(label, train, val, test))
        changed = (1000 * (each != predicted).double().mean().item() for each in others)
        found[label] = (points, *changed)
    return found


def probes(
    train: LabelledFeatures, val: LabelledFeatures, num_classes: Counts
) -> dict[str, LinearProbe]:
    """Returns our probes of the class labels."""
    return fit(train, num_classes, PENALTIES, val=val).probes


def rows_of(data: LabelledFeatures, order: torch.Tensor) -> LabelledFeatures:
    """Returns the items in another order."""
    labels = {label: values[order] for label, values in data.labels.items()}
    return LabelledFeatures(data.features[order], labels)


def scaled_by(data: LabelledFeatures, factor: torch.Tensor) -> LabelledFeatures:
    """Returns the items with each feature multiplied by its factor."""
    return data._replace(features=data.features * factor)


def scikit_accuracy(
    label: str, train: LabelledFeatures, val: LabelledFeatures, test: LabelledFeatures
) -> float:
    """Returns the test accuracy with the best penalty on val, the largest of equal penalties."""
    scaler = StandardScaler().fit(train.features.double().numpy())
    parts = [part.known(label) for part in (train, val, test)]
    xs = [scaler.transform(part.features.double().numpy()) for part in parts]
    ys = [part.labels[label].numpy() for part in parts]
    best, accuracy = -1.0, 0.0
    # A single solver for all penalties, from the largest down, each started from the last result.
    model = LogisticRegression(max_iter=10_000, warm_start=True)
    for penalty in sorted(PENALTIES, reverse=True):
        # scikit-learn minimises C * (sum of losses) + (squared norm) / 2.
        model.set_params(C=1 / (penalty * len(ys[0])))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit(xs[0], ys[0])
        score = model.score(xs[1], ys[1])
        if score > best:
            best, accuracy = score, model.score(xs[2], ys[2])
    return float(accuracy)


if __name__ == "__main__":
    main()
