"""Training of all systems of a comparison, one sweep after the other; finished ones are reused."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.cluster.connection import connected, sweep_environment, view_of
from mtcon_ray.comparison.row import Row
from mtcon_ray.comparison.spec import Comparison
from mtcon_ray.comparison.stages import plan_stages
from mtcon_ray.comparison.summary import write_tables
from mtcon_ray.comparison.tuning import Tuning, again_spec, final_spec
from mtcon_ray.errors import MtconError
from mtcon_ray.paths import SPEC_FILE, parent_log, sweep_folder
from mtcon_ray.results import SweepResults, load_sweep, trial_status
from mtcon_ray.signals import Interrupted
from mtcon_ray.spec import RunSpec
from mtcon_ray.status import Status
from mtcon_ray.sweep.driver import run_sweep
from mtcon_ray.tracking.event_log import EventLog

# Trains a sweep, or loads it if it is over; the text names it to the user.
Train = Callable[[RunSpec, str], SweepResults]


def run_comparison(
    comparison: Comparison,
    *,
    root: Path,
    watch: Callable[[str], AbstractContextManager[Callbacks]],
    on_phase: Callable[[str], None] = lambda what: None,
) -> tuple[list[Row], Path]:
    """Trains all systems; returns their rows in order, and the folder of the tables.

    A second call resumes: it loads finished sweeps and continues unfinished ones. `watch` returns
    the callback (a context manager) of a sweep, by a text that names it. `on_phase` is called with
    a text before the connection to a cluster. If a system fails, its row has the reason and the
    other systems are trained all the same. The tables are rewritten before each sweep
    and at the end.

    Raises SpecError, DataError or ResourceError for problems that can be found before the first
    training, and Interrupted as `run_sweep` does.
    """
    folder = root / "comparisons" / comparison.name

    @cache
    def hold_session(cpus: int) -> None:
        # Held by all sweeps from the first that is left to train, because starting Ray takes longer
        # than a short training.
        session.enter_context(connected(folder / "ray.log", sweep_environment(cpus)))

    def train(spec: RunSpec, what: str) -> SweepResults:
        of_sweep = sweep_folder(root, spec.name)
        started = (of_sweep / SPEC_FILE).exists()
        results = _finished(of_sweep, spec) if started else None
        if results is None:
            if rows:
                write_tables(folder, rows, comparison.claims)
            with watch(what) as callbacks:
                callbacks.on_phase("connecting to Ray")
                hold_session(spec.resources.cpus)
                results = run_sweep(
                    spec, root=root, name=spec.name, resume=started, callbacks=callbacks
                )
        return results

    for _ in plan_stages(comparison, root, view_of(None, on_phase)):
        pass  # planning is the check
    rows: list[Row] = []
    with ExitStack() as session:
        for title, spec in comparison.specs.items():
            rows.append(_train_system(title, spec, comparison.tuning.get(title), train))
    write_tables(folder, rows, comparison.claims)
    return rows, folder


def _train_system(title: str, final: RunSpec, tuning: Tuning | None, train: Train) -> Row:
    """Tunes a system, if it is tuned, and trains its seeds; a failure is told in its row."""
    tuned: list[SweepResults] = []
    try:
        if tuning is not None:
            tuned.append(train(tuning.first, f"{title}: tuning"))
            if tuning.again is not None:
                again = again_spec(tuning.again, tuned[0])
                tuned.append(train(again, f"{title}: the best again"))
            final = final_spec(final, tuned[-1])
        return Row(title, train(final, title), tuned=tuple(tuned))
    except Interrupted:  # a MtconError too, but it must end the comparison
        raise
    except MtconError as error:
        return Row(title, None, str(error), tuple(tuned))


def _finished(folder: Path, spec: RunSpec) -> SweepResults | None:
    """Returns the results of a sweep of this spec, None if a training is left to do."""
    events = EventLog.read(parent_log(folder))
    is_over = bool(events) and trial_status(events)[0] is Status.FINISHED
    found = load_sweep(folder)
    return found if is_over and found.spec == spec else None
