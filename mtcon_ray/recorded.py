"""The spec and the plan in the folder of a sweep or training.

The classes of a whole spec import torch, which takes seconds. Commands that only show results read
a `RecordedSpec` and do without them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from mtcon_ray.data.disk import whole_file
from mtcon_ray.errors import SweepError
from mtcon_ray.evaluation.spec import EVALUATION, Select, ShortProbeSpec
from mtcon_ray.metrics import Kind, Labels
from mtcon_ray.paths import PLAN_FILE, SPEC_FILE
from mtcon_ray.plan import Plan, read_fields
from mtcon_ray.resources import TrackingSpec
from mtcon_ray.root_files import check_own
from mtcon_ray.safe_yaml import dump_yaml, read_yaml
from mtcon_ray.search.schedulers import SCHEDULERS
from mtcon_ray.search.spec import SearchSpec

if TYPE_CHECKING:
    from mtcon_ray.spec import RunSpec


@dataclass(frozen=True)
class RecordedSpec:
    """A spec that was recorded with all defaults written out.

    `whole` parses all of it and imports torch. The other properties read single fields, and resort
    to `whole` for what an earlier version did not record. `kinds` are the kinds of its labels, None
    or empty if the plan recorded none.
    """

    raw: Mapping[str, Any]
    where: str = "spec"
    kinds: Mapping[str, Kind] | None = None

    @cached_property
    def whole(self) -> "RunSpec":
        """The whole spec. Raises SpecError if it is invalid."""
        return parse_recorded(self.raw, where=self.where)

    @cached_property
    def search(self) -> SearchSpec:
        """The search section, without a scheduler that only a plugin knows."""
        search = self.raw.get("search", {})
        if not isinstance(search, Mapping):
            return self.whole.search
        search = dict(search)
        scheduler = search.get("scheduler")
        if isinstance(scheduler, Mapping) and scheduler.get("name") not in set(SCHEDULERS):
            del search["scheduler"]
        try:
            return SearchSpec.model_validate(search)
        except ValidationError:
            return self.whole.search  # raises the error that names file, field and rule

    @property
    def scheduler(self) -> str:
        """The name of the scheduler."""
        search = self.raw.get("search")
        recorded = search.get("scheduler") if isinstance(search, Mapping) else None
        name = recorded.get("name") if isinstance(recorded, Mapping) else None
        return self.whole.scheduler.name if name is None else str(name)

    @cached_property
    def tracking(self) -> TrackingSpec:
        """The tracking section."""
        try:
            return TrackingSpec.model_validate(self.raw.get("tracking", {}))
        except ValidationError:
            return self.whole.tracking  # raises, as above

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self._field("method", "name"))

    @property
    def encoder(self) -> str:
        """The name of the encoder."""
        encoder = self._field("model", "encoder", Mapping)
        name = encoder.get("name") if isinstance(encoder, Mapping) else encoder.name
        return self.whole.model.encoder.name if name is None else str(name)

    @property
    def data(self) -> str:
        """The kind of data."""
        return str(self._field("data", "kind"))

    @cached_property
    def labels(self) -> Labels:
        """The label columns and their kinds."""
        tasks, held_out = (
            self._field("data", name, list | tuple) for name in ("tasks", "held_out")
        )
        kinds = self.kinds or {}
        if not all(isinstance(label, str) and label in kinds for label in (*tasks, *held_out)):
            return self.whole.labels
        return Labels(tuple(tasks), tuple(held_out), kinds, self.search.weights)

    @property
    def seed(self) -> int:
        """The seed of the first repeat."""
        seed = self.raw.get("seed")
        return seed if isinstance(seed, int) else self.whole.seed

    @property
    def may_end_early(self) -> bool:
        """True if a trial may finish at a plateau; specs of versions without patience are False."""
        train = self.raw.get("train")
        patience = train.get("patience") if isinstance(train, Mapping) else None
        return isinstance(patience, int) or "train.patience" in self.search.space

    @property
    def select(self) -> Select:
        """The epoch whose network is selected."""
        select: Select = self._field("evaluate", "select")
        return select if select in get_args(Select) else self.whole.evaluate.select

    @property
    def neighbours(self) -> int:
        """The number of nearest neighbours that classify an item."""
        return int(self._field("evaluate", "neighbours", int))

    def _field(self, section: str, name: str, kind: Any = str) -> Any:
        fields = self.raw.get(section)
        if isinstance(fields, Mapping) and isinstance(fields.get(name), kind):
            return fields[name]
        # A spec of an earlier version, or one that was damaged: then this raises its error.
        return getattr(getattr(self.whole, section), name)


def write_beginnings(folder: Path, spec: "RunSpec", plan: Plan) -> None:
    """Writes spec and plan to the folder of a sweep or training, each file atomically."""
    from mtcon_ray.spec import dump_spec

    text = dump_yaml(dump_spec(spec))
    for name, content in ((SPEC_FILE, text), (PLAN_FILE, plan.model_dump_json(indent=1) + "\n")):
        with whole_file(folder / name) as file:
            file.write(content.encode())


def read_record(path: Path) -> dict[str, Any]:
    """Returns the plain data of a recorded spec.

    Raises SpecError as `read_yaml` does, SweepError if the file lies outside of its sweep.
    """
    check_own(path)
    return read_yaml(path)


def load_recorded(path: Path, overrides: Iterable[str] = ()) -> "RunSpec":
    """Returns the spec in the file of a sweep or training, with `a.b=value` overrides applied.

    Raises SpecError if it is invalid.
    """
    from mtcon_ray.spec import apply_override

    raw = read_record(path)
    for override in overrides:
        apply_override(raw, override)
    return parse_recorded(raw, where=str(path))


def parse_recorded(raw: Mapping[str, Any], *, where: str) -> "RunSpec":
    """Returns the spec from plain data that was recorded with all defaults written out.

    Also reads specs of versions without evaluate.probe.solver, which trained all probes by
    stochastic gradient descent. `train.compile: kernels` of earlier versions changed rounding
    alone, so it is read as none. Raises SpecError if the spec is invalid.
    """
    from mtcon_ray.spec import parse_spec

    raw = dict(raw)
    train, evaluate = raw.get("train"), raw.get("evaluate")
    if isinstance(train, Mapping) and train.get("compile") == "kernels":
        raw["train"] = {**train, "compile": "none"}
    if isinstance(evaluate, Mapping):
        probe, short = evaluate.get("probe"), evaluate.get("short_probe", {})
        if isinstance(probe, Mapping) and isinstance(short, Mapping) and "solver" not in probe:
            known = ShortProbeSpec.model_fields.keys() & short.keys()
            short = {name: short[name] for name in known}
            raw["evaluate"] = {
                **evaluate,
                "probe": {**probe, "solver": "sgd"},
                "short_probe": short,
            }
    return parse_spec(raw, where=where)


def check_evaluation(folder: Path) -> None:
    """Raises SweepError if the sweep or training was evaluated by another version's protocol.

    Its scores could not be compared with those of this version. A damaged plan raises it, too.
    """
    # Plans without the field are of versions before it was introduced, with evaluation 1.
    plan = read_fields(folder / PLAN_FILE)
    recorded = EVALUATION if plan is None else plan.get("evaluation", 1)
    if recorded != EVALUATION:
        raise SweepError(
            f"{folder.name!r} must have been begun with the probes of this version to be resumed, "
            f"got evaluation {recorded} instead of {EVALUATION}: accuracies of both cannot be "
            "compared; start anew with another --name, or resume it with the version that began it"
        )
