"""Text of a sweep's plan."""

from collections.abc import Iterator

from mtcon_ray import metrics
from mtcon_ray.plan import Plan
from mtcon_ray.presentation import configuration_text, duration_text, size_text
from mtcon_ray.spec import RunSpec

LABEL_COLUMNS = 16


def plan_lines(spec: RunSpec, plan: Plan) -> list[str]:
    """Returns the plan as a two-column table, warnings last; `make_plan` must have counted all."""
    assert plan.standard_error is not None
    assert plan.parameters is not None
    rows = [
        *_training_lines(spec, plan),
        *data_lines(spec, plan),
        (plan.objective, f"standard error at most {plan.standard_error:.3f}"),
        *(("download", _download(url, count)) for url, count in plan.downloads.items()),
        ("store", f"{size_text(plan.store_bytes)} of decoded images under {plan.root}"),
        *_resource_lines(spec, plan),
        *_first_lines(plan),
        *(("warning", text) for text in plan.warnings),
    ]
    return [plan.name, *(f"  {label:<{LABEL_COLUMNS}}{text}" for label, text in rows)]


def counted(number: float, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "CPU"), counted(0.5, "GPU"), counted(2, "worker")
    ('1 CPU', '0.5 GPUs', '2 workers')
    """
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def data_lines(spec: RunSpec, plan: Plan) -> list[tuple[str, str]]:
    """Returns the items of each split, and every label with its kind and number of classes."""
    items = ", ".join(f"{count:,} {split}" for split, count in plan.num_items.items())
    lines = [("items", items), ("tasks", _labels(spec.data.tasks, spec, plan))]
    if spec.data.held_out:
        lines.append(("held out", _labels(spec.data.held_out, spec, plan)))
    return lines


def _training_lines(spec: RunSpec, plan: Plan) -> Iterator[tuple[str, str]]:
    trials = counted(plan.num_configurations, "configuration")
    if plan.repeats > 1:
        trials = f"{plan.num_trials}: {trials} x {plan.repeats} seeds"
    searched = ", ".join(f"{path} ({dim.kind})" for path, dim in spec.search.space.items())
    yield "trials", trials
    yield "searched", f"{searched or 'nothing'}; sampler {spec.search.sampler}"
    yield "objective", _objective(spec, plan)
    rungs = f" after epochs {', '.join(map(str, plan.rung_epochs))}" if plan.rung_epochs else ""
    yield "early stopping", f"{plan.scheduler}{rungs}{_epochs_text(plan)}"
    steps = plan.steps_per_epoch
    yield "epochs", f"{plan.epochs} of {steps:,} steps, {plan.views_per_step:,} views a step"
    total = f"{plan.images_total:,} in all"
    if spec.scheduler.name != "none":
        total += " before early stopping"
    yield "images seen", f"{plan.images_per_trial:,} a trial, {total}"
    yield "model", f"{spec.model.encoder.name}, {plan.parameters:,} parameters with its heads"


def _objective(spec: RunSpec, plan: Plan) -> str:
    title = metrics.objective_title(map(spec.data.kind_of, spec.data.tasks))
    return plan.objective + ("" if title == "accuracy" else f", {title}")


def _download(url: str, num_bytes: int) -> str:
    return f"{size_text(num_bytes)} of {url}, once" if num_bytes else f"{url} is here already"


def _resource_lines(spec: RunSpec, plan: Plan) -> Iterator[tuple[str, str]]:
    low, high = spec.resources.worker_range
    workers = counted(high, "worker") if low == high else f"{low}-{high} workers"
    has = [counted(plan.cpus_per_trial, "CPU")]
    has += [counted(plan.gpus_per_trial, "GPU")] if plan.gpus_per_trial else []
    in_all = " in all" if high > 1 else ""
    yield "a trial takes", f"{workers} with {' and '.join(has)}{in_all}, on {plan.cluster}"
    few = plan.concurrency
    yield "at a time", counted(few, "trial") if few else "unknown, as the cluster's maximum is"
    yield from _time_lines(plan, high)


def _time_lines(plan: Plan, num_workers: int) -> Iterator[tuple[str, str]]:
    """Yields measured rates and hours, "at most" if early stopping may save some."""
    if plan.device_hours is None:
        yield "device-hours", "rate unknown; --calibrate measures it here"
        return
    assert plan.seconds_per_trial is not None
    rate = f"{plan.images_per_second:,.0f} images a second, each in all its views"
    if num_workers > 1:
        rate += ", by one worker with its share of the batch"
    evaluations = (
        f"a probe {plan.probe_seconds:.2f} s, the test evaluation {plan.test_seconds:.2f} s"
    )
    yield "measured here", f"{rate}; {evaluations}"
    alone = ", on one worker" if num_workers > 1 else ""
    whole = f"{duration_text(plan.seconds_per_trial)}, probes and test evaluation in it{alone}"
    yield "a whole trial", whole
    most = " at most" if plan.epochs_total is None else ""
    yield (
        "device-hours",
        f"{plan.device_hours:.2f}{most}, with all probes and test evaluations{alone}",
    )
    if plan.wall_hours is not None:
        yield (
            "wall clock",
            f"{duration_text(plan.wall_hours * 3600)}{most}, and a minute or two to start",
        )


def _epochs_text(plan: Plan) -> str:
    """Returns the number of epochs left by early stopping, "" if it is unknown beforehand."""
    whole = plan.num_trials * plan.epochs
    if plan.epochs_total in (None, whole):
        return ""
    return f"; {plan.epochs_total:,} of {whole:,} epochs in all"


def _first_lines(plan: Plan) -> Iterator[tuple[str, str]]:
    for i, point in enumerate(plan.first_configurations):
        yield "first to run" if i == 0 else "", configuration_text(point)


def _labels(columns: tuple[str, ...], spec: RunSpec, plan: Plan) -> str:
    def extent(column: str) -> str:
        match spec.data.kind_of(column):
            case "classes":
                return f"{plan.classes[column]} classes"
            case "set":
                return f"{plan.classes[column]} labels"
            case "number":
                return "a number"

    return ", ".join(f"{column} ({extent(column)})" for column in columns)
