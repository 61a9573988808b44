"""Planning of a spec: number of trials, steps, images, bytes, parameters, and concurrency.

Independent of Ray: the resources of the cluster are passed as a `ClusterView`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mtcon_ray.base.metrics import HEAD
from mtcon_ray.base.paths import cache_folder, shown, stored_url
from mtcon_ray.data.dataset import store_size
from mtcon_ray.data.image_cache import num_bytes
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.probe_data import fewest_labels, majority_shares
from mtcon_ray.plan.capacity import ClusterView, check_cluster
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.traffic import step_exchange, store_traffic
from mtcon_ray.spec.evaluate import EVALUATION
from mtcon_ray.spec.run_spec import RunSpec, with_values

# Standard error of val/accuracy above which `plan` warns. Configurations with a smaller difference
# in score are ranked by chance.
MAX_STANDARD_ERROR = 0.02
# Labelled items of a split below which a score and its bootstrap deviation say nothing: an accuracy
# of one item has the deviation 0.
LEAST_LABELLED = 5


class Rates(NamedTuple):
    """Measured rates of a worker, with its share of the batch, alone on the machine.

    The throughput of training counts each image once, whatever its number of views. The other
    rates are durations: of a validation probe, and of the test evaluation after the last epoch.
    """

    images_per_second: float
    probe_seconds: float
    test_seconds: float


def make_plan(
    spec: RunSpec,
    root: Path,
    cluster: ClusterView,
    table: LabelTable,
    *,
    downloads: Mapping[str, int] | None = None,
    first: tuple[dict[str, Any], ...] = (),
    rates: Rates | None = None,
    count_parameters: bool = True,
    weights: Path | None = None,
) -> Plan:
    """Returns the plan of a spec, including times if measured rates are given.

    `table` has the labels, of `check_data` or of the decoded data set. `downloads` has the
    remaining bytes to download, by URL. `first` are the first configurations. `weights` is the
    folder with initial weights, by default the image store. Without `count_parameters` networks are
    built only to check their spec, which saves seconds.

    Raises CheckpointError, DataError, ResourceError or SpecError if the spec could never run.
    """
    num_items = {s: len(table.rows(s)) for s in SPLITS}
    check_batch_size(spec, table, spec.data.fraction)
    if spec.method.images_per_example > 1:  # before the images are decoded
        from mtcon_ray.data.sampling import triplets

        classes = tuple(task for task in spec.data.tasks if task in table.classes)
        triplets(table, classes, number=0, seed=spec.seed)
    total, scheduler, labels = spec.search.num_planned_trials, spec.scheduler, spec.labels
    counts = _counts(spec, num_items["train"])
    worst, num_scored = fewest_labels(table, spec)
    _, high = spec.resources.worker_range
    room = check_cluster(spec, cluster)
    concurrency = None if room is None else min(room, total)
    sizes = {label: table.size_of(label) for label in labels.kinds}
    # For an objective in the space of a head, the heads of each listed method are looked at.
    in_head = any(metric.startswith(HEAD) for metric, _ in labels.shares)
    each = with_each(spec, "model.encoder.", "views.size", *(["method."] if in_head else []))
    build_all = count_parameters or in_head
    built = [s for s in each if build_all or s.model.encoder.is_checked_by_building]
    of_tasks = {task: sizes[task] for task in labels.tasks}
    if built or spec.used_plugins:
        from mtcon_ray.plan import networks
    if spec.used_plugins:
        networks.try_plugins(spec, of_tasks)
    exchange: dict[str, int | float] = {}
    if built:
        store = weights or cache_folder(root)
        found = networks.count_networks(spec, built, of_tasks, store, extremes=count_parameters)
        parameters, trained, widths = zip(*found, strict=True)
        counts["parameters"] = min(parameters), max(parameters)
        exchange = step_exchange(high, counts["views_per_step"][1] * max(widths), max(trained))
    is_stored = stored_url(root) and "parameters" in counts
    traffic = store_traffic(spec, counts["parameters"][1], concurrency or 1) if is_stored else None
    most = {field: greatest for field, (_, greatest) in counts.items()}
    fewest, epochs = counts["epochs"]
    is_same = fewest == epochs  # in all trials
    known_epochs = scheduler.epochs_known(total, epochs, spec.evaluate.every) if is_same else None
    share = (known_epochs or total * epochs) / (total * epochs)
    # Rates are of a single worker: the speed of trials with several workers, or with a share of a
    # GPU, is unknown.
    at_a_time = concurrency if high == 1 and not 0 < spec.resources.gpus < 1 else None
    num_probes = math.ceil(epochs / spec.evaluate.every)
    images = most["images_per_trial"]
    risks = spec.method.warnings().items()
    hours = _hours(rates, images, num_probes, total, share, at_a_time) if rates else {}
    return Plan(
        name=spec.name,
        root=shown(root),
        num_trials=total,
        num_configurations=spec.search.num_configurations,
        repeats=spec.search.repeats,
        **{"parameters": None, **most},
        least={field: low for field, (low, high) in counts.items() if low < high},
        scheduler=scheduler.name
        + ("" if spec.search.scheduler else " (the default; search.scheduler is omitted)"),
        rung_epochs=scheduler.rung_epochs(epochs, spec.evaluate.every),
        epochs_total=None if spec.may_end_early else known_epochs,
        num_items=num_items,
        split_origin=table.split_origin,
        # A binomial share has its largest variance, p (1 - p) = 0.25, at p = 1/2.
        standard_error=math.sqrt(0.25 / num_scored),
        classes=sizes,
        kinds=dict(labels.kinds),
        majority=majority_shares(table, labels.kinds),
        objective=labels.objective,
        select=spec.evaluate.select,
        evaluation=EVALUATION,
        store_bytes=num_bytes(len(table), store_size(spec.data, spec.views.size)),
        downloads=dict(downloads or {}),
        traffic=traffic,
        exchange=exchange,
        cluster=cluster.where,
        concurrency=concurrency,
        cpus_per_trial=spec.resources.cpus * high,
        gpus_per_trial=spec.resources.gpus * high,
        **hours,
        first_configurations=first,
        warnings=(
            *table.warnings,
            # Without the method's warnings about searched fields.
            *(text for field, text in risks if f"method.{field}" not in spec.search.space),
            *_few_labels(spec, table),
            *_noise_warnings(spec, table, worst, num_scored),
        ),
    )


def exchange_times(spec: RunSpec, plan: Plan, bandwidth: float) -> dict[str, float]:
    """Returns the times of a plan's `exchange`. `bandwidth` is in gigabytes per second."""
    seconds = plan.exchange["sent"] / (1e9 * bandwidth)
    if plan.images_per_second is None:
        return {"seconds": seconds}
    batch = numbers_of(spec, "train.batch_size", spec.train.batch_size)[-1]
    images = batch * spec.method.images_per_example / spec.resources.worker_range[1]
    return {"seconds": seconds, "share": seconds / (seconds + images / plan.images_per_second)}


