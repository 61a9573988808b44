"""TPE whose model uses a bounded number of trials."""

import math
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from mtcon_ray.search.spec import SearchSpec
from mtcon_ray.sweep.study import Suggester, open_study
from mtcon_ray.sweep.tpe import (
    MAX_ENDED,
    NUM_BEST,
    KnownSpaceTPE,
    Modelled,
    StudyView,
    best_and_latest,
)

SPACE: dict[str, BaseDistribution] = {
    "batch_size": CategoricalDistribution([32, 64, 128]),
    "lr": FloatDistribution(0.001, 1, log=True),
    "temperature": FloatDistribution(0.03, 1, log=True),
}


def accuracy(params: dict[str, Any]) -> float:
    """Returns a made-up accuracy, best at temperature 0.2, learning rate 0.05, batch size 64."""
    temperature, lr = math.log10(params["temperature"] / 0.2), math.log10(params["lr"] / 0.05)
    batches = float(abs(params["batch_size"] / 64 - 1))
    return 0.8 - 0.2 * temperature**2 - 0.1 * lr**2 - 0.01 * batches


def ended(state: TrialState, number: int, value: float | None = 0.0) -> FrozenTrial:
    params = {"temperature": 0.03 + number * 1e-4, "lr": 0.01, "batch_size": 64}
    trial = create_trial(state=state, params=params, distributions=SPACE, value=value)
    trial.number = number
    return trial


def fill(study: optuna.Study, count: int) -> None:
    """Adds ended trials with random values; every fifth is pruned."""
    study.sampler = optuna.samplers.RandomSampler(seed=0)
    for number in range(count):
        trial = study.ask(SPACE)
        state = TrialState.COMPLETE if number % 5 else TrialState.PRUNED
        trial.report(accuracy(trial.params), 1)
        study.tell(trial, accuracy(trial.params) if number % 5 else None, state=state)


def suggest(study: optuna.Study, sampler: TPESampler) -> FrozenTrial:
    study.sampler = sampler
    return study._storage.get_trial(study.ask(SPACE)._trial_id)


def test_few_trials_are_all_kept() -> None:
    trials = [ended(TrialState.COMPLETE, n) for n in range(MAX_ENDED)]
    running = create_trial(state=TrialState.RUNNING)
    assert best_and_latest([*trials, running]) == [*trials, running]


def test_of_many_the_best_and_the_latest_are_kept_in_their_order() -> None:
    good = list(range(0, 3 * NUM_BEST, 3))
    trials = [ended(TrialState.COMPLETE, n, float(n in good)) for n in range(1000)]
    kept = [t.number for t in best_and_latest(trials)]
    assert kept == [*good, *range(1000 - (MAX_ENDED - NUM_BEST), 1000)]


def test_what_runs_is_kept_and_what_failed_is_not_counted() -> None:
    """A pruned trial can be among the latest trials, never among the best."""
    last = MAX_ENDED + 98
    trials = [ended(TrialState.PRUNED, n, value=9.0) for n in range(last + 2)]
    trials[1] = create_trial(state=TrialState.RUNNING)
    trials[1].number = 1
    for n in (2, last):
        trials[n] = create_trial(state=TrialState.FAIL)
        trials[n].number = n
    trials[3] = ended(TrialState.COMPLETE, 3, 0.5)
    kept = [t.number for t in best_and_latest(trials)]
    assert kept == [1, 3, *(n for n in range(100, last + 2) if n != last)]


