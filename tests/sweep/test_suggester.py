"""Suggestions of configurations, their order, and Optuna's samplers as sweeps use them."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from mtcon_ray.base.status import Status
from mtcon_ray.spec.space import Dimension
from mtcon_ray.sweep.record import Trial
from mtcon_ray.sweep.suggester import Suggester, distribution, distributions, frozen, preview
from tests.some import some
from tests.sweep.studies import TEMPERATURE, TWO, ended, run, search, value_of


@pytest.mark.parametrize("sampler", ["tpe", "gp", "qmc", "random"])
def test_the_same_seed_gives_the_same_suggestions_as_the_preview_shows(sampler: str) -> None:
    spec = search(space=TWO, sampler=sampler, num_trials=6)
    first, second, other = (run(Suggester(spec, seed)) for seed in (0, 0, 1))
    assert first == second != other
    assert len(first) == 6
    shown = preview(spec, 0)
    assert 2 <= len(shown) <= 5
    assert first[: len(shown)] == list(shown)


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random"])
def test_lists_are_searched(sampler: str) -> None:
    """Optuna stores lists as JSON texts; the spec converts them back."""
    scales = {"views.crop_scale": {"choice": [[0.2, 1.0], [0.5, 1.0], [0.8, 1.0]]}}
    first = [{"views.crop_scale": [0.5, 1]}]
    spec = search(space=scales, first_points=first, sampler=sampler, num_trials=3)
    found = [params["views.crop_scale"] for params in run(Suggester(spec, 0))]
    assert found[0] == "[0.5, 1.0]"
    assert preview(spec, 0)[0] == {"views.crop_scale": [0.5, 1.0]}, "the user sees lists"
    assert sorted(found) == ["[0.2, 1.0]", "[0.5, 1.0]", "[0.8, 1.0]"]


def test_a_grid_is_tried_whole_in_its_written_order() -> None:
    temperatures, rates = [0.5, 0.1], [1.0, 2.0, 3.0]
    space = {TEMPERATURE: {"grid": temperatures}, "train.lr": {"choice": rates}}
    taken = run(Suggester(search(sampler="grid", space=space), 0))
    assert [(p[TEMPERATURE], p["train.lr"]) for p in taken] == list(product(temperatures, rates))


def test_a_grid_that_has_got_more_values_is_tried_whole() -> None:
    trials = [ended(i, {TEMPERATURE: value}, 0.5) for i, value in enumerate((0.1, 0.3))]
    space = {TEMPERATURE: {"grid": [0.1, 0.2, 0.3, 0.4]}}
    wider = Suggester(search(sampler="grid", space=space), 0)
    for number in (2, 3):
        trials.append(ended(number, some(wider.configuration(number, trials)), 0.5))
    assert sorted(trial.params[TEMPERATURE] for trial in trials) == [0.1, 0.2, 0.3, 0.4]


def test_known_points_come_first_and_may_name_some_fields_only() -> None:
    first = [{TEMPERATURE: 0.07}, {TEMPERATURE: 0.1, "train.batch_size": 50}]
    taken = run(Suggester(search(space=TWO, first_points=first, num_trials=4), 0))
    assert taken[0][TEMPERATURE] == 0.07
    assert 16 <= taken[0]["train.batch_size"] <= 512
    assert taken[1] == first[1]


SPACES: dict[str, dict[str, Any]] = {
    "grids": {
        TEMPERATURE: {"grid": [i / 100 for i in range(1, 21)]},
        "train.lr": {"choice": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]},
    },
    "steps": {
        TEMPERATURE: {"uniform": [0.1, 1.0], "step": 0.1},
        "train.batch_size": {"int": [10, 60], "step": 10},
    },
    "integers": {"train.batch_size": {"logint": [16, 64]}},
    "lists": {"views.crop_scale": {"choice": [[i / 100, 1.0] for i in range(10, 40)]}},
}


FINITE = [*product(SPACES, ("random", "qmc")), ("integers", "tpe")]


@pytest.mark.parametrize(("space", "sampler"), FINITE)
def test_all_points_of_a_finite_space_are_suggested(space: str, sampler: str) -> None:
    """The sampler's 0.1 + 2 * 0.1 is the user's 0.3."""
    first = [{TEMPERATURE: 0.3, "train.batch_size": 10}] if space == "steps" else []
    spec = search(space=SPACES[space], sampler=sampler, first_points=first, num_trials=1000)
    taken = run(Suggester(spec, 0))
    assert len(taken) == spec.num_configurations
    rounded = [[round(v, 6) if isinstance(v, float) else v for v in p.values()] for p in taken]
    assert len(set(map(tuple, rounded))) == len(taken)


def test_an_empty_space_is_one_training() -> None:
    assert run(Suggester(search(space={}, sampler="grid"), 0)) == [{}]


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_running_trials_are_known_to_the_sampler(sampler: str) -> None:
    """A suggestion is that of a plain study, and not the point of the running trial."""
    spec = search(sampler=sampler, num_trials=40)
    suggester, trials = Suggester(spec, 0), list[Trial]()
    for number in range(15):
        point = some(suggester.configuration(number, trials))
        trials.append(ended(number, point, 1 - number / 100))
    first = some(suggester.configuration(15, trials))
    running = Trial("trial-0015", 15, first, 0, 4, values={1: 0.5})
    second = suggester.configuration(16, [*trials, running])
    assert second not in (None, first)
    seeded, kind = Random("0/16/0"), getattr(optuna.samplers, f"{sampler.upper()}Sampler")
    seeded.random()  # for the only field
    study = optuna.create_study(direction="maximize", sampler=kind(seed=seeded.getrandbits(31)))
    study.add_trials([frozen(trial, spec.space) for trial in (*trials, running)])
    assert study.ask(distributions(spec.space, spec.space)).params == second


def test_tpe_sees_ended_trials_before_running_ones() -> None:
    """Of many trials it gives the first less weight, and a trial's end must not change that."""
    good, others = {TEMPERATURE: 0.1}, [{TEMPERATURE: 0.03 + n / 50} for n in range(40)]
    running = [Trial(f"trial-{n:04d}", n, good, 0, 4) for n in range(40)]
    done = [ended(40 + n, params, value_of(params)) for n, params in enumerate(others)]
    suggester = Suggester(search(num_trials=200), 0)
    for number in range(80, 100):
        found = [suggester.configuration(number, each) for each in (running + done, done + running)]
        assert found[0] == found[1]


