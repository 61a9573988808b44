"""The spec of a sweep: an immutable tree of pydantic sections.

`load_spec` reads it from a file. It is changed only by validating a changed copy (`with_values`),
since pydantic's `model_copy` checks nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from mtcon_ray.base import metrics, registry
from mtcon_ray.base.plugins import MODULE, import_installed, import_named
from mtcon_ray.base.safe_yaml import parse_yaml, read_yaml
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.data.base import SOURCES, DataSpec
from mtcon_ray.spec.data.own import SyntheticSpec
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.evaluate import EvaluateSpec
from mtcon_ray.spec.messages import explain
from mtcon_ray.spec.methods.base import METHODS, MethodSpec, one_epoch_if_untrained
from mtcon_ray.spec.methods.supervised import MTConSpec
from mtcon_ray.spec.problem import Problem
from mtcon_ray.spec.recipes import with_recipe_defaults
from mtcon_ray.spec.resources import ResourcesSpec, StorageSpec, TrackingSpec
from mtcon_ray.spec.schedulers import ASHA, NoScheduler, SchedulerSpec
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.spec.space import with_lists
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.spec.views import ViewsSpec

# The sections of a trial's configuration.
SEARCHABLE = {"data", "views", "model", "method", "train"}
# Their fields with incomparable values within a sweep, in addition to all kinds of a section.
NOT_COMPARABLE = {"data.tasks", "data.held_out", "data.held_out_top_k", "data.seed"}
# A sweep without `search.scheduler` uses ASHA if it has at least this many trials.
MIN_ASHA_TRIALS = 10

# The sections with a choice that plugins may add to.
OPEN = (ModelSpec, SearchSpec, TrainSpec, ViewsSpec, EvaluateSpec)
import_installed()
registry.rebuild(*OPEN)


class RunSpec(registry.Spec):
    """A sweep, or without the `search` section a training as a sweep of one trial."""

    version: Literal[1] = Field(1, description="of this format")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,80}$", description="of a-z, 0-9, . _ -")
    seed: registry.Seed = Field(0, description="everything random follows from it")
    plugins: tuple[Annotated[str, Field(pattern=f"^{MODULE}$")], ...] = Field(
        (),
        description="modules with plugins, such as methods or encoders, in the spec's folder or "
        "installed. Needs --allow-plugins",
    )
    data: Annotated[DataSpec, registry.Choice(SOURCES)] = SyntheticSpec()
    views: ViewsSpec = ViewsSpec()
    model: ModelSpec = ModelSpec()
    method: Annotated[MethodSpec, registry.Choice(METHODS, "mtcon")] = MTConSpec()
    train: TrainSpec = TrainSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    search: SearchSpec = SearchSpec()
    resources: ResourcesSpec = ResourcesSpec()
    tracking: TrackingSpec = TrackingSpec()
    storage: StorageSpec = StorageSpec()

    @model_validator(mode="before")
    @classmethod
    def _by_data_and_method(cls, given: Any) -> Any:
        return one_epoch_if_untrained(with_recipe_defaults(given))

    @model_validator(mode="after")
    def _sections_agree(self, info: ValidationInfo) -> Self:
        if info.context and info.context.get("recorded"):
            return self  # checked when it was begun, and it may have kinds that only plugins know
        self.model.encoder.check(self.views.size)
        problem = self.problem({})
        MethodSpec.check(self.method, problem)  # which a plugin's check may leave out
        self.method.check(problem)
        self.search.check_objective(self.labels)
        self.search.check_limit()
        self.evaluate.check_metrics()
        self.views.check_second(1 if self.method.images_per_example > 1 else self.views.num_views)
        self._check_chunks()
        fewest, most = self.resources.worker_range
        for workers in range(fewest, most + 1):
            if self.train.batch_size % workers:
                raise ValueError(
                    f"train.batch_size must be divisible by every number of resources.workers, got "
                    f"{self.train.batch_size} and {workers}"
                )
        if self.storage.keep is not None and self.tracking.checkpoints == "all":
            raise ValueError(
                f"storage.keep {self.storage.keep} and tracking.checkpoints all exclude each "
                "other; tracking.checkpoints: kept sends the networks that are kept"
            )
        scheduler = self.search.scheduler
        if self.search.space and scheduler and not self._is_probed_before_last_rung(scheduler):
            more = "train more epochs" if self.evaluate.every == 1 else "probe more often"
            raise ValueError(
                f"evaluate.every {self.evaluate.every} leaves no probe before the scheduler's last "
                f"rung ({scheduler.rungs[-1]:g} of {self.train.epochs} epochs); {more} or set "
                "search.scheduler.name to none"
            )
        return self

    def _is_probed_before_last_rung(self, scheduler: SchedulerSpec) -> bool:
        rungs = scheduler.rungs
        return not rungs or self.evaluate.every <= rungs[-1] * self.train.epochs

    @property
    def labels(self) -> metrics.Labels:
        """The label columns and their kinds."""
        data = self.data
        kinds = {label: data.kind_of(label) for label in (*data.tasks, *data.held_out)}
        return metrics.Labels(data.tasks, data.held_out, kinds, self.search.weights)

    @property
    def used_plugins(self) -> dict[str, registry.Spec]:
        """The sections of plugins that take part in a training, by "method 'name'"."""
        chosen: list[tuple[str, Any]] = [("method", self.method), ("encoder", self.model.encoder)]
        chosen += [("optimizer", self.train.optimizer), ("schedule", self.train.lr_schedule)]
        chosen += [("augmentation", self.views.extra)] if self.views.extra else []
        chosen += [("metric", metric) for metric in self.evaluate.metrics]
        own = f"{__name__.partition('.')[0]}."
        found = {f"{what} {section.name!r}": section for what, section in chosen}
        return {k: s for k, s in found.items() if not type(s).__module__.startswith(own)}

    @property
    def may_end_early(self) -> bool:
        """True if a plateau may end a trial before its last epoch."""
        return self.train.patience is not None or "train.patience" in self.search.space

    @property
    def scheduler(self) -> SchedulerSpec:
        """The scheduler of the sweep: `search.scheduler`, or the default if it is omitted."""
        # With fewer trials ASHA compares each trial with one or two others, by noisy probes. Of
        # repeated trials it would stop single seeds, and the mean of the others is too high.
        many = self.search.num_planned_trials >= MIN_ASHA_TRIALS and self.search.repeats == 1
        is_asha = many and self._is_probed_before_last_rung(ASHA())
        return self.search.scheduler or (ASHA() if is_asha else NoScheduler())

    def _check_chunks(self) -> None:
        """Raises ValueError for global batch norm with chunks.

        The moments of the whole batch are unknown while only one chunk is in memory.
        """
        has_batch_norm = self.model.encoder.has_batch_norm or self.method.has_batch_norm
        chunk_size = self.train.chunk_size
        if chunk_size is not None and has_batch_norm and self.model.batch_norm == "global":
            raise ValueError(
                f"model.batch_norm must be local where the network has batch norm and "
                f"train.chunk_size is set, got global and {chunk_size}; each chunk is then "
                "normalised by its own moments. model.encoder.name vit has no batch norm"
            )

    def problem(self, sizes: Mapping[str, int]) -> Problem:
        """Returns the description for the method's constructor, with sizes as in `Problem`."""
        return Problem(
            kinds={task: self.data.kind_of(task) for task in self.data.tasks},
            batch_size=self.train.batch_size,
            num_views=self.views.num_views,
            head_dim=self.model.head_dim,
            head_hidden=self.model.head_hidden,
            encoder=self.model.encoder.name,
            seed=self.seed,
            sizes=sizes,
        )

    def trial(self, values: Mapping[str, Any], repeat: int = 0) -> "RunSpec":
        """Returns the spec of a trial: with searched values, seed + repeat, and no search.

        Keeps `search.objective`, which also selects the epoch, and drops the rest of `search`.
        Writes train.warmup_epochs out. Raises SpecError if a value is invalid.
        """
        values = with_lists(self.search.space, values)
        search = {"objective": self.search.objective}
        trial = with_values(self, {**values, "seed": self.seed + repeat, "search": search})
        train = trial.train.model_copy(update={"warmup_epochs": trial.train.warmup})
        return trial.model_copy(update={"train": train})


