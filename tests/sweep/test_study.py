"""The study: suggestions, their order, and their equality after a resume."""

import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.study import (
    CONFIGURATION,
    REPEAT,
    TRIAL,
    Suggester,
    named_trials,
    open_study,
    preview,
)
from tests.pages import DOCS
from tests.sweep.studies import TEMPERATURE, TWO, run, search, value_of


@pytest.mark.parametrize("sampler", ["tpe", "gp", "qmc", "random"])
def test_the_same_seed_gives_the_same_suggestions(sampler: str) -> None:
    spec = search(space=TWO, sampler=sampler, num_trials=6)
    first, second, other = (run(Suggester(open_study(None, "s"), spec, seed)) for seed in (0, 0, 1))
    assert first == second != other
    assert len(first) == 6


SEARCHES: list[dict[str, Any]] = [
    {"num_trials": 9},
    # Queued trials are stored before they are suggested.
    {"num_trials": 6, "repeats": 2, "sampler": "random", "first_points": [{TEMPERATURE: 0.5}, {}]},
    # Repeated samples are stored but not suggested.
    {"num_trials": 9, "sampler": "random", "space": {TEMPERATURE: {"choice": list(range(1, 10))}}},
    *({"num_trials": 12, "sampler": sampler, "space": TWO} for sampler in ("gp", "qmc")),
]


@pytest.mark.parametrize("fields", SEARCHES, ids=["tpe", "queued", "repeated", "gp", "qmc"])
@pytest.mark.parametrize("cut", [1, 4, 7])
def test_a_resumed_study_suggests_what_an_uncut_one_would(
    tmp_path: Path, cut: int, fields: dict[str, Any]
) -> None:
    spec = search(**fields)
    uncut = run(Suggester(open_study(None, "s"), spec, 0))
    assert len(uncut) == spec.num_configurations * spec.repeats
    journal = tmp_path / "study.journal"
    before = run(Suggester(open_study(journal, "s"), spec, 0), cut)
    after = run(Suggester(open_study(journal, "s"), spec, 0))
    assert before + after == uncut


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random"])
def test_lists_are_searched(tmp_path: Path, sampler: str) -> None:
    """Optuna stores lists as JSON texts; the spec converts them back."""
    scales = {"views.crop_scale": {"choice": [[0.2, 1.0], [0.5, 1.0], [0.8, 1.0]]}}
    first = [{"views.crop_scale": [0.5, 1]}]
    spec = search(space=scales, first_points=first, sampler=sampler, num_trials=3)
    journal = tmp_path / "study.journal"
    before = run(Suggester(open_study(journal, "s"), spec, 0), 2)
    after = run(Suggester(open_study(journal, "s"), spec, 0))
    found = [params["views.crop_scale"] for params in before + after]
    assert found[0] == "[0.5, 1.0]"
    assert sorted(found) == ["[0.2, 1.0]", "[0.5, 1.0]", "[0.8, 1.0]"]


def test_tpe_suggests_no_values_of_a_running_trial() -> None:
    """Optuna counts a running trial's values as bad ones, so trials at once differ."""
    study = open_study(None, "s")
    suggester = Suggester(study, search(sampler="tpe", num_trials=40), seed=0)
    for number in range(20):
        trial = suggester.next()
        assert trial is not None
        study.tell(trial.number, 1 / (1 + number))
    first, second = suggester.next(), suggester.next()
    assert first
    assert second
    assert first.state is second.state is TrialState.RUNNING
    assert first.params != second.params


def test_a_grid_is_tried_whole_in_its_written_order() -> None:
    spec = search(
        sampler="grid",
        space={TEMPERATURE: {"grid": [0.5, 0.1]}, "train.lr": {"choice": [1.0, 2.0, 3.0]}},
    )
    taken = run(Suggester(open_study(None, "s"), spec, 0))
    assert [(p[TEMPERATURE], p["train.lr"]) for p in taken] == [
        (0.5, 1.0), (0.5, 2.0), (0.5, 3.0), (0.1, 1.0), (0.1, 2.0), (0.1, 3.0),
    ]  # fmt: skip


