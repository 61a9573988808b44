"""The plan of a sweep or training, as commands print it and as plan.json records it.

Imports no torch, so that recorded sweeps can be listed at once.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from mtcon_ray import metrics
from mtcon_ray.errors import SweepError
from mtcon_ray.evaluation.spec import EVALUATION, Select
from mtcon_ray.metrics import Kind
from mtcon_ray.registry import Spec


class Plan(Spec):
    """A resolved sweep. Counts are exact; if epochs are searched, they are those of the maximum."""

    name: str
    root: str
    num_trials: int = Field(description="trainings: configurations times repeats")
    num_configurations: int
    repeats: int
    epochs: int
    steps_per_epoch: int
    views_per_step: int
    images_per_trial: int = Field(description="images drawn, each in all its views")
    images_total: int = Field(description="before early stopping saves any")
    scheduler: str = Field(
        "not recorded", description="early stopping, and whether it is the default"
    )
    rung_epochs: tuple[int, ...] = Field(description="epochs after which a trial may be stopped")
    epochs_total: int | None = Field(
        None, description="epochs of all trials together; null: they depend on the trials' values"
    )
    num_items: dict[str, int] = Field(description="number of items by split")
    standard_error: float | None = Field(
        None,
        description="upper bound for val/accuracy, from the short probe's number of val items; "
        "null: not recorded",
    )
    classes: dict[str, int] = Field(
        description="number of classes by label column; of labels for a set, 1 for numbers"
    )
    kinds: dict[str, Kind] = Field(
        {}, description="kind of labels by label column; earlier versions recorded none"
    )
    majority: dict[str, float] = Field(
        {},
        description="baseline by label column, on the test split: share of the most frequent "
        "class, or mean share of positives for a set; none for numbers",
    )
    objective: str = Field(
        metrics.MEAN_ACCURACY, description="the metric that chooses between trials"
    )
    select: Select = Field("last", description="the epoch whose objective is a trial's value")
    evaluation: int = Field(
        EVALUATION,
        description="version of the evaluation protocol; scores of different versions are not "
        "comparable",
    )
    parameters: int | None = Field(
        description="number of parameters of encoder and heads; null: not counted"
    )
    store_bytes: int
    downloads: dict[str, int] = Field({}, description="bytes that remain to download, by URL")
    cluster: str
    concurrency: int | None = Field(description="trials at a time; null: unknown")
    cpus_per_trial: int
    gpus_per_trial: float
    images_per_second: float | None = Field(
        None, description="training throughput of one worker; null: not measured"
    )
    probe_seconds: float | None = Field(None, description="duration of a validation probe")
    test_seconds: float | None = Field(None, description="duration of the test evaluation")
    seconds_per_trial: float | None = Field(
        None, description="duration of a trial with one worker, with probes and test evaluation"
    )
    device_hours: float | None = Field(
        None,
        description="duration of all trials with one worker each, with probes and test "
        "evaluations; an upper bound if epochs_total is null; null: no measured rates",
    )
    wall_hours: float | None = Field(
        None,
        description="the same with `concurrency` trials at a time; null also if that is unknown, "
        "and for trials with several workers or a share of a GPU",
    )
    first_configurations: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]


def read_plan(path: Path) -> Plan | None:
    """Returns the plan in a file, None without the file.

    Fields of later versions are left out, and those that earlier ones lack have defaults. Raises
    SweepError if the file holds no plan.
    """
    if not path.exists():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Plan.model_validate({k: v for k, v in raw.items() if k in Plan.model_fields})
    except (ValueError, AttributeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise SweepError(f"{path} must hold the plan of a sweep or training: {first}") from None
