"""The plan of a sweep, as commands print it and as plan.json records it.

Imports no torch: recorded sweeps can be listed at once.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from mtcon_ray.base import metrics
from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.registry import Spec
from mtcon_ray.base.root_files import read_small
from mtcon_ray.errors import SweepError
from mtcon_ray.spec.evaluate import Select


class Plan(Spec, extra="ignore"):
    """A resolved sweep. Counts are exact. If trials differ, the largest count is given.

    A recorded plan may have further fields of an earlier version.
    """

    name: str
    root: str
    num_trials: int  # trainings: configurations times repeats
    num_configurations: int
    repeats: int
    epochs: int
    steps_per_epoch: int
    views_per_step: int
    images_per_trial: int  # images drawn, each in all its views
    # By name of a field: the least value of a trial, if searched fields change it.
    least: dict[str, int] = Field({})
    scheduler: str  # early stopping, and whether it is the default
    rung_epochs: tuple[int, ...]  # epochs after which a trial may be stopped
    epochs_total: int | None = None  # of all trials, None if they depend on the trials' values
    num_items: dict[str, int]  # by split
    split_origin: str = ""  # source of the splits, "" for splits published by a data set
    # Upper bound for val/accuracy, from the short probe's number of labelled val items of the
    # task with the fewest.
    standard_error: float
    classes: dict[str, int]  # by label column: classes, or labels of a set
    kinds: dict[str, Kind]  # by label column
    # Baseline by label column, on the test split: share of the most frequent class, or mean share
    # of positives for a set.
    majority: dict[str, float] = Field({})
    objective: str = metrics.MEAN_ACCURACY  # the metric to choose between trials
    select: Select = "last"  # the epoch with the trial's value of the objective
    # Version of the evaluation protocol. Scores of different versions are not comparable.
    evaluation: int
    parameters: int | None  # of encoder and heads, None if not counted
    store_bytes: int
    # With a root in an object store: requests and uploaded bytes, of each hour and of each trial.
    traffic: tuple[int, int, int, int] | None = None
    # The exchange in a step with the most workers, empty without one. Bytes: `gathered` from all
    # workers, `reduced` over them, and `sent` by each worker if both use rings. With a bandwidth
    # the `seconds` of sending, and with a rate their `share` of a step without overlap.
    exchange: dict[str, int | float] = Field({})
    downloads: dict[str, int] = Field({})  # remaining bytes to download, by URL
    cluster: str
    concurrency: int | None  # trials at a time, at most num_trials, None if unknown
    cpus_per_trial: int
    gpus_per_trial: float
    # Measured rates and durations of a single worker, None if not measured.
    images_per_second: float | None = None  # training throughput
    probe_seconds: float | None = None  # a validation probe
    test_seconds: float | None = None  # the test evaluation
    device_hours: float | None = None  # all trials, an upper bound if epochs_total is None
    # All trials, `concurrency` at a time. None also if the concurrency is unknown, and for trials
    # with several workers or a share of a GPU.
    wall_hours: float | None = None
    first_configurations: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]

    def count_text(self, field: str) -> str:
        """Returns a count of a trial, "16 to 32" if trials differ in it."""
        most = getattr(self, field)
        least = self.least.get(field, most)
        return f"{least:,} to {most:,}" if least < most else f"{most:,}"


def read_plan(path: Path) -> Plan | None:
    """Returns the plan in a file, None without the file.

    Raises SweepError if the file holds no plan of this version.
    """
    try:
        return Plan.model_validate_json(read_small(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        # pydantic's first line only counts the problems.
        first, *problem = map(str.strip, str(error).splitlines())
        got = ": ".join(problem[:2]) or first
        cure = "delete it, and a resume writes it again"
        raise SweepError(f"{path} is not a plan of this version: {got}; {cure}") from None
