"""The `search` section of a spec: objective, search space, sampler, limits and early stopping."""

from math import inf, prod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mtcon_ray.base.metrics import HEAD, METRICS, Labels
from mtcon_ray.base.paths import NAME
from mtcon_ray.base.registry import Choice, Count, Positive, Spec
from mtcon_ray.errors import nearest
from mtcon_ray.spec.schedulers import SCHEDULERS, SchedulerSpec
from mtcon_ray.spec.space import Dimension, Point

# Fields with limits, which change no result of a trial.
LIMITS = ("max_concurrent", "max_failures", "max_hours", "stall_minutes")
MAX_TRIALS = 100_000  # configurations of a sweep
MAX_VALUES = 1_000  # listed values of a space, because each value is checked


class SearchSpec(Spec):
    """Objective, search space, sampler, number of trials, repeats, limits and early stopping."""

    objective: str | Annotated[dict[str, Positive], Field(min_length=1)] | None = Field(
        None,
        description="validation score maximised by the sweep. null: the mean over the tasks. TASK: "
        "its score. METRIC: the mean over the tasks with this metric. METRIC/TASK: the metric of "
        f"a task. METRIC is {', '.join(m for m in METRICS if not m.startswith(HEAD))}, or "
        f"{HEAD}/map_at_r and so on in the space of the task's own head. Higher is better in all. "
        "Weights by term, such as {shape: 2, knn: 1}: a weighted mean",
    )
    space: dict[str, Dimension] = Field(
        {},
        description="dotted path of a spec field to its range, e.g. method.temperature. uniform "
        "and int may have a step, {int: [16, 64], step: 16}",
    )
    sampler: Literal["tpe", "gp", "qmc", "random", "grid"] = Field(
        "tpe",
        description="Optuna's tpe, gp (Gaussian process), qmc (evenly spread, independent of the "
        "results) or random. grid: every combination of listed values",
    )
    num_trials: int | None = Field(
        None,
        ge=1,
        le=MAX_TRIALS,
        description="configurations. null: the whole grid, else 12 or all first_points",
    )
    first_points: tuple[Point, ...] = Field((), description="tried first: dotted path to value")
    start_from: tuple[Annotated[str, Field(pattern=f"^{NAME.pattern}$")], ...] = Field(
        (),
        description="names of earlier sweeps under the root with the same objective. The sampler "
        "(tpe or gp) starts from their finished trials",
    )
    repeats: int = Field(1, ge=1, le=100, description="seeds per configuration: seed, seed+1, ...")
    max_concurrent: Count | None = Field(None, description="trials at a time. null: as many as fit")
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
    scheduler: Annotated[SchedulerSpec, Choice(SCHEDULERS, "asha")] | None = Field(
        None,
        description="early stopping. null: asha from 10 trials on without repeats, if a probe "
        "comes before its last rung, else none",
    )

    @model_validator(mode="after")
    def _fields_fit_the_space(self) -> Self:
        num_values = sum(len(dimension.extremes) for dimension in self.space.values())
        if num_values > MAX_VALUES:
            raise ValueError(
                f"space must list at most {MAX_VALUES:,} values in all, got {num_values:,}; "
                "give ranges in their place, such as {uniform: [low, high]}"
            )
        for i, point in enumerate(self.first_points):
            for path, value in point.items():
                dimension = self.space.get(path)
                if dimension is None or not dimension.contains(value):
                    raise ValueError(f"first_points[{i}].{path} must lie in space, got {value!r}")
        for path, dimension in self.space.items():
            if self.sampler == "grid" and dimension.values is None:
                raise ValueError(
                    f"sampler grid needs `grid` or `choice` dimensions, got {dimension.kind} for "
                    f"{path}; list its values, or use sampler tpe or random"
                )
        if self.sampler == "grid" and self.num_configurations > MAX_TRIALS:
            raise ValueError(
                f"sampler grid must have at most {MAX_TRIALS:,} combinations, got "
                f"{self.num_configurations:,}; list fewer values, or set num_trials"
            )
        if self.start_from and self.sampler not in ("tpe", "gp"):
            raise ValueError(
                f"start_from must be used with sampler tpe or gp, got {self.sampler}, which does "
                "not learn from other sweeps"
            )
        return self

    def check_objective(self, labels: Labels) -> None:
        """Raises ValueError unless each term of the objective is a score of the tasks."""
        for term in self.weights or {}:
            if not labels.scored(term)[1]:
                raise ValueError(
                    f"search.objective must name tasks {list(labels.tasks)}, a metric or "
                    f"METRIC/TASK, got {term!r}{_way_out(term, labels)}"
                )

    def check_limit(self) -> None:
        """Raises ValueError if num_trials is above the trials of a grid, or of no space."""
        whole, is_listed = self.num_configurations, self.sampler == "grid" or not self.space
        if is_listed and self.num_trials is not None and self.num_trials > whole:
            raise ValueError(
                f"search.num_trials must be at most {whole:,}, the combinations of search.space, "
                f"got {self.num_trials:,}; leave it out, or give the space more values"
            )

    @property
    def weights(self) -> dict[str, float] | None:
        """The weights of the objective by term, None for the mean over all tasks."""
        return {self.objective: 1.0} if isinstance(self.objective, str) else self.objective

    @property
    def num_configurations(self) -> int:
        """Returns the number of configurations to try, at most the size of a finite space."""
        sizes = [d.size for d in self.space.values()]
        whole = inf if None in sizes else prod(s for s in sizes if s is not None)
        some = whole if self.sampler == "grid" else max(12, len(self.first_points))
        return int(min(whole, self.num_trials or some))

    @property
    def num_planned_trials(self) -> int:
        """The number of trials: each configuration as often as `repeats` says."""
        return self.num_configurations * self.repeats


def _way_out(term: str, labels: Labels) -> str:
    """Returns the end of a message about a term of the objective without tasks."""
    if unfit := labels.scored(term)[0]:
        return f"; {unfit} needs classes, got {[labels.kinds[task] for task in labels.tasks]}"
    if not labels.tasks:
        return "; leave it out, because without tasks val/rankme is maximised"
    return nearest(term, [*labels.tasks, *METRICS])
