"""Finished trials of earlier sweeps, as the start of a new sweep's sampler.

They are not trials of the sweep: they are not counted, cannot win and are in no report.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from mtcon_ray.base import paths
from mtcon_ray.base.metrics import Labels
from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.plan.capacity import ClusterView
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import Rates, make_plan
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Artifact, Earlier
from mtcon_ray.records.recorded import check_evaluation
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.records.stored import find_sweep
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.spec.space import Point, grid_points
from mtcon_ray.sweep.preparation import check_data
from mtcon_ray.sweep.suggester import preview

FIELD = "search.start_from"
MAX_CHECKED = 5_000  # combinations, some seconds' work with 1,000 tasks


def earlier_trials(spec: RunSpec, root: Path, folder: Path | None = None) -> list[Earlier]:
    """Returns the finished trials with a value from the sweeps in `search.start_from`.

    They have the searched fields shared by both sweeps, if their values lie inside the new ranges.
    Trials without such a field are left out. With sampler gp, trials must have all fields, because
    a Gaussian process uses only the fields common to all trials.

    A sweep that has begun in `folder` has them in its event log, even if the earlier sweeps are
    gone. Raises SpecError if a sweep does not exist, has another objective, or gives no trial, and
    SweepError if it has other probes.
    """
    if not spec.search.start_from:
        return []
    events = read_events(paths.event_file(folder)) if folder else []
    # The files follow them in the log. Without a file, a kill may have cut them off.
    if any(isinstance(event, Artifact) for event in events):
        return [event for event in events if isinstance(event, Earlier)]
    names = dict.fromkeys(spec.search.start_from)
    return [trial for name in names for trial in _trials_of(_comparable(name, spec, root), spec)]


def first_configurations(spec: RunSpec, earlier: Sequence[Earlier] = ()) -> tuple[Point, ...]:
    """Returns the configurations of `preview` after checking them against the spec.

    Reading the spec has checked only single values. For a grid, up to MAX_CHECKED combinations are
    checked. Raises SpecError for a configuration refused by the spec, and as `preview` does.
    """
    search = spec.search
    first = preview(search, spec.seed, earlier)
    count = min(MAX_CHECKED, search.num_configurations)
    for point in islice(grid_points(search.space), count) if search.sampler == "grid" else first:
        try:
            spec.trial(point)
        except SpecError as error:
            raise SpecError(
                f"search.space must hold configurations that the spec accepts, got {point}: "
                f"{error}; list the values that fit together, or give a range a `step`"
            ) from None
    return first


def plan_sweep(
    spec: RunSpec, root: Path, cluster: ClusterView, measure: Callable[[], Rates] | None = None
) -> Plan:
    """Returns the whole plan of a new sweep, with times if `measure` is given. Starts nothing.

    Raises an MtconError for anything that would end the sweep at its start.
    """
    first = first_configurations(spec, earlier_trials(spec, root))
    data = check_data(spec, root)
    rates = measure() if measure else None
    return make_plan(
        spec, root, cluster, data.table, downloads=data.downloads, first=first, rates=rates
    )


def _comparable(name: str, spec: RunSpec, root: Path) -> SweepResults:
    """Returns an earlier sweep after checking its values for comparability with the new sweep."""
    try:
        folder = find_sweep(root, name)
    except SweepError as error:
        raise SpecError(f"{FIELD} must name sweeps of the root: {error}") from None
    check_evaluation(folder)
    earlier = load_sweep(folder)
    then, now = earlier.labels, spec.labels
    if _objective(then) != _objective(now):
        raise SpecError(
            f"{FIELD} must name sweeps with the same objective, {_text(now)}, got {name!r} with "
            f"{_text(then)}; leave it out"
        )
    return earlier


def _objective(labels: Labels) -> dict[tuple[str, str], tuple[str, float]]:
    """Returns kind and share of each score of the objective."""
    shares = labels.shares.items()
    return {place: (labels.kinds[place[1]], round(share, 9)) for place, share in shares}


def _text(labels: Labels) -> str:
    return f"{labels.objective_title} over {list(dict.fromkeys(task for _, task in labels.shares))}"


def _trials_of(earlier: SweepResults, spec: RunSpec) -> list[Earlier]:
    """Returns an earlier sweep's trials. Raises SpecError if no trial can be used."""
    space, trials = spec.search.space, list[Earlier]()
    needed = len(space) if spec.search.sampler == "gp" else 1
    for trial in (trial for trial in earlier.trials if trial.full_budget):
        shared = {p: v for p, v in trial.params.items() if p in space and space[p].contains(v)}
        if len(shared) >= needed:
            params = {path: space[path].category(value) for path, value in shared.items()}
            value = float(trial.value or 0.0)  # a trial with its full budget has a value
            source = f"{earlier.name}/{trial.name}"
            trials.append(Earlier(source=source, params=params, value=value))
    if not trials:
        fields = "all searched fields" if needed > 1 else "a searched field"
        raise SpecError(
            f"{FIELD} must name sweeps with a finished trial that has {fields} inside "
            f"search.space, got {earlier.name!r} without such a trial; leave it out"
        )
    return trials
