"""Training of all systems of a comparison, one sweep after the other; finished ones are reused."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.cluster.connection import view_of
from mtcon_ray.comparison.row import Row
from mtcon_ray.comparison.spec import Comparison
from mtcon_ray.comparison.summary import write_tables
from mtcon_ray.errors import MtconError
from mtcon_ray.paths import SPEC_FILE, sweep_folder
from mtcon_ray.planning import make_plan
from mtcon_ray.preparation import check_data
from mtcon_ray.results import SweepResults, load_sweep
from mtcon_ray.signals import Interrupted
from mtcon_ray.spec import RunSpec
from mtcon_ray.status import Status
from mtcon_ray.sweep.driver import run_sweep


def run_comparison(
    comparison: Comparison,
    *,
    root: Path,
    watch: Callable[[str], AbstractContextManager[Callbacks]],
    on_phase: Callable[[str], None] = lambda what: None,
) -> tuple[list[Row], Path]:
    """Trains all systems; returns their rows in order, and the folder of the tables.

    A second call resumes: it loads finished systems and continues unfinished ones. `watch` returns
    the callback (a context manager) of a system's sweep. `on_phase` is called with a text before
    the connection to a cluster. If a system fails, its row has the reason and the other systems
    are trained all the same. The tables are rewritten before each training and at the end.

    Raises SpecError, DataError or ResourceError for problems that can be found before the first
    training, and Interrupted as `run_sweep` does.
    """
    view = view_of(None, on_phase)
    for spec in comparison.specs.values():
        make_plan(spec, root, view, check_data(spec, root).table)
    rows: list[Row] = []
    folder = root / "comparisons" / comparison.name
    for title, spec in comparison.specs.items():
        try:
            sweep = sweep_folder(root, spec.name)
            started = (sweep / SPEC_FILE).exists()
            results = _finished(sweep, spec) if started else None
            if results is None:
                if rows:
                    write_tables(folder, rows, comparison.claims)
                with watch(title) as callbacks:
                    results = run_sweep(
                        spec, root=root, name=spec.name, resume=started, callbacks=callbacks
                    )
            rows.append(Row(title, results))
        except Interrupted:  # a MtconError too, but it must end the comparison
            raise
        except MtconError as error:
            rows.append(Row(title, None, str(error)))
    write_tables(folder, rows, comparison.claims)
    return rows, folder


def _finished(folder: Path, spec: RunSpec) -> SweepResults | None:
    """Returns the results of a sweep of this spec, None if a training is left to do."""
    found = load_sweep(folder)
    done = [trial for trial in found.trials if trial.status == Status.FINISHED]
    return found if found.spec == spec and len(done) == spec.search.repeats else None
