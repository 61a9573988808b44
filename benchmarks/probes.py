"""Linear probes of three tasks and their bootstraps on a frozen encoder.

Our probes are timed with both solvers: L-BFGS until convergence, the default, and SGD in 20 epochs.
The peer is SupContrast's main_linear.py for each task. It encodes all images of train and val in
every epoch. A single epoch of a task is timed in turns with ours and counted 20 times per task. The
peer's time also includes encoding the test images once and a bootstrap as a loop over resamples.

Before the timing, the peer's features are compared with ours. Test accuracies of its training
(torch.optim on an nn.Linear) are compared with those of our SGD on the same features, in float64
and with a lower learning rate than in the timing.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.table import markdown
from benchmarks.timing import Times, interleaved, peak_bytes, ratio
from benchmarks.training import opened, spec_of
from mtcon_ray.base import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.data.views import evaluation_views
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.models.network import Network
from mtcon_ray.spec.data.base import Split
from mtcon_ray.spec.evaluate import ConvergedProbeSpec, SGDProbeSpec
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training.trainer import Trainer

HEADER = ("3 probes, 1,000 resamples", "seconds", "ours is faster by")
SEED = 0
# An accuracy may differ by a few items near a class border, where rounding decides.
TOLERANCE = 0.002
LARGE = ((20_000, 100), (80_000, 100), (20_000, 1_000))  # items and classes
LARGE_HEADER = ("one probe, 512 features", "CPU seconds", "peak memory, MiB")
TIMED_SGD = SGDProbeSpec()
CHECKED_SGD = SGDProbeSpec(lr=1e-3, momentum=0.9)
# Upper bound on the seconds with lbfgs divided by those with sgd, at 512 features.
AIM = 4.0

Encoded = dict[str, Tensor]  # features by split


def measure(
    num_images: int = 9188,
    encoder: str = "resnet18",
    rounds: int = 3,
    many: Sequence[tuple[int, int]] = LARGE,
) -> str:
    """Returns the tables, with the peer's 60 epochs extrapolated from a single epoch."""
    with TemporaryDirectory() as folder:
        spec = spec_of(round(0.7 * num_images), encoder, "float32")
        dataset = opened(spec, Path(folder))
        network = Trainer(spec, dataset, Path(folder), device=torch.device("cpu")).network
        check_same_accuracies(network, dataset, spec)
        by_sgd = with_values(spec, {"evaluate.probe": TIMED_SGD.model_dump()})
        times = interleaved(
            {
                "ours": lambda: probe(network, dataset, spec),
                "sgd": lambda: probe(network, dataset, by_sgd),
                "epoch": lambda: peer_epoch(network, dataset, spec, ("train", "val")),
                "test": lambda: peer_epoch(network, dataset, spec, ("test",)),
            },
            rounds,
        )
        resamples = seconds_of_bootstrap(len(dataset.table.rows("test")), spec.evaluate.bootstrap)
    num_tasks, ours, sgd = len(dataset.tasks), times["ours"], times["sgd"]
    epochs = num_tasks * TIMED_SGD.epochs
    peer = Times(
        tuple(
            epochs * epoch + num_tasks * (test + resamples)
            for epoch, test in zip(times["epoch"].seconds, times["test"].seconds, strict=True)
        )
    )
    images = f"{len(dataset.table.split):,} images"
    once = times["epoch"].median
    rows = [
        (
            f"mtcon-ray, {images}, and the held-out label besides, solver lbfgs",
            f"{ours.median:.1f}",
            "1",
        ),
        (
            f"as SupContrast: {epochs} epochs of {once:.1f} s",
            f"{peer.median:.1f}",
            str(ratio(peer, ours)),
        ),
        (
            f"mtcon-ray, solver sgd, {TIMED_SGD.epochs} epochs",
            f"{sgd.median:.1f}",
            str(ratio(sgd, ours)),
        ),
    ]
    width = network.encoder.width
    times_as_long = f"lbfgs takes {ratio(ours, sgd)} times as long as sgd, with {width} features"
    table = f"{markdown(HEADER, rows)}\n\n{times_as_long} (aim: at most {AIM:g} with 512)"
    return f"{table}\n\n{markdown(LARGE_HEADER, [large(*one) for one in many])}"