def load_spec(path: Path, overrides: Iterable[str] = ()) -> RunSpec:
    """Returns the spec in a YAML file with `a.b=value` overrides applied.

    Raises SpecError with file, field, rule, value and the nearest valid key.
    """
    return parse_spec(read_yaml(path), overrides, where=str(path), folder=path.resolve().parent)


def parse_spec(
    raw: dict[str, Any],
    overrides: Iterable[str] = (),
    *,
    where: str = "spec",
    folder: Path | None = None,
) -> RunSpec:
    """Returns the spec from plain data, to which it applies `a.b=value` overrides.

    Relative paths start at `folder`. Raises SpecError if the data are invalid, with a message that
    begins with `where`.
    """
    # Before the overrides, since their paths depend on the fields of plugins, and after them, since
    # they may name plugins.
    import_plugins(raw, where=where, folder=folder)
    for override in overrides:
        apply_override(raw, override)
    import_plugins(raw, where=where, folder=folder)
    spec = _validated(raw, f"{where}: ", {"folder": folder})
    check_space(spec, where)
    return spec


def parse_recorded(raw: Mapping[str, Any], where: str = "spec") -> RunSpec:
    """Returns a recorded spec to show its results. Imports no plugin, so no consent is needed.

    A section of a kind that only a plugin knows has the fields common to all kinds.
    """
    return _validated(raw, f"{where}: ", {"recorded": True})


def import_plugins(raw: Mapping[str, Any], *, where: str, folder: Path | None) -> bool:
    """Imports the plugins named by a spec as plain data. Returns True if a plugin is new.

    Raises SpecError without the user's consent, and if a plugin cannot be imported.
    """
    if is_new := import_named(raw.get("plugins"), where, folder):
        registry.rebuild(*OPEN, RunSpec)
    return is_new


def dump_spec(spec: RunSpec) -> dict[str, Any]:
    """Returns the spec as plain data with all defaults, which `parse_spec` reads back."""
    return spec.model_dump(mode="json", by_alias=True, warnings=False)  # of plugins not imported