def test_known_points_come_first_and_may_name_some_fields_only() -> None:
    spec = search(
        space={TEMPERATURE: {"uniform": [0.01, 1]}, "train.lr": {"uniform": [0.1, 1]}},
        first_points=[{TEMPERATURE: 0.07}, {TEMPERATURE: 0.1, "train.lr": 0.5}],
        num_trials=4,
    )
    taken = run(Suggester(open_study(None, "s"), spec, 0))
    assert taken[0][TEMPERATURE] == 0.07
    assert 0.1 <= taken[0]["train.lr"] <= 1
    assert taken[1] == {TEMPERATURE: 0.1, "train.lr": 0.5}


def test_no_configuration_twice_and_a_small_space_is_exhausted() -> None:
    spec = search(space={TEMPERATURE: {"choice": [0.1, 0.2, 0.3]}}, num_trials=50)
    taken = run(Suggester(open_study(None, "s"), spec, 0))
    assert sorted(p[TEMPERATURE] for p in taken) == [0.1, 0.2, 0.3]


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


@pytest.mark.parametrize(
    ("space", "sampler"),
    [*((space, "random") for space in SPACES), ("integers", "tpe"), ("steps", "qmc")],
)
def test_all_points_of_a_finite_space_are_suggested(space: str, sampler: str) -> None:
    """Few repetitions get into the study. The sampler's 0.1 + 2 * 0.1 is the user's 0.3."""
    first = [{TEMPERATURE: 0.3, "train.batch_size": 10}] if space == "steps" else []
    spec = search(space=SPACES[space], sampler=sampler, first_points=first, num_trials=1000)
    study = open_study(None, "s")
    taken = run(Suggester(study, spec, 0))
    assert len(taken) == spec.num_configurations
    rounded = [[round(v, 6) if isinstance(v, float) else v for v in p.values()] for p in taken]
    assert len(set(map(tuple, rounded))) == len(taken)
    assert len(study.get_trials(deepcopy=False)) <= 4 * len(taken)


def test_a_sweep_cut_near_the_end_of_a_finite_space_goes_on_the_same(tmp_path: Path) -> None:
    spec = search(space=SPACES["steps"], sampler="random", num_trials=60)
    uncut = run(Suggester(open_study(None, "s"), spec, 0))
    journal = tmp_path / "study.journal"
    given = []
    for count in (40, 12, 5, 3):
        given += run(Suggester(open_study(journal, "s"), spec, 0), count)
    assert given == uncut


def test_a_repetition_of_the_sampler_is_told_apart_from_trials() -> None:
    spec = search(space={"train.batch_size": {"int": [2, 4]}}, num_trials=5)
    study = open_study(None, "s")
    taken = run(Suggester(study, spec, 0))
    assert len({p["train.batch_size"] for p in taken}) == len(taken) == 3
    for trial in study.get_trials(deepcopy=False):
        assert (TRIAL in trial.user_attrs) == (trial.state is TrialState.COMPLETE)