def test_failed_trials_that_are_tried_again_count_with_their_new_values() -> None:
    points = [{TEMPERATURE: 0.03 + n / 50} for n in range(40)]
    again = [ended(n, params, value_of(params)) for n, params in enumerate(points)]
    failed = [replace(trial, status=Status.FAILED, values={}) for trial in again]
    lasting, new = (Suggester(search(num_trials=200), 0) for _ in range(2))
    assert lasting.configuration(40, failed) != new.configuration(40, again)
    assert lasting.configuration(41, again) == new.configuration(41, again)


def test_qmc_spreads_its_points() -> None:
    """Each sixteenth of the range has one of 16 points, by the Sobol sequence's definition."""
    spec = search(space={"train.lr": {"uniform": [0, 16]}}, sampler="qmc", num_trials=16)
    assert sorted(int(p["train.lr"]) for p in run(Suggester(spec, 0))) == list(range(16))


def test_a_share_of_a_range_follows_its_scale_and_steps() -> None:
    def at(share: float, **fields: Any) -> Any:
        return Dimension.model_validate(fields).at(share)

    assert at(0.5, uniform=[0, 4]) == 2.0
    assert at(0.5, loguniform=[0.01, 1]) == pytest.approx(0.1)
    assert [at(s, choice=[1, [2]]) for s in (0, 0.49, 0.5)] == [1, 1, "[2]"]
    assert [at(s, int=[2, 4]) for s in (0, 0.3, 0.4, 0.6, 0.7, 0.999)] == [2, 2, 3, 3, 4, 4]
    assert {at(s / 1000, logint=[1, 64]) for s in range(1000)} >= {1, 2, 4, 8, 64}
    assert isinstance(at(0.5, logint=[1, 64]), int)


def test_steps_and_logarithms_are_optunas() -> None:
    for kind, expected in (
        ({"logint": [1, 64]}, IntDistribution(1, 64, log=True)),
        ({"int": [16, 64], "step": 16}, IntDistribution(16, 64, step=16)),
        ({"uniform": [0, 0.3], "step": 0.1}, FloatDistribution(0, 0.3, step=0.1)),
    ):
        assert distribution(Dimension.model_validate(kind)) == expected
