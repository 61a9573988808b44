"""The states of a trial: their words, order in tables and MLflow statuses."""

from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """State of a trial. Members are equal to the strings in the event log and in JSON output.

    `words` is the state as users read it, `rank` the order in tables (the best first), `mlflow` the
    status of the trial's MLflow run.
    """

    RUNNING = "RUNNING", "running", 2, "RUNNING"
    WAITING = "WAITING", "waiting at a rung", 2, "RUNNING"
    FINISHED = "FINISHED", "finished", 0, "FINISHED"
    PRUNED = "PRUNED", "stopped early", 1, "KILLED"
    FAILED = "FAILED", "failed", 3, "FAILED"
    INTERRUPTED = "INTERRUPTED", "interrupted", 2, "KILLED"

    words: str
    rank: int
    mlflow: str

    # Defaults, because type checkers take the look-up Status("PRUNED") for a call of this method.
    def __new__(cls, name: str, words: str = "", rank: int = 0, mlflow: str = "") -> Self:
        """Makes the member equal to `name`, with its facts as attributes."""
        status = str.__new__(cls, name)
        status._value_ = name
        status.words, status.rank, status.mlflow = words, rank, mlflow
        return status

    @property
    def is_final(self) -> bool:
        """True if the trial needs no more training."""
        return self in (Status.FINISHED, Status.PRUNED, Status.FAILED)
