"""The state of a sweep's progress table: leader, order and time left."""

import pytest

from mtcon_ray.cli.board import Board
from mtcon_ray.cli.events import Close, End, Known, Report, Start, Suggest
from mtcon_ray.evaluation.spec import Select


def board_of(num_trials: int, epochs: int, *trials: str) -> Board:
    """Returns a board on which these trials have started."""
    board = Board(Start("s", num_trials, epochs, None, "/s"))
    for trial in trials:
        board.tell(Suggest(trial, "lr=0.1"), now=0)
    return board


def test_leader_has_its_full_budget() -> None:
    board = board_of(2, 4, "a", "b")
    board.tell(Report("a", 1, 4, 0.9), now=1)
    board.tell(Report("b", 4, 4, 0.5), now=1)
    assert board.best is board.rows["a"]
    board.tell(End("b", "FINISHED", None, 0.5), now=1)
    assert board.best is board.rows["b"]


@pytest.mark.parametrize(("select", "value"), [("last", 0.4), ("best", 0.7)])
def test_a_trials_value_is_of_the_selected_epoch(select: Select, value: float) -> None:
    board = Board(Start("s", 2, 4, None, "/s", select=select))
    for epoch, probed in enumerate((0.5, 0.7, None, 0.4), 1):
        board.tell(Report("a", epoch, 4, probed), now=epoch)
    assert board.rows["a"].value == value


def test_time_left_at_the_pace_so_far() -> None:
    """At 2 s per epoch and two trials at a time, 2 + 2 + 4 epochs are left."""
    board = board_of(3, 4, "a", "b")
    assert board.seconds_left() is None
    for trial in "ab":
        board.tell(Report(trial, 1, 4), now=2)
        board.tell(Report(trial, 2, 4), now=4)
    assert board.seconds_left() == pytest.approx((2 + 2 + 4) * 2 / 2)


def test_resumed_epochs_do_not_count_as_pace() -> None:
    board = board_of(1, 100, "a")
    board.tell(Report("a", 90, 100), now=1)
    board.tell(Report("a", 91, 100), now=4)
    assert board.seconds_left() == pytest.approx(9 * 3)


def test_early_stopping_shortens_what_is_left() -> None:
    board = board_of(2, 8, "a")
    board.tell(Report("a", 2, 8), now=2)
    board.tell(End("a", "PRUNED", (2, 8), 0.1), now=2)
    assert board.seconds_left() == pytest.approx(2)


def test_an_end_tells_of_epochs_that_had_no_report() -> None:
    """In a log without epoch lines, 8 epochs took 16 s."""
    board = board_of(2, 8, "a")
    board.tell(End("a", "FINISHED", None, 0.1), now=16)
    assert (board.rows["a"].epoch, board.rows["a"].epochs) == (8, 8)
    assert board.seconds_left() == pytest.approx(16)


def test_ends_of_an_earlier_run_are_no_pace() -> None:
    board = board_of(2, 8)
    board.tell(Known("a", "lr=0.1", "FINISHED", 8, 8, 0.1), now=1)
    assert board.num_done == 1
    assert board.best is board.rows["a"]
    assert board.seconds_left() is None


def test_a_trial_that_goes_on_keeps_what_it_had() -> None:
    """Epochs of an earlier run do not count for the pace: one epoch took 5 s, 1 + 8 are left."""
    board = board_of(2, 8)
    board.tell(Known("a", "lr=0.1", "INTERRUPTED", 6, 8, 0.3), now=0)
    board.tell(Known("b", "lr=0.2", "INTERRUPTED", 0, 8), now=0)
    assert [row.name for row in board.ended] == ["a", "b"]
    assert board.num_done == 0
    board.tell(Suggest("a", "lr=0.1"), now=2)
    (row,) = board.running
    assert (row.epoch, row.epochs, row.value) == (6, 8, 0.3)
    board.tell(Report("a", 7, 8), now=7)
    assert board.seconds_left() == pytest.approx((1 + 8) * 5)


def test_searched_epochs_are_a_trials_own() -> None:
    board = board_of(2, 8, "b")
    board.tell(Suggest("a", "epochs=2", 2), now=0)
    assert [row.epochs for row in board.running] == [2, 8]


def test_interrupted_trials_are_not_done() -> None:
    board = board_of(1, 8, "a")
    board.tell(Report("a", 1, 8), now=1)
    board.tell(End("a", "INTERRUPTED", (1, 8)), now=1)
    assert board.num_done == 0
    assert board.seconds_left() is None, "nothing goes on that could end"


def test_ended_trials_are_ranked_by_budget_then_value() -> None:
    """Trials with equal displayed values are ordered by name, after the leader."""
    board = board_of(6, 8)
    for name, status, value in (
        ("a", "PRUNED", 0.9),
        ("b", "FINISHED", 0.5),
        ("c", "FAILED", 0.95),
        ("g", "FINISHED", 0.5001),
        ("f", "FINISHED", 0.6001),
        ("d", "FINISHED", 0.6),
        ("e", "FINISHED", 0.6002),
    ):
        board.tell(End(name, status, None, value), now=1)
    assert [row.name for row in board.ended] == ["e", "d", "f", "b", "g", "a", "c"]
    board.tell(Close("s", 6, 6, "f"), now=1)
    assert [row.name for row in board.ended] == ["f", "d", "e", "b", "g", "a", "c"]
