"""Several sweeps that send to one store at the same time, each from its own process."""

import multiprocessing
import time
from pathlib import Path

from mtcon_ray.records.events import Ended, Reported
from mtcon_ray.tracking.sender import Sender
from tests.tracking.conftest import Sweep
from tests.waiting import PATIENCE_SECONDS

TRIALS, EPOCHS, METRICS = 2, 8, 20


def write_and_send(folder: Path, uri: str) -> tuple[int, str | None]:
    """Writes a whole sweep while its sender runs; returns (events left, last error)."""
    sweep = Sweep(folder, uri)
    sender = Sender(folder, uri, sweep.experiment)
    sender.start()
    parent = sweep.begin()
    trials = [sweep.begin(f"trial-{number:04d}") for number in range(TRIALS)]
    errors = set()
    for epoch in range(1, EPOCHS + 1):
        for trial in trials:
            trial.append(
                Reported(
                    epoch=epoch, metrics={f"m{i:02d}": epoch + i / 100 for i in range(METRICS)}
                )
            )
        time.sleep(0.3)  # so that the sender sends several batches instead of one at the end
        errors.add(sender.last_error)
    for trial in trials:
        trial.append(Ended(status="FINISHED", tags={}))
    parent.append(Ended(status="FINISHED", tags={}))
    left = sender.close(PATIENCE_SECONDS)
    return left, next(iter(errors - {None}), sender.last_error)


def all_at_once(folders: list[Path], uri: str) -> list[tuple[int, str | None]]:
    """Runs all writers and returns their results; a fork server imports MLflow once for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mtcon_ray.tracking.runs", "tests.tracking.writers"])
    with context.Pool(len(folders)) as pool:
        return pool.starmap(write_and_send, [(folder, uri) for folder in folders], chunksize=1)


def lost_or_doubled(folders: list[Path], uri: str) -> list[str]:
    """Returns the metrics of these sweeps that are not in the store exactly once."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    wrong = []
    for folder in folders:
        sweep = Sweep(folder, uri)
        for trial in range(TRIALS):
            run = sweep.run(f"trial-{trial:04d}", sweep=folder.name)
            assert run.info.status == "FINISHED"
            for i in range(METRICS):
                history = client.get_metric_history(run.info.run_id, f"m{i:02d}")
                if sorted(m.step for m in history) != list(range(1, EPOCHS + 1)):
                    wrong.append(f"{folder.name}, trial {trial}, m{i:02d}")
    return wrong