def test_repeats_of_a_grid_come_before_its_next_point() -> None:
    spec = search(
        sampler="grid",
        space={TEMPERATURE: {"grid": [0.5, 0.1]}},
        first_points=[{TEMPERATURE: 0.1}],
        repeats=2,
    )
    taken = run(Suggester(open_study(None, "s"), spec, 0))
    assert [p[TEMPERATURE] for p in taken] == [0.1, 0.1, 0.5, 0.5]


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_point_queued_by_a_killed_driver_is_not_given_twice(tmp_path: Path, repeats: int) -> None:
    spec = search(sampler="grid", space={TEMPERATURE: {"grid": [0.5, 0.1, 0.2]}}, repeats=repeats)
    journal = tmp_path / "study.journal"
    before = run(Suggester(open_study(journal, "s"), spec, 0), 1)
    open_study(journal, "s").enqueue_trial({TEMPERATURE: 0.5 if repeats > 1 else 0.1})
    after = run(Suggester(open_study(journal, "s"), spec, 0))
    expected = [t for t in (0.5, 0.1, 0.2) for _ in range(repeats)]
    assert [p[TEMPERATURE] for p in before + after] == expected


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_driver_killed_as_it_names_a_trial_leaves_none_half_named(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = search(sampler="grid", space={TEMPERATURE: {"grid": [0.5, 0.1]}}, repeats=2)
    journal = tmp_path / "study.journal"
    before = run(Suggester(open_study(journal, "s"), spec, 0), 1)
    write, left = optuna.Trial.set_user_attr, iter(range(written))

    def killed_after(trial: optuna.Trial, key: str, value: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        write(trial, key, value)

    suggester = Suggester(open_study(journal, "s"), spec, 0)
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Trial, "set_user_attr", killed_after)
        with pytest.raises(KeyboardInterrupt):
            suggester.next()
    study = open_study(journal, "s")
    after = run(Suggester(study, spec, 0))
    assert [p[TEMPERATURE] for p in before + after] == [0.5, 0.5, 0.1, 0.1]
    given = [(t.user_attrs[CONFIGURATION], t.user_attrs[REPEAT]) for t in named_trials(study)]
    assert given == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_repeats_share_a_configuration_and_count_their_seeds() -> None:
    study = open_study(None, "s")
    run(Suggester(study, search(num_trials=2, repeats=3), 0))
    trials = named_trials(study)
    assert [t.user_attrs[TRIAL] for t in trials] == [f"trial-000{i}" for i in range(6)]
    assert [t.user_attrs[CONFIGURATION] for t in trials] == [0, 0, 0, 1, 1, 1]
    assert [t.user_attrs[REPEAT] for t in trials] == [0, 1, 2, 0, 1, 2]
    assert len({t.params[TEMPERATURE] for t in trials}) == 2


def test_more_trials_on_resume_go_on_where_it_ended(tmp_path: Path) -> None:
    journal = tmp_path / "study.journal"
    before = run(Suggester(open_study(journal, "s"), search(num_trials=3), 0))
    assert run(Suggester(open_study(journal, "s"), search(num_trials=3), 0)) == []
    more = run(Suggester(open_study(journal, "s"), search(num_trials=5), 0))
    assert len(before) == 3
    assert len(more) == 2


def test_the_preview_is_what_is_then_suggested() -> None:
    given: list[tuple[dict[str, Any], int]] = [
        ({"sampler": "random", "num_trials": 6}, 4),
        ({"num_trials": 12}, 4),
        ({"sampler": "qmc"}, 4),
        ({"sampler": "gp"}, 4),
    ]
    for fields, count in given:
        spec = search(**fields)
        shown = preview(spec, 5, 4)
        taken = run(Suggester(open_study(None, "s"), spec, 5), count)
        assert list(shown) == taken


def test_a_preview_shows_lists_as_lists() -> None:
    """Optuna stores each list as text."""
    spec = search(space={"views.crop_scale": {"grid": [[0.2, 1.0], [0.5, 1]]}}, sampler="grid")
    shown = preview(spec, 0)
    assert shown == ({"views.crop_scale": [0.2, 1.0]}, {"views.crop_scale": [0.5, 1]})


def test_an_empty_space_is_one_training() -> None:
    assert run(Suggester(open_study(None, "s"), search(space={}, sampler="grid"), 0)) == [{}]


def test_optuna_keeps_quiet() -> None:
    open_study(None, "s")
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING


def test_a_suggestion_looks_at_no_more_trials_the_more_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    def counted(params: dict[str, Any]) -> str:
        looks.append(repr(params))
        return looks[-1]

    monkeypatch.setattr("mtcon_ray.sweep.study._key", counted)
    search = SearchSpec.model_validate(
        {"space": {"train.lr": {"uniform": [0, 1]}}, "sampler": "random", "num_trials": 40}
    )
    suggester = Suggester(open_study(None, "s"), search, 0)
    for _ in range(30):
        suggester.next()
    assert len(looks) == 30 * 2


def test_optunas_own_tools_read_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the lines of docs/mlflow.md, beside a driver that writes."""
    page = (DOCS / "mlflow.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```python\n(import optuna\n.*?)^```", page, re.S | re.M)
    journal = tmp_path / "mtcon-ray" / "sweeps" / "NAME" / "study.journal"
    journal.parent.mkdir(parents=True)
    taken = run(Suggester(open_study(journal, "NAME"), search(num_trials=3), 0))
    monkeypatch.chdir(tmp_path / "mtcon-ray")
    exec(lines, {})
    best = max(taken, key=value_of)
    printed = capsys.readouterr().out
    assert str(best) in printed
    assert printed.count("COMPLETE") == 3
    assert len(run(Suggester(open_study(journal, "NAME"), search(num_trials=4), 0))) == 1
