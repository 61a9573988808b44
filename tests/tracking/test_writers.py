"""SQLite, the default on one machine, takes eight sweeps at once."""

from pathlib import Path

import pytest

from tests.tracking.writers import all_at_once, lost_or_doubled

pytestmark = [
    pytest.mark.mlflow,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]

WRITERS = 8


def test_eight_writers_never_find_sqlite_locked(root: Path) -> None:
    """Each waits for its turn: no error on the way, and nothing lost or doubled."""
    uri = f"sqlite:///{root}/mlflow.db"
    folders = [root / "sweeps" / f"sweep-{number}" for number in range(WRITERS)]
    assert all_at_once(folders, uri) == [(0, None)] * WRITERS
    assert lost_or_doubled(folders, uri) == []
