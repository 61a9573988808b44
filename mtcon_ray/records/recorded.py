"""The spec and the plan in the folder of a sweep."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mtcon_ray.base.paths import PLAN_FILE, SPEC_FILE
from mtcon_ray.base.root_files import check_own
from mtcon_ray.base.safe_yaml import dump_yaml, read_yaml
from mtcon_ray.data.disk import whole_file
from mtcon_ray.errors import SweepError
from mtcon_ray.plan.plan import Plan, read_plan
from mtcon_ray.spec import run_spec
from mtcon_ray.spec.evaluate import EVALUATION


def write_beginnings(folder: Path, spec: run_spec.RunSpec, plan: Plan) -> None:
    """Writes spec and plan to the folder of a sweep, each file atomically."""
    text = dump_yaml(run_spec.dump_spec(spec))
    for name, content in ((SPEC_FILE, text), (PLAN_FILE, plan.model_dump_json(indent=1) + "\n")):
        with whole_file(folder / name) as file:
            file.write(content.encode())


def read_recorded(path: Path) -> run_spec.RunSpec:
    """Returns the spec in the file of a sweep, to show its results.

    Raises SpecError if it is invalid, SweepError if the file lies outside of its sweep.
    """
    return run_spec.parse_recorded(_read(path), str(path))


def load_recorded(path: Path, overrides: Iterable[str] = ()) -> run_spec.RunSpec:
    """Returns the spec in the file of a sweep, with `a.b=value` overrides applied.

    Imports its plugins. Raises as `read_recorded`, also without consent to plugins.
    """
    return run_spec.parse_spec(_read(path), overrides, where=str(path))


def check_evaluation(folder: Path) -> None:
    """Raises SweepError if the sweep was evaluated by another version's protocol.

    The scores of two protocols cannot be compared. A damaged plan also raises SweepError.
    """
    plan = read_plan(folder / PLAN_FILE)
    # From 2 to 3 the scores of label sets alone have changed.
    has_sets = "set" in read_recorded(folder / SPEC_FILE).labels.kinds.values()
    if plan is not None and plan.evaluation not in (EVALUATION, EVALUATION if has_sets else 2):
        raise SweepError(
            f"{folder.name!r} was begun with other probes (evaluation "
            f"{plan.evaluation}, here {EVALUATION}), and accuracies of both cannot be compared; "
            "start again with another --name, or use the version that began it"
        )


def _read(path: Path) -> dict[str, Any]:
    check_own(path)
    return read_yaml(path)
