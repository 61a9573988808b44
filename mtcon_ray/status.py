"""The states of a trial: their words, colours, order in tables and MLflow statuses."""

from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """State of a trial; members are equal to the strings in event logs and JSON output."""

    RUNNING = "RUNNING"
    WAITING = "WAITING"
    FINISHED = "FINISHED"
    PRUNED = "PRUNED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def words(self) -> str:
        """The state as users read it."""
        return _FACTS[self].words

    @property
    def colour(self) -> str:
        """A style of `rich`, "" for none."""
        return _FACTS[self].colour

    @property
    def rank(self) -> int:
        """Order in tables, the best first."""
        return _FACTS[self].rank

    @property
    def mlflow(self) -> str:
        """Status of the trial's MLflow run."""
        return _FACTS[self].mlflow

    @property
    def is_final(self) -> bool:
        """True if the trial needs no more training."""
        return self in (Status.FINISHED, Status.PRUNED, Status.FAILED)


class _Facts(NamedTuple):
    words: str
    colour: str
    rank: int
    mlflow: str


_FACTS = {
    Status.RUNNING: _Facts("running", "cyan", 2, "RUNNING"),
    Status.WAITING: _Facts("waiting at a rung", "", 2, "RUNNING"),
    Status.FINISHED: _Facts("finished", "", 0, "FINISHED"),
    Status.PRUNED: _Facts("stopped early", "dim", 1, "KILLED"),
    Status.FAILED: _Facts("failed", "red", 3, "FAILED"),
    Status.INTERRUPTED: _Facts("interrupted", "yellow", 2, "KILLED"),
}