def check_batch_size(spec: RunSpec, table: LabelTable, fraction: float) -> None:
    """Raises DataError if the train split, reduced to a fraction, has no whole batch."""
    num_examples = spec.method.num_examples(len(table.rows("train")))
    largest = numbers_of(spec, "train.batch_size", spec.train.batch_size)[-1]
    if spec.method.trains and largest > num_examples:
        way_out = f"; lower it, or raise data.fraction {fraction:g}" if fraction < 1 else ""
        raise DataError(
            f"train.batch_size must be at most the training split's {num_examples} examples, got "
            f"{largest}; the last incomplete batch is dropped, so nothing would be trained{way_out}"
        )


def _hours(
    rates: Rates, num_images: int, num_probes: int, num_trials: int, share: float, few: int | None
) -> dict[str, float | None]:
    """Returns the fields of the plan that depend on measured rates.

    `num_images` and `num_probes` are per trial. `share` is the mean fraction of its epochs trained
    by a trial, given early stopping. `few` trials run at a time, None if their number or speed is
    unknown.
    """
    training = num_images / rates.images_per_second + num_probes * rates.probe_seconds
    seconds = training + rates.test_seconds
    # An overestimate: trials stopped early have no test evaluation.
    mean = training * share + rates.test_seconds
    wall = max(seconds, math.ceil(num_trials / few) * mean) if few else None
    hours = {"device_hours": num_trials * mean / 3600, "wall_hours": wall / 3600 if wall else None}
    return rates._asdict() | hours


