"""The states of a trial."""

import pytest

from mtcon_ray.base.status import Status


def test_every_state_has_words_of_its_own_and_a_status_in_mlflow() -> None:
    assert len({status.words for status in Status}) == len(Status)
    assert {status.mlflow for status in Status} == {"RUNNING", "FINISHED", "KILLED", "FAILED"}
    assert max(Status, key=lambda status: status.rank) is Status.FAILED


@pytest.mark.parametrize("status", Status)
def test_ended_runs_of_mlflow_are_of_states_that_have_ended(status: Status) -> None:
    """An interrupted trial's run has ended, and is opened again when it is resumed."""
    has_ended = status.is_final or status == Status.INTERRUPTED
    assert (status.mlflow == "RUNNING") != has_ended
