"""What a sweep or a single training is: one frozen, closed tree of sections.

Read by `load_spec`, changed only by validating the changed whole again (`with_values`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from mtcon_ray import metrics
from mtcon_ray.data.batch import Problem
from mtcon_ray.data.sources import SOURCES, DataSpec
from mtcon_ray.data.views import ViewsSpec
from mtcon_ray.errors import SpecError, nearest
from mtcon_ray.evaluation.spec import EvaluateSpec
from mtcon_ray.execution import ResourcesSpec, StorageSpec, TrackingSpec
from mtcon_ray.methods import METHODS, MethodSpec, one_epoch_if_untrained
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.plain_yaml import parse_yaml
from mtcon_ray.registry import Choice, Spec, is_url, is_word
from mtcon_ray.search.schedulers import ASHA, NoScheduler, SchedulerSpec
from mtcon_ray.search.space import with_lists
from mtcon_ray.search.spec import SearchSpec
from mtcon_ray.spec_errors import TABLES, explain, key_of, near_path
from mtcon_ray.training.spec import TrainSpec

# Fields whose keys are the user's own, so that a dotted path ends in one key.
OPEN_KEYS = ("search.space", "data.label_noise", "method.temperature_by_task")
# Paths given on a command line start where the command was given, not beside the spec.
PATHS = (
    "data.csv",
    "data.images",
    "data.attributes",
    "model.encoder.weights",
    "storage.root",
)
# Sections that say how a sweep is run, not what a trial is.
NOT_SEARCHABLE = ("version", "name", "search", "resources", "tracking", "storage")
# Sections of several kinds, and the fields that choose the kind.
KINDS = {
    path
    for place in TABLES
    for path in (".".join(map(str, place)), ".".join(map(str, (*place, key_of(place)))))
}
MAX_SPEC_BYTES = 1_000_000
# From this many trials on a sweep that names no scheduler has ASHA.
MIN_ASHA_TRIALS = 10


def _default_data() -> DataSpec:
    return SOURCES["drawn"].Spec(kind="drawn")  # type: ignore[call-arg]


class RunSpec(Spec):
    """A sweep, or with an unused `search` section a single training."""

    version: Literal[1] = Field(1, description="of this format")
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,80}$", description="lower case letters, digits, . _ -"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="everything random follows from it")
    data: Annotated[DataSpec, Choice(SOURCES, "kind")] = Field(default_factory=_default_data)
    views: ViewsSpec = ViewsSpec()
    model: ModelSpec = ModelSpec()
    method: Annotated[MethodSpec, Choice(METHODS, "name", "mtcon")] = METHODS["mtcon"].Spec(
        name="mtcon"
    )
    train: TrainSpec = TrainSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    search: SearchSpec = SearchSpec()
    resources: ResourcesSpec = ResourcesSpec()
    tracking: TrackingSpec = TrackingSpec()
    storage: StorageSpec = StorageSpec()

    @model_validator(mode="before")
    @classmethod
    def _one_epoch_without_training(cls, given: Any) -> Any:
        return one_epoch_if_untrained(given)

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        self.model.encoder.check(self.views.size)
        self.method.check(self.problem({}))
        metrics.slugs((*self.data.tasks, *self.data.held_out))
        self._check_chunks()
        low, high = self.resources.worker_range
        for workers in range(low, high + 1):
            if self.train.batch_size % workers:
                raise ValueError(
                    f"train.batch_size must be divisible by resources.workers, got "
                    f"{self.train.batch_size} and {workers}"
                )
        if self.evaluate.every > self.train.epochs:
            raise ValueError(
                f"evaluate.every must be at most train.epochs, got {self.evaluate.every} "
                f"and {self.train.epochs}"
            )
        scheduler = self.search.scheduler
        if self.search.space and scheduler and not self._is_probed_before_last_rung(scheduler):
            more = "train more epochs" if self.evaluate.every == 1 else "probe more often"
            raise ValueError(
                f"search.scheduler must find a probe before its last rung "
                f"({scheduler.rungs[-1]:g} of {self.train.epochs} epochs), got evaluate.every "
                f"{self.evaluate.every}; {more} or set search.scheduler.name to none"
            )
        return self

    def _is_probed_before_last_rung(self, scheduler: SchedulerSpec) -> bool:
        rungs = scheduler.rungs
        return not rungs or self.evaluate.every <= rungs[-1] * self.train.epochs

    @property
    def scheduler(self) -> SchedulerSpec:
        """The scheduler of the sweep: `search.scheduler`, or its default where that is omitted."""
        return self.search.scheduler or self.default_scheduler()[0]

    def default_scheduler(self) -> tuple[SchedulerSpec, str]:
        """The scheduler of a sweep that names none, and the reason for it."""
        if self.search.num_configurations * self.search.repeats < MIN_ASHA_TRIALS:
            # Of few trials ASHA judges each against one or two others, by probes that are noisy.
            return NoScheduler.Spec(), f"fewer than {MIN_ASHA_TRIALS} trials"
        if not self._is_probed_before_last_rung(ASHA.Spec()):
            return NoScheduler.Spec(), "no probe comes before the last rung of asha"
        return ASHA.Spec(), f"{MIN_ASHA_TRIALS} trials or more"

    def _check_chunks(self) -> None:
        """The moments of a whole batch are not known while only a chunk of it is."""
        has_batch_norm = self.model.encoder.has_batch_norm or self.method.has_batch_norm
        chunk_size = self.train.chunk_size
        if chunk_size is not None and has_batch_norm and self.model.batch_norm == "global":
            raise ValueError(
                f"model.batch_norm must be local where the network has batch norm and "
                f"train.chunk_size is set, got global and {chunk_size}; each chunk is then "
                "normalised by its own moments. model.encoder.name vit has no batch norm"
            )

    def problem(self, sizes: Mapping[str, int]) -> Problem:
        """What the method is built for; sizes by task, as `Problem` means them."""
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
        """The spec of one trial: searched fields, seed and warm-up set, no search left in it."""
        values = with_lists(self.search.space, values)
        trial = with_values(self, {**values, "seed": self.seed + repeat, "search": {}})
        train = trial.train.model_copy(update={"warmup_epochs": trial.train.warmup})
        return trial.model_copy(update={"train": train})


def load_spec(path: Path, overrides: Iterable[str] = (), *, with_search: bool = True) -> RunSpec:
    """The spec in a YAML file, `a.b=value` overrides applied.

    Without its search the `search` section is dropped unread, for a single training. Raises
    SpecError naming file, field, rule, value and the nearest valid key.
    """
    raw = read_yaml(path)
    for override in overrides:
        apply_override(raw, override)
    if not with_search:
        raw.pop("search", None)
    return parse_spec(raw, where=str(path), folder=path.resolve().parent)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises SpecError for a file that is too large, or none."""
    try:
        if path.stat().st_size > MAX_SPEC_BYTES:
            raise SpecError(f"{path} must be a spec of at most {MAX_SPEC_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path} must be a readable YAML file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} must be a YAML text in UTF-8") from None
    raw = parse_yaml(text, str(path))
    if not isinstance(raw, dict):
        raise SpecError(f"{path} must hold a mapping of sections, got {type(raw).__name__}")
    return raw


