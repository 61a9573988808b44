"""Who leads, and how long it will take."""

import pytest

from mtcon_ray.cli.board import Board

VALUE = "val/accuracy"


def test_leader_has_its_full_budget() -> None:
    board = Board("s", num_trials=2, epochs=4)
    board.suggest("a", {}, now=0)
    board.suggest("b", {}, now=0)
    board.report("a", 1, 4, {VALUE: 0.9}, now=1)
    board.report("b", 4, 4, {VALUE: 0.5}, now=1)
    assert board.best is board.rows["a"]
    board.end("b", "FINISHED", 0.5, None, now=1)
    assert board.best is board.rows["b"]


def test_time_left_at_the_pace_so_far() -> None:
    """2 s an epoch, two at a time: 2 + 2 epochs left in them and 4 in the third trial."""
    board = Board("s", num_trials=3, epochs=4)
    assert board.seconds_left() is None
    for trial in "ab":
        board.suggest(trial, {}, now=0)
        board.report(trial, 1, 4, {}, now=2)
        board.report(trial, 2, 4, {}, now=4)
    assert board.seconds_left() == pytest.approx((2 + 2 + 4) * 2 / 2)


def test_resumed_epochs_do_not_count_as_pace() -> None:
    board = Board("s", num_trials=1, epochs=100)
    board.suggest("a", {}, now=0)
    board.report("a", 90, 100, {}, now=1)
    board.report("a", 91, 100, {}, now=4)
    assert board.seconds_left() == pytest.approx(9 * 3)


def test_early_stopping_shortens_what_is_left() -> None:
    board = Board("s", num_trials=2, epochs=8)
    board.suggest("a", {}, now=0)
    board.report("a", 2, 8, {}, now=2)
    board.end("a", "PRUNED", 0.1, None, now=2)
    assert board.seconds_left() == pytest.approx(2)


def test_searched_epochs_are_a_trials_own() -> None:
    board = Board("s", num_trials=2, epochs=8)
    board.suggest("a", {"train.epochs": 2}, now=0)
    board.suggest("b", {}, now=0)
    assert [row.epochs for row in board.running] == [2, 8]


def test_interrupted_trials_are_not_done() -> None:
    board = Board("s", num_trials=1, epochs=8)
    board.suggest("a", {}, now=0)
    board.report("a", 1, 8, {}, now=1)
    board.end("a", "INTERRUPTED", None, None, now=1)
    assert board.num_done == 0
    assert board.seconds_left() is None, "nothing goes on that could end"


def test_ended_trials_are_ranked_by_budget_then_value() -> None:
    board = Board("s", num_trials=4, epochs=8)
    for name, status, value in (
        ("a", "PRUNED", 0.9),
        ("b", "FINISHED", 0.5),
        ("c", "FAILED", 0.95),
        ("d", "FINISHED", 0.6),
    ):
        board.end(name, status, value, None, now=1)
    assert [row.name for row in board.ended] == ["d", "b", "a", "c"]
