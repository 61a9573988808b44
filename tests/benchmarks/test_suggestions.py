"""The benchmark of suggestions runs and compares; its results are not checked."""

from itertools import accumulate

import pytest

from benchmarks import suggestions


def test_suggestions_are_timed_beside_optunas_own() -> None:
    table = suggestions.measure(marks=(12, 15), seeds=range(2))
    for mark in ("12", "15"):
        assert table.count(f"\n| {mark} |") == 2
    assert table.count("| +0.0000 (0.0000) |") == 4


def test_suggestions_that_differ_below_the_bound_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mtcon_ray.sweep.tpe.MAX_ENDED", 12)
    monkeypatch.setattr("mtcon_ray.sweep.tpe.NUM_BEST", 3)
    with pytest.raises(AssertionError):
        suggestions.measure(marks=(40,), seeds=range(1))


def test_a_made_up_search_is_logged_trial_by_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the best value so far is the winner's, and no stopping rule ends the search."""
    monkeypatch.setattr(suggestions, "NOISE", 0.0)
    monkeypatch.setattr(suggestions, "EARLY_NOISE", 0.0)
    accuracy = suggestions.Accuracy(0)
    stopped = []
    for stopped_early in (False, True):
        log = suggestions.Search()
        steps = suggestions.search(suggestions.Ours(), 0, 30, stopped_early=stopped_early, log=log)
        assert len(list(steps)) == len(log.seconds) == 30
        assert log.values == [accuracy(p) for p in log.params]
        assert log.winners == list(accumulate(log.values, max))
        stopped.append(sum(log.stopped))
    assert stopped[0] == 0
    assert stopped[1] > 5