def parse_spec(
    raw: Mapping[str, Any], *, where: str = "spec", folder: Path | None = None
) -> RunSpec:
    """The spec in plain data. Raises SpecError; relative paths start at `folder`."""
    try:
        spec = RunSpec.model_validate(raw, context={"folder": folder} if folder else None)
    except ValidationError as error:
        raise SpecError(f"{where}: {explain(error, RunSpec)}") from None
    check_space(spec, where)
    return spec


def dump_spec(spec: RunSpec) -> dict[str, Any]:
    """The whole spec as plain data, defaults included; `parse_spec` reads it back."""
    return spec.model_dump(mode="json", by_alias=True)


def with_values(spec: RunSpec, values: Mapping[str, Any]) -> RunSpec:
    """The spec with fields at dotted paths replaced, validated as a whole. Raises SpecError."""
    raw = dump_spec(spec)
    for path, value in values.items():
        set_value(raw, path, value)
    try:
        return RunSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(explain(error, RunSpec)) from None


def with_scheduler(spec: RunSpec, recorded: RunSpec | None = None) -> RunSpec:
    """The spec with `search.scheduler` written out, for a sweep that begins or is resumed.

    Where the spec omits it, the scheduler is that of the `recorded` spec of the same sweep, so
    that a sweep keeps its scheduler when trials are added; else the default.
    """
    if spec.search.scheduler is not None:
        return spec
    scheduler = (recorded or spec).scheduler
    search = spec.search.model_copy(update={"scheduler": scheduler})
    return spec.model_copy(update={"search": search})


