"""Four sweeps that write to SQLite, the default on one machine, at the same time."""

from pathlib import Path

from tests.tracking.conftest import MLFLOW
from tests.tracking.writers import all_at_once, lost_or_doubled

pytestmark = MLFLOW

WRITERS = 4


def test_four_writers_never_find_sqlite_locked(root: Path) -> None:
    """Each writer waits for the lock: there is no error, and no metric is lost or duplicated."""
    uri = f"sqlite:///{root}/mlflow.db"
    folders = [root / "sweeps" / f"sweep-{number}" for number in range(WRITERS)]
    assert all_at_once(folders, uri) == [(0, None)] * WRITERS
    assert lost_or_doubled(folders, uri) == []
