"""Text of the plan of a sweep."""

from collections.abc import Iterator

from rich.filesize import decimal

from mtcon_ray.data.sources import DataSpec
from mtcon_ray.display import presentation as show
from mtcon_ray.plan.plan import Plan
from mtcon_ray.spec.run_spec import RunSpec

LABEL_COLUMNS = 16
Row = tuple[str, str]


def plan_lines(spec: RunSpec, plan: Plan) -> list[str]:
    """Returns the plan as a two-column table, warnings last. `make_plan` must have counted all."""
    rows = [*setup(spec, plan)]
    if spec.data.tasks:
        rows.append((plan.objective, f"standard error at most {plan.standard_error:.3f}"))
    rows += [("download", f"{decimal(n)} of {url}, once") for url, n in plan.downloads.items() if n]
    rows.append(("store", f"{decimal(plan.store_bytes)} of decoded images under {plan.root}"))
    rows += _resource_rows(spec, plan)
    if plan.traffic:
        hourly, hourly_bytes, trial, trial_bytes = plan.traffic
        text = f"about {hourly:,} requests and {decimal(hourly_bytes)} uploaded an hour, and "
        text += f"{trial:,} requests and {decimal(trial_bytes)} for each trial"
        rows.append(("object store", text))
    for i, point in enumerate(plan.first_configurations):
        rows.append(("" if i else "first to run", show.configuration_text(point)))
    rows += [("warning", text) for text in plan.warnings]
    return [plan.name, *(f"  {label:<{LABEL_COLUMNS}}{text}" for label, text in rows)]


def work_of(plans: list[Plan]) -> list[str]:
    """Returns the sums of trials and of their epochs."""
    epochs = sum(plan.epochs_total or plan.num_trials * plan.epochs for plan in plans)
    most = "at most " if any(plan.epochs_total is None for plan in plans) else ""
    return [f"{sum(plan.num_trials for plan in plans):,}", f"{most}{epochs:,}"]


def rungs_text(plan: Plan) -> str:
    """Returns the epochs after which trials may be stopped, " after epochs 5, 10"."""
    of = f" of {plan.epochs:,}" if "epochs" in plan.least else ""
    return f" after epochs {', '.join(map(str, plan.rung_epochs))}{of}"


def counted(number: float, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "CPU"), counted(0.5, "GPU"), counted(2, "worker")
    ('1 CPU', '0.5 GPUs', '2 workers')
    """
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def data_lines(data: DataSpec, plan: Plan) -> list[Row]:
    """Returns the items of each split, and every label with its kind and number of classes.

    The plan of a received sweep may lack labels.
    """
    words = {"classes": "{} classes", "set": "{} labels"}

    def labels(columns: tuple[str, ...]) -> str:
        known = [c for c in columns if c in plan.kinds.keys() & plan.classes.keys()]
        extents = {c: words[plan.kinds[c]].format(plan.classes[c]) for c in known}
        return ", ".join(f"{c} ({extent})" for c, extent in extents.items())

    items = ", ".join(f"{count:,} {split}" for split, count in plan.num_items.items())
    rows = [("items", items), *([("splits", plan.split_origin)] if plan.split_origin else [])]
    rows.append(("tasks", labels(data.tasks) or "none"))
    return rows + ([("held out", labels(data.held_out))] if data.held_out else [])


def setup(spec: RunSpec, plan: Plan) -> Iterator[Row]:
    """Yields what is trained: the trials, the search, the network and the data."""
    trials = counted(plan.num_configurations, "configuration")
    if plan.repeats > 1:
        trials = f"{plan.num_trials}: {trials} x {plan.repeats} seeds from {spec.seed}"
    yield "trials", trials
    searched = [
        f"{path} ({dim.kind} {show.abridged(', '.join(map(show.value_text, dim.extremes)), 80)})"
        for path, dim in spec.search.space.items()
    ]
    yield "searched", f"{'; '.join(searched) or 'nothing'}; sampler {spec.search.sampler}"
    yield "objective", plan.objective + show.objective_note(spec.labels)
    yield "early stopping", plan.scheduler + (rungs_text(plan) if plan.rung_epochs else "")
    steps, views = plan.count_text("steps_per_epoch"), plan.count_text("views_per_step")
    in_all = f"; {plan.epochs_total:,} epochs in all" if plan.epochs_total else ""
    yield "epochs", f"{plan.count_text('epochs')} of {steps} steps, {views} views a step{in_all}"
    parameters = "unknown" if plan.parameters is None else plan.count_text("parameters")
    network = f"{spec.method.name} on {spec.model.encoder.name}"
    yield "model", f"{network}, {parameters} parameters with its heads"
    yield "data", spec.data.kind
    yield from data_lines(spec.data, plan)


def _resource_rows(spec: RunSpec, plan: Plan) -> Iterator[Row]:
    """Yields resources, measured rates and hours, "at most" if early stopping may save some."""
    low, high = spec.resources.worker_range
    workers = counted(high, "worker") if low == high else f"{low}-{high} workers"
    has = [counted(plan.cpus_per_trial, "CPU")]
    has += [counted(plan.gpus_per_trial, "GPU")] if plan.gpus_per_trial else []
    in_all = " in all" if high > 1 else ""
    yield "a trial takes", f"{workers} with {' and '.join(has)}{in_all}, on {plan.cluster}"
    if found := plan.exchange:
        most = "at most " if {"views_per_step", "parameters"} & plan.least.keys() else ""
        text = f"a step gathers {most}{found['gathered']:,} bytes of rows, reduces {most}"
        text += f"{found['reduced']:,} of gradients; "
        text += f"each of {high} workers sends {found['sent']:,} in rings"
        text += ", in {seconds:.3g} s".format(**found) if "seconds" in found else ""
        text += ", at most {share:.0%} of a step".format(**found) if "share" in found else ""
        yield "exchange", text
    few = plan.concurrency
    yield "at a time", counted(few, "trial") if few else "unknown, as the cluster's maximum is"
    if 0 < spec.resources.gpus <= 0.5 and few != 1 and spec.train.compile == "graphs":
        yield "sharing a GPU", "gains nothing with graphs unless MPS runs on nodes: docs/gpus.md"
    if plan.device_hours is None:
        yield "device-hours", "rate unknown; --calibrate measures it here"
        return
    rate = f"{plan.images_per_second:,.0f} images a second, each in all its views"
    times = f"a probe {plan.probe_seconds:.2f} s, the test evaluation {plan.test_seconds:.2f} s"
    yield "measured here", f"{rate}, by one worker with its share of the batch; {times}"
    most = " at most" if plan.epochs_total is None else ""
    hours = f"{plan.device_hours:.2f}{most} on one worker, with all probes and test evaluations"
    yield "device-hours", hours
    if plan.wall_hours is not None:
        wall = show.duration_text(plan.wall_hours * 3600)
        yield "wall clock", f"{wall}{most}, and a minute or two to start"