def _few_labels(spec: RunSpec, table: LabelTable) -> Iterator[str]:
    """Yields a warning for each label measured on very few items."""
    for label in spec.labels.kinds:
        for split in SPLITS[1:]:
            number = int(table.known(label)[table.rows(split)].sum())
            if number < LEAST_LABELLED:
                yield (
                    f"{label!r} has a label in {number} of the items of the {split} split: with "
                    f"fewer than {LEAST_LABELLED}, a score and its deviation say nothing"
                )


def _noise_warnings(spec: RunSpec, table: LabelTable, worst: str, num_scored: int) -> Iterator[str]:
    """Yields a warning if validation has too few labels to distinguish configurations.

    `worst` is the task with the fewest, `num_scored`, among the items read by a probe.
    """
    needed, max_items = math.ceil(0.25 / MAX_STANDARD_ERROR**2), spec.evaluate.short_probe.max_items
    if not spec.data.tasks or spec.search.num_configurations == 1 or num_scored >= needed:
        return
    val = table.rows("val")
    known = int(table.known(worst)[val].sum())
    of = f" with a label of {worst!r}" if known < len(val) else ""
    yield (
        f"{spec.labels.objective} must have a standard error of at most {MAX_STANDARD_ERROR:g} to "
        f"tell close configurations apart, got up to {math.sqrt(0.25 / num_scored):.3f}; that "
        f"needs {needed:,} validation items, and a probe has {num_scored:,}: val has "
        f"{known:,}{of}, and evaluate.short_probe.max_items is {max_items:,}"
    )


def numbers_of(spec: RunSpec, path: str, value: int | None) -> Sequence[int]:
    """Returns all numbers of a field among trials, ascending, or `value` if it is not searched."""
    searched = spec.search.space.get(path)
    if searched and searched.bounds:
        low, high = searched.bounds
        return range(int(low), int(high) + 1, max(1, int(searched.step or 1)))
    values = searched.values or () if searched else [value]
    # A listed "8" is read as a number too.
    return sorted(int(float(n)) for n in values if isinstance(n, int | float | str))


def _counts(spec: RunSpec, num_train: int) -> dict[str, tuple[int, int]]:
    """Returns the least and the greatest count of a trial, by plan field."""
    method = spec.method
    epochs = numbers_of(spec, "train.epochs", spec.train.epochs)
    batches = numbers_of(spec, "train.batch_size", spec.train.batch_size)
    views = numbers_of(spec, "views.num_views", spec.views.num_views)
    rows = [method.rows_per_example(num_views) for num_views in (views[0], views[-1])]
    # For a method on triplets their number, which may be searched, else the training items.
    number = method.num_examples(num_train) if method.trains else 0
    examples = numbers_of(spec, "method.num_triplets", number)

    def seen(num_examples: int) -> Iterator[int]:
        """Yields the images of an epoch by batch size, without the last incomplete batch."""
        return (num_examples // b * b * method.images_per_example for b in batches)

    least, most = min(seen(examples[0])) * epochs[0], max(seen(examples[-1])) * epochs[-1]
    return {
        "epochs": (epochs[0], epochs[-1]),
        "steps_per_epoch": (examples[0] // batches[-1], examples[-1] // batches[0]),
        "views_per_step": (batches[0] * rows[0], batches[-1] * rows[-1]),
        "images_per_trial": (least, most),
    }


def with_each(spec: RunSpec, *sections: str) -> Iterator[RunSpec]:
    """Yields the spec, and a copy for each listed value of a searched field of these sections."""
    yield spec
    for path, dimension in spec.search.space.items():
        if path.startswith(sections):
            for value in dimension.values or ():
                yield with_values(spec, {path: value, "search": {}})
