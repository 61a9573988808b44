"""Several sweeps that send to one store at once, each from a process of its own."""

import multiprocessing
import time
from pathlib import Path

from mtcon_ray.tracking.sender import Sender
from tests.tracking.conftest import Sweep
from tests.waiting import PATIENCE_SECONDS

TRIALS, EPOCHS, METRICS = 2, 8, 20


def write_and_send(folder: Path, uri: str) -> tuple[int, str | None]:
    """A sweep from its first line to its last while its sender works: events left, last error."""
    sweep = Sweep(folder, uri)
    sender = Sender(folder, uri, sweep.experiment)
    sender.start()
    parent = sweep.begin()
    trials = [sweep.begin(f"trial-{number:04d}") for number in range(TRIALS)]
    errors = set()
    for epoch in range(1, EPOCHS + 1):
        for trial in trials:
            trial.append_report(epoch, {f"m{i:02d}": epoch + i / 100 for i in range(METRICS)})
        time.sleep(0.3)  # several batches, not one at the end
        errors.add(sender.last_error)
    for trial in trials:
        trial.append("end", status="FINISHED", tags={})
    parent.append("end", status="FINISHED", tags={})
    left = sender.close(PATIENCE_SECONDS)
    return left, next(iter(errors - {None}), sender.last_error)


def all_at_once(folders: list[Path], uri: str) -> list[tuple[int, str | None]]:
    """What each writer ended with; MLflow is imported once, for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mtcon_ray.tracking.runs", "tests.tracking.writers"])
    with context.Pool(len(folders)) as pool:
        return pool.starmap(write_and_send, [(folder, uri) for folder in folders], chunksize=1)


def lost_or_doubled(folders: list[Path], uri: str) -> list[str]:
    """Metrics of those sweeps that are not in the store exactly once."""
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
