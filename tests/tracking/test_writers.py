"""Four sweeps that send to SQLite, the default on one machine, each from its own process."""

import multiprocessing
import time
from pathlib import Path

from mtcon_ray.records.events import Ended, Reported
from tests.tracking.conftest import MLFLOW, Sweep
from tests.waiting import PATIENCE_SECONDS

pytestmark = MLFLOW
WRITERS, EPOCHS = 4, 8


def write_and_send(folder: Path, uri: str) -> tuple[int, str | None]:
    """Writes a whole sweep while its sender runs; returns (events left, last error)."""
    sweep = Sweep(folder, uri)
    sender = sweep.sender()
    sender.start()
    trial, errors = sweep.begin_both(), set()
    for epoch in range(1, EPOCHS + 1):
        trial.append(Reported(epoch=epoch, metrics={f"m{i:02d}": epoch + i for i in range(20)}))
        time.sleep(0.3)  # so that the sender sends several batches instead of one at the end
        errors.add(sender.last_error)
    trial.append(Ended(status="FINISHED", tags={}))
    left = sender.close(PATIENCE_SECONDS)
    return left, next(iter(errors - {None}), sender.last_error)


def test_four_writers_never_find_sqlite_locked(root: Path) -> None:
    """Each writer waits for the lock: there is no error, and no metric is lost or duplicated."""
    uri = f"sqlite:///{root}/mlflow.db"
    folders = [root / "sweeps" / f"sweep-{number}" for number in range(WRITERS)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mtcon_ray.tracking.runs"])
    with context.Pool(WRITERS) as pool:
        results = pool.starmap(write_and_send, [(folder, uri) for folder in folders], chunksize=1)
    assert results == [(0, None)] * WRITERS
    for folder in folders:
        steps = Sweep(folder, uri).steps("trial-0000", "m19")
        assert steps == list(range(1, EPOCHS + 1))
