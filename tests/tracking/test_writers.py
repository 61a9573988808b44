"""Four sweeps that send to SQLite, the default on one machine, each from its own process."""

import multiprocessing
import time
from pathlib import Path

from mtcon_ray.records.events import Ended
from tests.tracking.conftest import MLFLOW, Sweep

pytestmark = MLFLOW
WRITERS, EPOCHS = 4, 8


def write_and_send(folder: Path, uri: str) -> set[str | None]:
    """Writes a whole sweep while its sender runs; returns the sender's errors."""
    sweep, errors = Sweep(folder, uri), set()
    with sweep.sending() as sender:
        trial = sweep.begin_both()
        for epoch in range(1, EPOCHS + 1):
            trial.report(epoch, **{f"m{i:02d}": epoch + i for i in range(20)})
            time.sleep(0.3)  # so that the sender sends several batches instead of one at the end
            errors.add(sender.last_error)
        trial.append(Ended(status="FINISHED", tags={}))
    return {*errors, sender.last_error}


def test_four_writers_never_find_sqlite_locked(root: Path) -> None:
    """Each writer waits for the lock: there is no error, and no metric is lost or duplicated."""
    uri = f"sqlite:///{root}/mlflow.db"
    folders = [root / "sweeps" / f"sweep-{number}" for number in range(WRITERS)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mtcon_ray.tracking.runs"])
    with context.Pool(WRITERS) as pool:
        results = pool.starmap(write_and_send, [(folder, uri) for folder in folders], chunksize=1)
    assert results == [{None}] * WRITERS
    for folder in folders:
        assert Sweep(folder, uri).steps("trial-0000", "m19") == list(range(1, EPOCHS + 1))
