"""The `search` section of a spec: objective, search space, sampler, limits and early stopping."""

from collections.abc import Collection
from math import inf, prod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mtcon_ray.base.paths import NAME
from mtcon_ray.base.registry import Choice, Positive, Spec
from mtcon_ray.errors import nearest
from mtcon_ray.spec.schedulers import SCHEDULERS, SchedulerSpec
from mtcon_ray.spec.space import Dimension, Point

# Fields with limits, which change no result of a trial.
LIMITS = ("max_concurrent", "max_failures", "max_hours", "max_device_hours", "stall_minutes")
MAX_TRIALS = 100_000  # configurations of a sweep
MAX_VALUES = 1_000  # listed values of a space, because each value is checked
Sampler = Literal["tpe", "gp", "qmc", "random", "grid"]


class SearchSpec(Spec):
    """Objective, search space, sampler, number of trials, repeats, limits and early stopping."""

    objective: str | dict[str, float] | None = Field(
        None,
        description="validation score maximised by the sweep. null: the mean over the tasks. A "
        "task's name: its score. Weights by task, such as {shape: 2, colour: 1}: a weighted mean",
    )
    space: dict[str, Dimension] = Field(
        {},
        description="dotted path of a spec field to its range, e.g. method.temperature. uniform "
        "and int may have a step, {int: [16, 64], step: 16}",
    )
    sampler: Sampler = Field(
        "tpe",
        description="Optuna's tpe, gp (Gaussian process), qmc (evenly spread, independent of the "
        "results) or random. grid: every combination of listed values",
    )
    num_trials: int | None = Field(
        None,
        ge=1,
        le=MAX_TRIALS,
        description="configurations to try. null: the whole grid, else 12",
    )
    first_points: tuple[Point, ...] = Field(
        (), description="known-good configurations to try first: path to value"
    )
    start_from: tuple[Annotated[str, Field(pattern=f"^{NAME.pattern}$")], ...] = Field(
        (),
        description="names of earlier sweeps under the root with the same objective. The sampler "
        "(tpe or gp) starts from their finished trials",
    )
    repeats: int = Field(1, ge=1, le=100, description="seeds per configuration: seed, seed+1, ...")
    max_concurrent: int | None = Field(
        None, ge=1, description="trials at a time. null: as many as the cluster has room for"
    )
    max_failures: int = Field(
        1,
        ge=0,
        description="restarts of a trial if its process or node was lost without notice, for each "
        "start of the sweep. 10 or more if nodes come and go",
    )
    stall_minutes: Positive | None = Field(
        None,
        description="minutes without a new epoch after which a trial's process is ended and the "
        "trial continues from its checkpoint (max_failures). Must be above the longest epoch with "
        "compiling, probe and test evaluation. null: no limit",
    )
    max_hours: Positive | None = Field(
        None,
        description="hours after which no more trials start, from each start of the sweep. "
        "Running trials are finished. null: no limit",
    )
    max_device_hours: Positive | None = Field(
        None,
        description="like max_hours, for the summed time of all trials over all starts, times the "
        "GPUs of a trial. A trial without a GPU counts as one device",
    )
    scheduler: Annotated[SchedulerSpec, Choice(SCHEDULERS, "name", "asha")] | None = Field(
        None,
        description="early stopping. null: asha from 10 trials on, if a probe comes before its "
        "last rung, else none",
    )

    @model_validator(mode="after")
    def _points_and_grid_fit_the_space(self) -> Self:
        num_values = sum(len(dimension.extremes) for dimension in self.space.values())
        if num_values > MAX_VALUES:
            raise ValueError(
                f"space must list at most {MAX_VALUES:,} values in all, got {num_values:,}; "
                "give ranges in their place, such as {uniform: [low, high]}"
            )
        for i, point in enumerate(self.first_points):
            for path, value in point.items():
                if path not in self.space:
                    raise ValueError(
                        f"first_points[{i}] must name searched fields {sorted(self.space)}, "
                        f"got {path!r}"
                    )
                if not self.space[path].contains(value):
                    raise ValueError(
                        f"first_points[{i}].{path} must lie inside its dimension "
                        f"{self.space[path].kind} {list(self.space[path].extremes)}, got {value!r}"
                    )
        if self.sampler == "grid":
            loose = [p for p, d in self.space.items() if d.values is None]
            if loose:
                raise ValueError(
                    "sampler grid needs `grid` or `choice` dimensions, got "
                    f"{self.space[loose[0]].kind} for {loose[0]}; "
                    "list its values, or use sampler tpe or random"
                )
            if self.num_configurations > MAX_TRIALS:
                raise ValueError(
                    f"sampler grid must have at most {MAX_TRIALS:,} combinations, got "
                    f"{self.num_configurations:,}; list fewer values, or set num_trials"
                )
        listed = [p for p, d in self.space.items() if d.values is not None]
        if self.sampler == "qmc" and listed:  # Optuna would draw these at random
            raise ValueError(
                f"sampler qmc needs ranges (loguniform, uniform, int, logint), got "
                f"{self.space[listed[0]].kind} for {listed[0]}; use sampler tpe, gp or random"
            )
        if self.start_from and self.sampler not in ("tpe", "gp"):
            raise ValueError(
                f"start_from must be used with sampler tpe or gp, got {self.sampler}, which does "
                "not learn from other sweeps"
            )
        return self

    def check_objective(self, tasks: Collection[str], held_out: Collection[str]) -> None:
        """Raises ValueError unless the objective names tasks and its weights are positive."""
        if self.weights is None:
            return
        if not self.weights:
            raise ValueError(
                "search.objective must name at least one task, got {}; null is the mean over all"
            )
        for task, weight in self.weights.items():
            if task in held_out:
                raise ValueError(
                    f"search.objective must name tasks, got the held-out label {task!r}; held-out "
                    f"labels are measured once, at the end, and choose nothing; name one of "
                    f"{list(tasks)}"
                )
            if task not in tasks:
                raise ValueError(
                    f"search.objective must name tasks {list(tasks)}, got {task!r}"
                    f"{nearest(task, tasks)}"
                )
            if not 0 < weight < inf:
                raise ValueError(
                    f"search.objective.{task} must be a finite weight above 0, got {weight:g}; "
                    "leave out a task that must not count"
                )

    @property
    def weights(self) -> dict[str, float] | None:
        """The weights of the objective by task, None for the mean over all tasks."""
        return {self.objective: 1.0} if isinstance(self.objective, str) else self.objective

    @property
    def num_configurations(self) -> int:
        """Returns the number of configurations to try, at most the size of a finite space."""
        sizes = [d.size for d in self.space.values()]
        whole = None if None in sizes else prod(s for s in sizes if s is not None)
        if self.num_trials is None:
            return whole if whole is not None and self.sampler == "grid" else min(12, whole or 12)
        return self.num_trials if whole is None else min(self.num_trials, whole)

    @property
    def num_planned_trials(self) -> int:
        """The number of trials: each configuration as often as `repeats` says."""
        return self.num_configurations * self.repeats
