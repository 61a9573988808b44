"""The spec and the plan in the folder of a sweep or training.

The classes of a whole spec import torch, which takes seconds. Commands that only show results read
a `RecordedSpec` instead.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError

from mtcon_ray.base.metrics import Kind, Labels
from mtcon_ray.base.paths import PLAN_FILE, SPEC_FILE
from mtcon_ray.base.registry import Spec
from mtcon_ray.base.root_files import check_own
from mtcon_ray.base.safe_yaml import dump_yaml, read_yaml
from mtcon_ray.data.disk import whole_file
from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.plan.plan import Plan, read_plan
from mtcon_ray.spec.evaluate import EVALUATION, EvaluateSpec
from mtcon_ray.spec.messages import explain
from mtcon_ray.spec.resources import TrackingSpec
from mtcon_ray.spec.schedulers import SCHEDULERS
from mtcon_ray.spec.search import SearchSpec

if TYPE_CHECKING:
    from mtcon_ray.spec.run_spec import RunSpec


class _Section(Spec):
    """A section from which only some fields are read."""

    model_config = ConfigDict(extra="ignore")


class _Named(_Section):
    name: str


class _Model(_Section):
    encoder: _Named


class _Data(_Section):
    kind: str
    tasks: tuple[str, ...]
    held_out: tuple[str, ...]


class _Train(_Section):
    patience: int | None = None


class RecordedSpec(_Section):
    """The fields of a recorded spec that can be read without torch.

    `raw` holds all fields, `where` the file to name in messages. `kinds` are the kinds of the
    labels from the plan, or None without a plan.
    """

    seed: int
    data: _Data
    model: _Model
    method: _Named
    train: _Train = _Train()
    evaluate: EvaluateSpec = EvaluateSpec()
    search: SearchSpec = SearchSpec()
    tracking: TrackingSpec = TrackingSpec()
    raw: dict[str, Any]
    where: str
    kinds: dict[str, Kind] | None

    @cached_property
    def whole(self) -> "RunSpec":
        """The whole spec. Imports torch. Raises SpecError if it is invalid."""
        from mtcon_ray.spec.run_spec import parse_spec

        return parse_spec(self.raw, where=self.where)

    @property
    def scheduler(self) -> str:
        """The name of the scheduler, even if only a plugin knows it."""
        if self.search.scheduler is not None:
            return self.search.scheduler.name
        of_plugin = self.raw.get("search", {}).get("scheduler")
        return str(of_plugin["name"]) if of_plugin else "none"

    @cached_property
    def labels(self) -> Labels:
        """The label columns and their kinds."""
        tasks, held_out, kinds = self.data.tasks, self.data.held_out, self.kinds or {}
        if not {*tasks, *held_out} <= kinds.keys():
            return self.whole.labels
        return Labels(tasks, held_out, kinds, self.search.weights)

    @property
    def may_end_early(self) -> bool:
        """True if a trial may finish at a plateau."""
        return self.train.patience is not None or "train.patience" in self.search.space


def recorded_spec(
    raw: Mapping[str, Any], where: str = "spec", kinds: Mapping[str, Kind] | None = None
) -> RecordedSpec:
    """Returns a recorded spec from plain data. Raises SpecError, which begins with `where`.

    A scheduler known only to a plugin is left out of the section `search`. A spec without its
    defaults is completed, which imports torch.
    """
    if not {"seed", "data", "model", "method"} <= raw.keys():
        from mtcon_ray.spec.run_spec import dump_spec, parse_spec

        raw = dump_spec(parse_spec(raw, where=where))
    fields = {**raw, "raw": raw, "where": where, "kinds": kinds}
    search = raw.get("search")
    scheduler = search.get("scheduler") if isinstance(search, dict) else None
    if isinstance(scheduler, dict) and scheduler.get("name", "none") not in set(SCHEDULERS):
        fields["search"] = {**raw["search"], "scheduler": None}
    try:
        return RecordedSpec.model_validate(fields)
    except ValidationError as error:
        raise SpecError(f"{where}: {explain(error, RecordedSpec)}") from None


def write_beginnings(folder: Path, spec: "RunSpec", plan: Plan) -> None:
    """Writes spec and plan to the folder of a sweep or training, each file atomically."""
    from mtcon_ray.spec.run_spec import dump_spec

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
    from mtcon_ray.spec.run_spec import apply_override, parse_spec

    raw = read_record(path)
    for override in overrides:
        apply_override(raw, override)
    return parse_spec(raw, where=str(path))


def check_evaluation(folder: Path) -> None:
    """Raises SweepError if the sweep or training was evaluated by another version's protocol.

    The scores of two protocols cannot be compared. A damaged plan also raises SweepError.
    """
    plan = read_plan(folder / PLAN_FILE)
    if plan is not None and plan.evaluation != EVALUATION:
        raise SweepError(
            f"{folder.name!r} must have been begun with the probes of this version to be resumed, "
            f"got evaluation {plan.evaluation} instead of {EVALUATION}: accuracies of both cannot "
            "be compared; start a new one with another --name, or resume it with the version that "
            "began it"
        )