def with_values(spec: RunSpec, values: Mapping[str, Any]) -> RunSpec:
    """Returns the spec with the fields at dotted paths replaced. Raises SpecError if invalid."""
    # Only changed sections are validated again: a spec is checked with each listed value.
    changed = {path.partition(".")[0] for path in values if "." in path}
    raw = dict(spec) | spec.model_dump(mode="json", by_alias=True, include=changed)
    # A section comes before its fields, which it would replace.
    for path, value in sorted(values.items(), key=lambda each: each[0].count(".")):
        set_value(raw, path, value)
    return _validated(raw)


def with_scheduler(spec: RunSpec, recorded: RunSpec | None = None) -> RunSpec:
    """Returns the spec with `search.scheduler` written out, for the start or resume of a sweep.

    If the spec omits it, the scheduler of `recorded` is used, the stored spec of the same sweep.
    A sweep therefore keeps its scheduler if trials are added. Without `recorded` it is the default.
    """
    scheduler = spec.search.scheduler or (recorded or spec).scheduler
    search = spec.search.model_copy(update={"scheduler": scheduler})
    return spec.model_copy(update={"search": search})


def check_space(spec: RunSpec, where: str = "spec") -> None:
    """Checks the search space: all paths exist, may be searched, and accept their extreme values.

    Raises SpecError otherwise.
    """
    choices = registry.choice_fields(RunSpec).items()
    # Optimizers and schedules are compared like their numbers.
    kinds = [(place, choice) for place, choice in choices if place[0] != "train"]
    fixed = {".".join(map(str, place)) for place, _ in kinds} | NOT_COMPARABLE
    fixed |= {".".join(map(str, (*place, choice.key))) for place, choice in kinds}
    for path, dimension in spec.search.space.items():
        place = f"{where}: search.space.{path}"
        if path in fixed or path.split(".")[0] in RunSpec.model_fields.keys() - SEARCHABLE:
            raise SpecError(
                f"{place} must not be searched, because trials that differ in it cannot be "
                "compared; `mtcon-ray compare` trains each choice under one budget, and "
                "search.repeats each configuration with several seeds"
            )
        for value in dimension.tried:
            try:
                with_values(spec, {path: value, "search": {}})
            except SpecError as error:
                raise SpecError(
                    f"{place}: the field refuses {value!r} of {dimension.kind}: {error}"
                ) from None


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Sets the field of a `path=value` override in plain data. The value is read as YAML.

    A searched field, a key of a mapping or a field below too, leaves the search: trials would set
    its value. Paths start at the working directory. Raises SpecError for a malformed override.
    """
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise SpecError(f"--set must read path=value, got {override!r}")
    value = parse_yaml(text, f"--set {path}")
    path = path.strip()
    is_path = path in registry.fields_with(RunSpec, registry.PathMark) and isinstance(value, str)
    if is_path and not registry.URL.match(value):
        file = registry.expanded(value).absolute()
        # These weights may be a name, such as imagenet.
        is_name = path == "model.encoder.weights" and registry.is_word(value) and not file.exists()
        value = value if is_name else str(file)
    set_value(raw, path, value)
    search = raw["search"] if isinstance(raw.get("search"), dict) else {}
    space = search["space"] if isinstance(search.get("space"), dict) else {}
    below = (field for field in space if path.startswith(f"{field}."))
    if given := {*_given(path, value), *below} & space.keys():
        points = search.get("first_points")
        for each in (space, *(points if isinstance(points, list) else ())):
            for field in given if isinstance(each, dict) else ():
                each.pop(field, None)
        if not space:
            search |= {"num_trials": None, "first_points": []}


def _given(path: str, value: Any) -> Iterator[str]:
    """Yields the path of a value, and of all values inside."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from _given(f"{path}.{key}", inner)


def set_value(raw: dict[str, Any], path: str, value: Any) -> None:
    """Sets the field at a dotted path of plain data, creating missing sections.

    Raises SpecError if a field on the path is not a section.
    """
    # A key of these mappings may contain dots, so the rest of a path is a single key.
    open_keys = registry.fields_with(RunSpec, dict)
    open_key = next((o for o in open_keys if path.startswith(f"{o}.")), None)
    keys = [*open_key.split("."), path[len(open_key) + 1 :]] if open_key else path.split(".")
    node = raw
    for i, key in enumerate(keys[:-1]):
        child = {} if node.get(key) is None else node[key]
        choice = registry.choice_fields(RunSpec).get(tuple(keys[: i + 1]))
        if isinstance(child, str) and choice is not None:
            child = {choice.key: child}
        node[key] = child
        if not isinstance(child, dict):
            raise SpecError(f"{path!r} names no field: {'.'.join(keys[: i + 1])} is not a section")
        node = child
    node[keys[-1]] = value


def _validated(raw: Any, where: str = "", context: Mapping[str, Any] | None = None) -> RunSpec:
    try:
        return RunSpec.model_validate(raw, context=context)
    except ValidationError as error:
        raise SpecError(where + explain(error, RunSpec)) from None