def not_failed(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    return [t for t in trials if t.state is not TrialState.FAIL]


@pytest.mark.parametrize("seed", range(4))
def test_what_was_modelled_before_need_not_be_read_again(seed: int) -> None:
    """Trials end out of order and in every state; failed trials are not modelled."""
    random, trials = Random(seed), list[FrozenTrial]()
    modelled, running = Modelled(), list[int]()
    states = [TrialState.COMPLETE] * 7 + [TrialState.PRUNED] * 2 + [TrialState.FAIL]
    for number in range(900):
        trials.append(ended(TrialState.RUNNING, number))
        running.append(number)
        while len(running) > random.choice([0, 1, 8]):
            n = running.pop(random.randrange(len(running)))
            state, value = random.choice(states), random.randrange(300) - n / 10
            trials[n] = ended(state, n, None if state is TrialState.FAIL else value)
        if random.random() < 0.8:
            kept, of_all = modelled.of(list(trials)), best_and_latest(trials)
            assert not_failed(kept) == not_failed(of_all)


def test_a_trial_that_has_ended_is_read_once() -> None:
    trials = [ended(TrialState.COMPLETE, n, float(n % 7)) for n in range(900)]
    modelled = Modelled()
    of_all = modelled.of(trials)
    seen = [*(ended(TrialState.RUNNING, n) for n in range(900)), ended(TrialState.PRUNED, 900)]
    assert modelled.of(seen) == best_and_latest([*of_all, seen[-1]])


def test_a_driver_looks_through_all_trials_once(monkeypatch: pytest.MonkeyPatch) -> None:
    study, looked_at = open_study(None, "s"), list[int]()
    fill(study, 2 * MAX_ENDED)

    def counted(trials: list[FrozenTrial]) -> list[FrozenTrial]:
        looked_at.append(len(trials))
        return best_and_latest(trials)

    monkeypatch.setattr("mtcon_ray.sweep.tpe.best_and_latest", counted)
    search = {"space": {"method.temperature": {"loguniform": [0.03, 1.0]}}, "num_trials": 9}
    suggester = Suggester(study, SearchSpec.model_validate(search), 0)
    for _ in range(3):
        assert suggester.next()
    first, *others = looked_at
    assert first == 2 * MAX_ENDED
    assert 0 < max(others) < MAX_ENDED + 5


def test_a_view_shows_what_it_was_given_by_state() -> None:
    trials = [ended(TrialState.COMPLETE, 0), ended(TrialState.PRUNED, 1)]
    view = StudyView(open_study(None, "s"), trials)
    assert view.get_all_trials(0) == trials
    assert view.get_all_trials(0, states=(TrialState.PRUNED,)) == trials[1:]


def test_up_to_the_bound_suggestions_are_optunas_own() -> None:
    """Beyond the bound the suggestions differ, which shows that the bound has an effect."""
    for count, same in ((MAX_ENDED, True), (MAX_ENDED + 100, False)):
        study = open_study(None, "s")
        fill(study, count)
        ours = [suggest(study, KnownSpaceTPE(SPACE, seed=s)).params for s in range(3)]
        study = open_study(None, "s")
        fill(study, count)
        assert (ours == [suggest(study, TPESampler(seed=s)).params for s in range(3)]) is same


def test_the_reference_names_the_bound() -> None:
    assert f"at most {MAX_ENDED} trials" in str(SearchSpec.model_fields["sampler"].description)


def test_a_model_is_fitted_to_no_more_trials_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = open_study(None, "s")
    fill(study, 2 * MAX_ENDED)
    fitted: list[int] = []
    build = TPESampler._build_parzen_estimator

    def counted(self: TPESampler, *arguments: Any, **options: Any) -> Any:
        fitted.append(len(arguments[2]))
        return build(self, *arguments, **options)

    monkeypatch.setattr(TPESampler, "_build_parzen_estimator", counted)
    suggest(study, KnownSpaceTPE(SPACE, seed=0))
    assert sum(fitted) == MAX_ENDED


def test_two_that_run_at_once_know_of_each_other() -> None:
    """This holds beyond the bound too: the other trial's values count as tried."""
    study = open_study(None, "s")
    fill(study, MAX_ENDED + 50)
    first = suggest(study, KnownSpaceTPE(SPACE, seed=0))
    again = suggest(study, KnownSpaceTPE(SPACE, seed=0))
    assert first.state is again.state is TrialState.RUNNING
    assert first.params != again.params


def test_what_is_suggested_follows_from_the_journal(tmp_path: Path) -> None:
    """A driver that continued and one that was restarted use the same model."""
    fill(open_study(tmp_path / "j", "s"), MAX_ENDED + 30)
    (tmp_path / "k").write_bytes((tmp_path / "j").read_bytes())
    study, other = open_study(tmp_path / "j", "s"), open_study(tmp_path / "k", "s")
    for seed in range(3):
        taken = suggest(study, KnownSpaceTPE(SPACE, seed=seed))
        anew = suggest(open_study(tmp_path / "k", "s"), KnownSpaceTPE(SPACE, seed=seed))
        assert taken.params == anew.params
        assert taken.system_attrs == anew.system_attrs != {}
        for s, t in ((study, taken), (other, anew)):
            s.tell(t.number, accuracy(t.params))


def test_beyond_the_bound_the_search_goes_on_at_the_best() -> None:
    study = open_study(None, "s")
    fill(study, MAX_ENDED)
    at_random = [t.value for t in study.get_trials(states=[TrialState.COMPLETE]) if t.value]
    found = []
    for seed in range(60):
        trial = suggest(study, KnownSpaceTPE(SPACE, seed=seed))
        found.append(accuracy(trial.params))
        study.tell(trial.number, found[-1])
    assert mean(found[-30:]) > max(0.77, mean(at_random) + 0.1)


def test_what_was_good_long_ago_is_still_known() -> None:
    study = open_study(None, "s")
    for number in range(MAX_ENDED + NUM_BEST + 50):
        good = number < 10
        params = {"batch_size": 64, "lr": 0.05, "temperature": 0.2 if good else 0.9}
        trial = create_trial(params=params, distributions=SPACE, value=accuracy(params))
        study.add_trial(trial)
    taken = [suggest(study, KnownSpaceTPE(SPACE, seed=s)).params["temperature"] for s in range(9)]
    assert sorted(taken)[len(taken) // 2] == pytest.approx(0.2, rel=0.3)