def value_at(spec: RunSpec, path: str) -> Any:
    """The value of the field at a dotted path. Raises SpecError with the nearest path."""
    leaves = _leaves(dump_spec(spec))
    if path not in leaves:
        raise SpecError(f"unknown field {path!r}{nearest(path, leaves)}")
    return leaves[path]


def check_space(spec: RunSpec, where: str = "spec") -> None:
    """Raises SpecError where a searched path does not exist or its field refuses a bound."""
    leaves = _leaves(dump_spec(spec))
    for path, dimension in spec.search.space.items():
        place = f"{where}: search.space.{path}"
        if path in KINDS:
            raise SpecError(
                f"{place} must not be searched, for each kind has fields of its own; "
                "`mtcon-ray compare` trains several kinds under one budget"
            )
        if path in ("data.tasks", "data.held_out"):
            raise SpecError(
                f"{place} must not be searched, for means over other labels cannot be compared; "
                "`mtcon-ray compare` trains each choice under one budget"
            )
        if path == "evaluate.select":
            raise SpecError(
                f"{place} must not be searched, for it says by which epoch trials are compared; "
                "set evaluate.select for the whole sweep"
            )
        known = path in leaves or any(path.startswith(f"{o}.") for o in OPEN_KEYS)
        if path.split(".")[0] in NOT_SEARCHABLE or not known:
            searchable = [p for p in leaves if p.split(".")[0] not in NOT_SEARCHABLE]
            raise SpecError(f"{place} must be a field of the spec{near_path(path, searchable)}")
        for value in dimension.extremes:
            try:
                with_values(spec, {path: value, "search": {}})
            except SpecError as error:
                raise SpecError(
                    f"{place}: the field refuses {value!r} of {dimension.kind}: {error}"
                ) from None


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Set the field of a `path=value`, its value read as YAML. Raises SpecError."""
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise SpecError(f"--set must read path=value, got {override!r}")
    value = parse_yaml(text, f"--set {path}")
    path = path.strip()
    if path in PATHS and isinstance(value, str) and not is_url(value):
        file = Path(value).expanduser().absolute()
        # Such as imagenet, or a name that is refused where it is read.
        is_name = path == "model.encoder.weights" and is_word(value) and not file.exists()
        value = value if is_name else str(file)
    set_value(raw, path, value)


def set_value(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set the field at a dotted path of plain data. Raises SpecError where that is no section."""
    open_key = next((o for o in OPEN_KEYS if path.startswith(f"{o}.")), None)
    keys = [*open_key.split("."), path[len(open_key) + 1 :]] if open_key else path.split(".")
    node = raw
    for i, key in enumerate(keys[:-1]):
        child = {} if node.get(key) is None else node[key]
        if isinstance(child, str) and tuple(keys[: i + 1]) in TABLES:
            child = {key_of(tuple(keys[: i + 1])): child}
        node[key] = child
        if not isinstance(child, dict):
            raise SpecError(
                f"{path!r} must name a field, but {'.'.join(keys[: i + 1])} is no section"
            )
        node = child
    node[keys[-1]] = value


def _leaves(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in raw.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in OPEN_KEYS:
            leaves |= _leaves(value, f"{path}.")
        else:
            leaves[path] = value
    return leaves