def large(num_items: int, num_classes: int, width: int = 512) -> tuple[str, str, str]:
    """Returns the row of a probe with all penalties, on features around a centre per class."""
    generator = torch.Generator().manual_seed(SEED)
    centres = 0.3 * torch.randn(num_classes, width, generator=generator)

    def drawn(number: int) -> LabelledFeatures:
        classes = torch.randint(num_classes, (number,), generator=generator)
        noise = torch.randn(number, width, generator=generator)
        return LabelledFeatures(centres[classes] + noise, {"class": classes})

    train, val = drawn(num_items), drawn(num_items // 5)
    penalties = ConvergedProbeSpec().penalties
    begin = process_time()
    peak = peak_bytes(lambda: fit(train, {"class": num_classes}, penalties, val=val))
    title = f"{num_items:,} items, {num_classes:,} classes"
    return title, f"{process_time() - begin:,.0f}", f"{peak / 2**20:,.0f}"


def probe(network: Network, dataset: Dataset, spec: RunSpec) -> dict[str, float]:
    """Returns our probes' scores and deviations of all tasks and of the held-out label."""
    return evaluation(network, dataset, spec).report()


def evaluation(network: Network, dataset: Dataset, spec: RunSpec) -> Evaluation:
    """Returns the evaluation on the CPU."""
    return Evaluation(network, dataset, spec, torch.device("cpu"))


def peer_epoch(
    network: Network, dataset: Dataset, spec: RunSpec, splits: Sequence[Split] = SPLITS
) -> Encoded:
    """Runs an epoch of the peer for a single task and returns the features by split.

    Encodes and classifies every image of the splits, and takes SGD steps on the train images.
    """
    task = dataset.tasks[0]
    network.eval()
    labels = torch.from_numpy(dataset.table.labels[task])
    classifier = nn.Linear(network.encoder.width, dataset.table.size_of(task))
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1, momentum=0.9)
    encoded: Encoded = {}
    for split in splits:
        rows = dataset.table.rows(split)
        parts = []
        for start in range(0, len(rows), 64):
            some = rows[start : start + 64]
            images = torch.from_numpy(np.asarray(dataset.images[some]))
            with torch.no_grad():
                features = network.encoder(evaluation_views(images, spec.views))
            loss = nn.functional.cross_entropy(classifier(features), labels[some])
            if split == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            parts.append(features)
        encoded[split] = torch.cat(parts)
    return encoded


def check_same_accuracies(network: Network, dataset: Dataset, spec: RunSpec) -> None:
    """Checks the peer's features and SGD accuracies; raises AssertionError if they differ."""
    measured = evaluation(network, dataset, spec).full_measurement()
    assert measured.val is not None
    parts = (measured.train, measured.val, measured.measured)
    ours: dict[str, LabelledFeatures] = dict(zip(SPLITS, parts, strict=True))
    for split, encoded in peer_epoch(network, dataset, spec).items():
        torch.testing.assert_close(ours[split].features, encoded, rtol=1e-4, atol=1e-4)
    # The network is untrained. At the usual learning rate, rounding differences of its features'
    # probes grow from step to step. With a lower rate and in float64 both trainings agree.
    exact: dict[str, LabelledFeatures] = {
        split: LabelledFeatures(part.features.double(), part.labels) for split, part in ours.items()
    }
    train, val, test = exact.values()
    sgd = measured.spec.model_copy(update={"probe": CHECKED_SGD})
    checked = measured._replace(train=train, val=val, measured=test, spec=sgd)
    accuracies = checked.scores_of(checked.fit().probes)
    features: Encoded = {split: part.features for split, part in exact.items()}
    for task in dataset.tasks:
        found = accuracies[metrics.score("classes", "test", metrics.slug(task))]
        expected = peer_accuracy(features, dataset, task, CHECKED_SGD)
        assert abs(found - expected) <= TOLERANCE, (task, found, expected)


def peer_accuracy(encoded: Encoded, dataset: Dataset, task: str, recipe: SGDProbeSpec) -> float:
    """Returns the peer's test accuracy of the best epoch on val.

    Takes the minibatches in the same order as our SGD.
    """
    labels = {
        split: torch.from_numpy(dataset.table.labels[task][dataset.table.rows(split)])
        for split in SPLITS
    }
    width = encoded["train"].shape[1]
    classifier = nn.Linear(width, dataset.table.size_of(task), dtype=encoded["train"].dtype)
    nn.init.zeros_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    generator = torch.Generator().manual_seed(SEED)
    best = (-1.0, 0.0)
    for _ in range(recipe.epochs):
        order_N = torch.randperm(len(labels["train"]), generator=generator)
        for some in order_N.split(recipe.batch_size):
            optimizer.zero_grad()
            logits = classifier(encoded["train"][some])
            nn.functional.cross_entropy(logits, labels["train"][some]).backward()
            optimizer.step()
        on_val, on_test = (
            (classifier(encoded[split]).argmax(dim=1) == labels[split]).float().mean().item()
            for split in ("val", "test")
        )
        if on_val > best[0]:
            best = on_val, on_test
    return best[1]


def seconds_of_bootstrap(num_items: int, resamples: int) -> float:
    """Returns the seconds of a bootstrap that computes the accuracy of each resample in a loop."""
    correct = np.random.default_rng(0).random(num_items) < 0.7
    generator = np.random.default_rng(1)
    started = perf_counter()
    values = [correct[generator.integers(0, num_items, num_items)].mean() for _ in range(resamples)]
    np.std(values)
    return perf_counter() - started
