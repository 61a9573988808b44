"""A plan as lines of text."""

from collections.abc import Iterator

from mtcon_ray.cli.text import configuration, size
from mtcon_ray.plan import Plan
from mtcon_ray.spec import RunSpec

LABEL_COLUMNS = 16


def plan_lines(spec: RunSpec, plan: Plan) -> list[str]:
    """The plan as a two-column table, warnings last."""
    rows = [
        *_training_lines(spec, plan),
        *data_lines(spec, plan),
        ("val/accuracy", f"standard error at most {plan.standard_error:.3f}"),
        *(("download", _download(url, count)) for url, count in plan.downloads.items()),
        ("store", f"{size(plan.store_bytes)} of decoded images under {plan.root}"),
        *_resource_lines(spec, plan),
        *_first_lines(plan),
        *(("warning", text) for text in plan.warnings),
    ]
    return [plan.name, *(f"  {label:<{LABEL_COLUMNS}}{text}" for label, text in rows)]


def data_lines(spec: RunSpec, plan: Plan) -> list[tuple[str, str]]:
    """Items by split, and every label with its kind and number of classes."""
    items = ", ".join(f"{count:,} {split}" for split, count in plan.num_items.items())
    lines = [("items", items), ("tasks", _labels(spec.data.tasks, spec, plan))]
    if spec.data.held_out:
        lines.append(("held out", _labels(spec.data.held_out, spec, plan)))
    return lines


def _training_lines(spec: RunSpec, plan: Plan) -> Iterator[tuple[str, str]]:
    seeds = f" x {plan.repeats} seeds" if plan.repeats > 1 else ""
    searched = ", ".join(f"{path} ({dim.kind})" for path, dim in spec.search.space.items())
    yield "trials", f"{plan.num_trials} = {plan.num_configurations} configurations{seeds}"
    yield "searched", f"{searched or 'nothing'}; sampler {spec.search.sampler}"
    rungs = f" after epochs {', '.join(map(str, plan.rung_epochs))}" if plan.rung_epochs else ""
    yield "early stopping", f"{plan.scheduler}{rungs}{_epochs_text(plan)}"
    steps = plan.steps_per_epoch
    yield "epochs", f"{plan.epochs} of {steps:,} steps, {plan.views_per_step:,} views a step"
    total = f"{plan.images_total:,} in all before early stopping"
    yield "images seen", f"{plan.images_per_trial:,} a trial, {total}"
    yield "model", f"{spec.model.encoder.name}, {plan.parameters:,} parameters with its heads"


def _download(url: str, num_bytes: int) -> str:
    return f"{size(num_bytes)} of {url}, once" if num_bytes else f"{url} is here already"


def _resource_lines(spec: RunSpec, plan: Plan) -> Iterator[tuple[str, str]]:
    workers = "-".join(map(str, sorted(set(spec.resources.worker_range))))
    each = f"{workers} worker(s), {plan.cpus_per_trial} CPUs and {plan.gpus_per_trial:g} GPUs"
    yield "a trial takes", f"{each} in all, on {plan.cluster}"
    few = plan.concurrency
    yield "at a time", f"{few} trials" if few else "unknown: the cluster's maximum is not known"
    hours = plan.device_hours
    unknown = "rate unknown; --calibrate measures it here"
    yield "device-hours", f"{hours:.2f} at most" if hours is not None else unknown


def _epochs_text(plan: Plan) -> str:
    """How many epochs early stopping leaves, where that is known beforehand."""
    whole = plan.num_trials * plan.epochs
    if plan.epochs_total in (None, whole):
        return ""
    return f"; {plan.epochs_total:,} of {whole:,} epochs in all"


def _first_lines(plan: Plan) -> Iterator[tuple[str, str]]:
    for i, point in enumerate(plan.first_configurations):
        yield "first to run" if i == 0 else "", configuration(point)


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
