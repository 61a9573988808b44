"""Planning of a spec: number of trials, steps, images, bytes, parameters, and concurrency.

Independent of Ray: the resources of the cluster are passed as a `ClusterView`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from mtcon_ray.capacity import ClusterView, check_cluster
from mtcon_ray.data.dataset import store_bytes
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.baseline import majority_shares
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.paths import cache_folder
from mtcon_ray.plan import Plan
from mtcon_ray.resources import MIRROR_SECONDS
from mtcon_ray.spec import RunSpec, with_each_encoder

# Standard error of val/accuracy above which `plan` warns: configurations whose scores differ by
# less are ranked by chance.
MAX_STANDARD_ERROR = 0.02


@dataclass(frozen=True)
class Rates:
    """Measured rates of one worker, with its share of the batch, alone on the machine."""

    images_per_second: float
    """Training throughput; each image counts once, whatever its number of views."""
    probe_seconds: float
    """Duration of one validation probe, including its views."""
    test_seconds: float
    """Duration of the test evaluation after the last epoch."""


def make_plan(
    spec: RunSpec,
    root: Path,
    cluster: ClusterView,
    table: LabelTable,
    *,
    downloads: Mapping[str, int] | None = None,
    first_configurations: tuple[dict[str, Any], ...] = (),
    rates: Rates | None = None,
    count_parameters: bool = True,
) -> Plan:
    """Returns the plan of a spec; with measured rates it includes times.

    `table` has the labels, of `check_data` or of the decoded data set; `downloads` the bytes that
    remain to be downloaded, by URL. Without `count_parameters` networks are built only where that
    checks their spec, which saves seconds.

    Raises CheckpointError, DataError, ResourceError or SpecError if the spec could never run.
    """
    batch, epochs = spec.train.batch_size, max(_numbers(spec, "train.epochs", spec.train.epochs))
    num_items = {s: len(table.rows(s)) for s in SPLITS}
    num_examples = spec.method.num_examples(num_items["train"])
    for size in (batch, *_numbers(spec, "train.batch_size", batch)):
        if size > num_examples:
            raise DataError(
                f"train.batch_size must be at most the training split's {num_examples} examples, "
                f"got {size}; the last incomplete batch is dropped, so nothing would be trained"
            )
    steps = num_examples // batch if spec.method.trains else 0
    per_trial = steps * batch * epochs * spec.method.images_per_example
    total = spec.search.num_planned_trials
    scheduler = spec.scheduler
    most_epochs = None
    if "train.epochs" not in spec.search.space:
        most_epochs = scheduler.epochs_known(total, epochs, spec.evaluate.every)
    # A binomial share has its largest variance, p (1 - p) = 0.25, at p = 1/2.
    error = math.sqrt(0.25 / min(num_items["val"], spec.evaluate.short_probe.max_items))
    _, high = spec.resources.worker_range
    concurrency = check_cluster(spec, cluster)
    labels = spec.labels
    sizes = {label: table.size_of(label) for label in labels.kinds}
    majority = majority_shares(table, labels.kinds)
    share = (most_epochs or total * epochs) / (total * epochs)
    # Rates are of a single worker: the speed of trials with several workers, or of trials that
    # share a GPU, is unknown.
    at_a_time = concurrency if high == 1 and not 0 < spec.resources.gpus < 1 else None
    num_probes = math.ceil(epochs / spec.evaluate.every)
    hours = _hours(rates, per_trial, num_probes, total, share, at_a_time) if rates else {}
    # Without the method's warnings about searched fields.
    warnings = [
        text
        for field, text in spec.method.warnings().items()
        if f"method.{field}" not in spec.search.space
    ]
    parameters = _count_parameters(
        spec,
        {task: sizes[task] for task in labels.tasks},
        cache_folder(root),
        all_networks=count_parameters,
    )
    return Plan(
        name=spec.name,
        root=str(root),
        num_trials=total,
        num_configurations=spec.search.num_configurations,
        repeats=spec.search.repeats,
        epochs=epochs,
        steps_per_epoch=steps,
        views_per_step=batch * spec.method.rows_per_example(spec.views.num_views),
        images_per_trial=per_trial,
        images_total=per_trial * total,
        scheduler=scheduler.name
        + ("" if spec.search.scheduler else " (the default; search.scheduler is omitted)"),
        rung_epochs=scheduler.rung_epochs(epochs, spec.evaluate.every),
        epochs_total=None if spec.may_end_early else most_epochs,
        num_items=num_items,
        split_origin=table.split_origin,
        standard_error=error,
        classes=sizes,
        kinds=dict(labels.kinds),
        majority=majority,
        objective=labels.objective,
        select=spec.evaluate.select,
        parameters=parameters,
        store_bytes=store_bytes(len(table), spec.data, spec.views.size),
        downloads=dict(downloads or {}),
        mirror_bytes_per_hour=_mirror_bytes(spec, parameters, concurrency, hours, epochs),
        cluster=cluster.where,
        concurrency=concurrency,
        cpus_per_trial=spec.resources.cpus * high,
        gpus_per_trial=spec.resources.gpus * high,
        **hours,
        first_configurations=first_configurations,
        warnings=(
            *table.warnings,
            *warnings,
            *_balance_warnings(spec, table),
            *_noise_warnings(spec, labels.objective, num_items["val"], error),
        ),
    )


def _hours(
    rates: Rates, num_images: int, num_probes: int, num_trials: int, share: float, few: int | None
) -> dict[str, float | None]:
    """Returns the fields of the plan that depend on measured rates.

    `num_images` and `num_probes` are per trial. `share` is the mean fraction of its epochs that a
    trial trains, given early stopping. `few` trials run at a time, None if that or their speed is
    unknown.
    """
    training = num_images / rates.images_per_second + num_probes * rates.probe_seconds
    seconds = training + rates.test_seconds
    # An overestimate: trials that are stopped early have no test evaluation.
    mean = training * share + rates.test_seconds
    wall = max(seconds, math.ceil(num_trials / few) * mean) if few else None
    return {
        **asdict(rates),
        "seconds_per_trial": seconds,
        "device_hours": num_trials * mean / 3600,
        "wall_hours": wall / 3600 if wall else None,
    }


def _mirror_bytes(
    spec: RunSpec,
    parameters: int | None,
    concurrency: int | None,
    hours: Mapping[str, float | None],
    epochs: int,
) -> int | None:
    """Returns an estimate of the bytes sent to the mirror per hour; see `Plan`.

    A resume state has the network and, of each parameter, one number of SGD and LARS, two of Adam.
    Buffers, a momentum encoder, event logs and the study are left out.
    """
    if spec.storage.mirror is None or parameters is None:
        return None
    most = 3600 / MIRROR_SECONDS
    seconds = hours.get("seconds_per_trial")
    epochs_an_hour = epochs * 3600 / seconds if seconds else math.inf
    resume_states = min(most, epochs_an_hour / spec.train.checkpoint_every)
    networks = min(most, epochs_an_hour / spec.evaluate.every)
    numbers = 3 if spec.train.optimizer.startswith("adam") else 2
    sent = 4 * parameters * (numbers * resume_states + networks)
    return round((concurrency or 1) * sent)


def _balance_warnings(spec: RunSpec, table: LabelTable) -> Iterator[str]:
    """Yields a warning for each balanced task that some training items have no label of."""
    train = table.rows("train")
    for task in dict.fromkeys(spec.train.balance):
        missing = len(train) - int(table.known(task)[train].sum())
        if missing:
            yield (
                f"train.balance {task!r} draws no image without that label: {missing:,} of "
                f"{len(train):,} training images are left out in its steps"
            )


def _noise_warnings(spec: RunSpec, objective: str, num_val: int, error: float) -> Iterator[str]:
    """Yields a warning if validation has too few items to tell configurations apart."""
    if not spec.data.tasks or spec.search.num_configurations == 1 or error <= MAX_STANDARD_ERROR:
        return
    needed, max_items = math.ceil(0.25 / MAX_STANDARD_ERROR**2), spec.evaluate.short_probe.max_items
    fields = [f"val has {num_val:,}"] if num_val < needed else []
    fields += [f"evaluate.short_probe.max_items is {max_items:,}"] if max_items < needed else []
    yield (
        f"{objective} must have a standard error of at most {MAX_STANDARD_ERROR:g} to tell close "
        f"configurations apart, got up to {error:.3f}; that needs {needed:,} validation items, "
        f"{' and '.join(fields)}"
    )


def _numbers(spec: RunSpec, path: str, value: int) -> list[int]:
    """Returns the listed or extreme numbers of a field, only its `value` if it is not searched."""
    searched = spec.search.space.get(path)
    numbers = searched.extremes if searched else [value]
    return [int(number) for number in numbers if isinstance(number, int | float)]


def _count_parameters(
    spec: RunSpec, sizes: dict[str, int], store: Path, *, all_networks: bool = True
) -> int | None:
    """Returns the number of parameters of encoder and heads.

    Building the networks also checks that the encoder's weights, searched ones too, fit them.
    Without `all_networks` only the networks that need this check are built, and the number may be
    None. Raises CheckpointError if weights do not fit, SpecError if an encoder refuses the views.
    """
    counts = []
    for one in with_each_encoder(spec):
        if not all_networks and not one.model.encoder.is_checked_by_building:
            continue
        with torch.device("meta"):  # allocates no memory and computes no initial weights
            method = METHODS[one.method.name](one.method, one.problem(sizes))
            network = build_network(one.model, method.make_network, one.seed, store=store)
            if one.model.encoder.is_checked_by_building:
                network.encoder.check_images(one.views.size)
        counts.append(sum(p.numel() for p in network.parameters()))
    return counts[0] if counts else None
