"""Training of all systems of a comparison, a sweep for each. Finished sweeps are reused."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path

from mtcon_ray.base import paths
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.connection import connected, sweep_environment, view_of
from mtcon_ray.comparison.comparison_spec import Comparison
from mtcon_ray.comparison.row import Row
from mtcon_ray.comparison.stages import plan_stages
from mtcon_ray.comparison.summary import write_tables
from mtcon_ray.comparison.tuning import again_spec
from mtcon_ray.data import prepared
from mtcon_ray.errors import MtconError
from mtcon_ray.records.event_log import first_event
from mtcon_ray.records.folder import FREE_ON_RESUME, changes
from mtcon_ray.records.recorded import check_evaluation
from mtcon_ray.records.results import SweepResults, first_tags, load_sweep
from mtcon_ray.records.stored import fetch_sweep, fetch_trials, has_sweep
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.tracking.provenance import FINGERPRINT

# Fields in which a finished sweep may differ: resources and the limits of search.
FREE = ("resources", *(field for field in FREE_ON_RESUME if field.startswith("search.")))

# Trains a sweep, or loads it if it is over. The text names it to the user.
Train = Callable[[RunSpec, str], SweepResults]


def run_comparison(
    comparison: Comparison,
    *,
    root: Path,
    watch: Callable[[str], AbstractContextManager[Callbacks]],
    on_phase: Callable[[str], None] = lambda what: None,
) -> tuple[list[Row], Path]:
    """Trains all systems, one after another. Returns their rows in order and the tables' folder.

    A second call resumes: it loads finished sweeps, which need no resources any more, and continues
    unfinished sweeps. `watch` returns the callback (a context manager) of a sweep, given a text
    that names it. `on_phase` is called with a text before the connection to a cluster. If a
    system fails, its row has the reason, and the other systems are still trained. The tables are
    rewritten before each sweep and at the end.

    Raises SpecError, DataError or ResourceError for problems found before the first training, and
    Interrupted as `run_sweep` does.
    """
    cluster = view_of(None, on_phase)
    list(plan_stages(_left(comparison, root), root, cluster))  # planning is the check
    rows: list[Row] = []
    folder = paths.comparison_folder(root, comparison.name)

    @cache
    def hold_session(cpus: int) -> None:
        # Held by all sweeps from the first untrained sweep on, because starting Ray takes longer
        # than a short training.
        session.enter_context(connected(folder / "ray.log", sweep_environment(cpus)))

    def train(spec: RunSpec, what: str) -> SweepResults:
        place = paths.sweep_folder(root, spec.name)
        if (started := has_sweep(place)) and (results := _finished(place, spec)) is not None:
            return results
        if rows:
            write_tables(folder, rows, comparison.claims)
        try:
            with watch(what) as callbacks:
                callbacks.on_phase("connecting to Ray")
                hold_session(spec.resources.cpus)
                name = spec.name
                results = run_sweep(spec, root=root, name=name, resume=started, callbacks=callbacks)
            if not results.is_complete:
                raise MtconError(f"{what}: trials are left (search.max_hours); repeat the command")
            return results
        except Interrupted as error:  # its message tells how to continue the sweep alone
            reason = str(error).partition(";")[0]
            raise Interrupted(
                f"{reason}; checkpoints are kept; to continue: repeat the command"
            ) from None

    with ExitStack() as session:
        known: dict[str, str] = {}
        for row in _trained(comparison, train):
            rows.append(_on_known_data(row, known))
    write_tables(folder, rows, comparison.claims)
    return rows, folder


def _left(comparison: Comparison, root: Path) -> Comparison:
    """Returns the systems with unfinished sweeps. Only they need data and resources."""

    def stored(spec: RunSpec, what: str) -> SweepResults:
        if (results := _finished(paths.sweep_folder(root, spec.name), spec)) is None:
            raise MtconError(f"{what} has a training left to do")
        return results

    # Systems with a damaged record are among them. Their rows tell the reason later.
    left = [row.title for row in _trained(comparison, stored) if row.results is None]
    return comparison._replace(specs={title: comparison.specs[title] for title in left})


def _trained(comparison: Comparison, train: Train) -> Iterator[Row]:
    """Tunes each system, if required, and trains its seeds. Its row has the reason of a failure."""
    for title, final in comparison.specs.items():
        tuned: list[SweepResults] = []
        try:
            if tuning := comparison.tuning.get(title):
                tuned.append(train(tuning.first, f"{title}: tuning"))
                if tuning.again is not None:
                    again = again_spec(tuning.again, tuned[0])
                    tuned.append(train(again, f"{title}: the best again"))
                final = with_values(final, tuned[-1].required_winner().params)
            yield Row(title, train(final, title), tuned=tuple(tuned))
        except Interrupted:  # a MtconError too, but it must end the comparison
            raise
        except MtconError as error:
            yield Row(title, None, str(error), tuple(tuned))


def _on_known_data(row: Row, known: dict[str, str]) -> Row:
    """Returns the row, without results if its data have changed since an earlier row's trainings.

    `known` has the fingerprint of each data set in the earlier rows, and gets those of this row.
    """
    for results in filter(None, (*row.tuned, row.results)):
        key = prepared.data_key(results.spec.data, results.spec.views.size)
        fingerprint = first_tags(results.folder).get(FINGERPRINT)
        if fingerprint and known.setdefault(key, fingerprint) != fingerprint:
            changed = f"the data of {results.name} are not those of the rows above"
            way_out = "restore the data and remove its sweep, or give the comparison another name"
            return Row(row.title, None, f"{changed}; {way_out}", row.tuned)
    return row


def _finished(folder: Path, spec: RunSpec) -> SweepResults | None:
    """Returns the results of a complete sweep of this spec with a winner, else None.

    It may have been trained with other resources.
    """
    if not fetch_sweep(folder) or first_event(paths.event_file(folder)) is None:
        return None
    check_evaluation(folder)
    fetch_trials(folder, [paths.PREDICTIONS_FILE])
    found = load_sweep(folder)
    is_good = found.is_complete and found.status[0] is Status.FINISHED
    free = FREE if spec.evaluate.test else (*FREE, "evaluate.test")
    return found if is_good and not changes(found.spec, spec, free) else None
