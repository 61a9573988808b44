"""Finished trials of earlier sweeps as a start for a sampler."""

import math
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.paths import PLAN_FILE, event_file, sweep_folder
from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Earlier, Ended, Started
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.prior import earlier_trials, first_configurations
from mtcon_ray.sweep.record import SweepRecord, Trial
from mtcon_ray.sweep.suggester import Suggester, preview
from tests.recorded import plan_with
from tests.run_log import RunLog
from tests.some import some
from tests.sweep.simulated import Simulation
from tests.sweep.studies import ended

TEMPERATURE, RATE, EPOCHS = "method.temperature", "train.lr", "train.epochs"
RANGES: dict[str, Any] = {TEMPERATURE: {"uniform": [0.1, 1]}, RATE: {"uniform": [0.01, 1]}}


def spec_of(space: dict[str, Any], tasks: tuple[str, ...] = ("shape",), **search: Any) -> RunSpec:
    data = {"kind": "synthetic", "tasks": list(tasks), "held_out": []}
    return parse_spec({"name": "s", "data": data, "search": {"space": space, **search}})


def write_sweep(root: Path, name: str, spec: RunSpec, *trials: tuple[Any, Any, str]) -> Path:
    """Writes a sweep with these trials: parameters, value of the only epoch, status."""
    folder = sweep_folder(root, name)
    folder.mkdir(parents=True)
    write_beginnings(folder, spec, plan_with(kinds=dict(spec.labels.kinds), num_trials=len(trials)))
    RunLog(folder).append(Started(params={}, tags={}))
    for number, (params, value, status) in enumerate(trials):
        log = RunLog(folder, f"trial-{number:04d}")
        log.append(Started(params=params, tags={"mtcon.epochs": "1", "mtcon.seed": "0"}))
        if value is not None:
            log.report(1, **{spec.labels.objective: value})
        log.append(Ended(status=status, tags={}))
    return folder


def seen(trials: list[Earlier]) -> list[tuple[dict[str, Any], float | None]]:
    return [(dict(trial.params), trial.value) for trial in trials]


def test_finished_trials_give_the_fields_that_are_shared_and_inside(tmp_path: Path) -> None:
    then = spec_of({TEMPERATURE: {"uniform": [0.01, 2]}, EPOCHS: {"int": [1, 9]}})
    write_sweep(
        tmp_path, "old", then,
        ({TEMPERATURE: 0.2, EPOCHS: 1}, 0.5, "FINISHED"),
        ({TEMPERATURE: 0.3, EPOCHS: 1}, 0.6, "FAILED"),
        ({TEMPERATURE: 0.4, EPOCHS: 1}, math.nan, "FINISHED"),
        ({TEMPERATURE: 1.5, EPOCHS: 1}, 0.7, "FINISHED"),
        ({TEMPERATURE: 0.5, EPOCHS: 1}, None, "KILLED"),
        ({TEMPERATURE: 1.0, EPOCHS: 1}, 0.8, "FINISHED"),
    )  # fmt: skip
    write_sweep(tmp_path, "other", spec_of({RATE: {"grid": [0.1]}}), ({RATE: 0.1}, 0.4, "FINISHED"))
    found = earlier_trials(spec_of(RANGES, start_from=["old", "other", "old"]), tmp_path)
    assert seen(found) == [({TEMPERATURE: 0.2}, 0.5), ({TEMPERATURE: 1.0}, 0.8), ({RATE: 0.1}, 0.4)]
    assert found[1].source == "old/trial-0005"
    assert earlier_trials(spec_of(RANGES), tmp_path) == []


def test_listed_values_are_taken_as_optuna_takes_them(tmp_path: Path) -> None:
    space = {"views.crop_scale": {"grid": [[0.2, 1.0], [0.5, 1.0]]}}
    params = {"views.crop_scale": "[0.5, 1.0]"}
    write_sweep(tmp_path, "old", spec_of(space), (params, 0.5, "FINISHED"))
    assert seen(earlier_trials(spec_of(space, start_from=["old"]), tmp_path)) == [(params, 0.5)]


def test_a_gaussian_process_gets_trials_with_all_fields(tmp_path: Path) -> None:
    """It would never use a field that any of its trials lacks."""
    params = {TEMPERATURE: 0.2, RATE: 0.1}
    trials = [(params, 0.5, "FINISHED"), ({**params, RATE: 2}, 0.6, "FINISHED")]
    write_sweep(tmp_path, "old", spec_of({**RANGES, RATE: {"uniform": [0.01, 3]}}), *trials)
    spec = spec_of(RANGES, start_from=["old"], sampler="gp")
    assert seen(earlier_trials(spec, tmp_path)) == [(params, 0.5)]
    with pytest.raises(SpecError, match="a finished trial that has all searched fields inside"):
        earlier_trials(with_values(spec, {f"search.space.{EPOCHS}": {"int": [1, 2]}}), tmp_path)


BOTH: dict[str, Any] = {"tasks": ("shape", "colour")}
WEIGHTED = {**BOTH, "objective": {"shape": 2, "colour": 1}}


REFUSED = [
    (None, {}, r"'old' under .*; did you mean 'older'\?"),
    ({"tasks": ("colour",)}, {}, r"same objective, accuracy over \['shape'\], got 'old' with"),
    (BOTH, WEIGHTED, "same objective, weighted mean: 67% shape, 33% colour over"),
    ({}, {"objective": "knn"}, r"same objective, knn over \['shape'\], got 'old' with"),
    ({"objective": "knn"}, {"objective": "head/map_at_r"}, "head/map_at_r over .* with knn"),
    ({"value": 1.5}, {}, "a finished trial that has a searched field inside search.space, got"),
]


@pytest.mark.parametrize(("then", "now", "expected"), REFUSED)
def test_what_cannot_start_is_refused(tmp_path: Path, then: Any, now: Any, expected: str) -> None:
    changes = {"space": {TEMPERATURE: {"uniform": [0.1, 2]}}, "value": 0.5, **(then or {})}
    value = changes.pop("value")
    name = "older" if then is None else "old"
    write_sweep(tmp_path, name, spec_of(**changes), ({TEMPERATURE: value}, 0.5, "FINISHED"))
    with pytest.raises(SpecError, match=f"search.start_from must name sweeps .*{expected}"):
        earlier_trials(spec_of(RANGES, start_from=["old"], **now), tmp_path)


def test_the_same_objective_may_be_written_in_another_way(tmp_path: Path) -> None:
    then = spec_of({RATE: {"grid": [0.1]}}, **BOTH, objective={"shape": 1, "colour": 1})
    write_sweep(tmp_path, "old", then, ({RATE: 0.1}, 0.5, "FINISHED"))
    for objective in (None, "score", {"score": 0.1, "score/colour": 0.7, "shape": 0.7}):
        spec = spec_of(RANGES, **BOTH, start_from=["old"], objective=objective)
        assert earlier_trials(spec, tmp_path)


def test_accuracies_of_other_probes_are_refused(tmp_path: Path) -> None:
    spec = spec_of(RANGES)
    folder = write_sweep(tmp_path, "old", spec, ({RATE: 0.1}, 0.5, "FINISHED"))
    (folder / PLAN_FILE).write_text(plan_with(evaluation=1).model_dump_json())
    with pytest.raises(SweepError, match="'old' was begun with other probes"):
        earlier_trials(with_values(spec, {"search.start_from": ["old"]}), tmp_path)


def test_a_name_is_no_path_and_a_sampler_must_learn() -> None:
    for name in ("../old", ""):
        with pytest.raises(SpecError, match=r"search\.start_from"):
            spec_of(RANGES, start_from=[name])
    with pytest.raises(SpecError, match="start_from must be used with sampler tpe or gp, got rand"):
        spec_of(RANGES, start_from=["old"], sampler="random")


def good_around_a_fifth(root: Path, **search: Any) -> tuple[RunSpec, list[Earlier]]:
    """Returns a spec and its earlier trials: only temperatures around 0.2 were good."""
    trials = [({TEMPERATURE: 0.1 + i * 0.045}, 1 - abs(i * 0.045 - 0.1), "FINISHED")
              for i in range(20)]  # fmt: skip
    write_sweep(root, "old", spec_of({TEMPERATURE: RANGES[TEMPERATURE]}), *trials)
    spec = spec_of(search.pop("space", RANGES), start_from=["old"], num_trials=12, **search)
    return spec, earlier_trials(spec, root)


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_sampler_knows_from_the_start_what_was_good(tmp_path: Path, sampler: str) -> None:
    space = RANGES if sampler == "tpe" else {TEMPERATURE: RANGES[TEMPERATURE]}
    spec, prior = good_around_a_fifth(tmp_path, space=space, sampler=sampler)
    suggester, own = Suggester(spec.search, spec.seed, prior), list[Trial]()
    first = preview(spec.search, spec.seed, earlier=prior)
    for number in range(4):
        point = some(suggester.configuration(number, own))
        own.append(ended(number, point, 1 - abs(point[TEMPERATURE] - 0.2)))
    assert first == (own[0].params,), "the others depend on this sweep's results"
    assert all(trial.params[TEMPERATURE] < 0.4 for trial in own)
    assert all(set(trial.params) == set(space) for trial in own)


def test_a_sweep_that_has_begun_keeps_its_earlier_trials(tmp_path: Path) -> None:
    """The earlier sweep may be gone when it is resumed, or have more trials."""
    spec, prior = good_around_a_fifth(tmp_path)
    folder, gone = sweep_folder(tmp_path, "new"), tmp_path / "elsewhere"
    with pytest.raises(SpecError, match="no sweep 'old' under"):
        earlier_trials(spec, gone, folder)
    start, file = Started(params={}, tags={}), Artifact(path="plan.json", to="")
    EventLog(event_file(folder)).append(start, *prior[:3], file)
    assert seen(earlier_trials(spec, gone, folder)) == seen(prior[:3])


def test_a_start_that_a_kill_has_cut_gets_all_earlier_trials(tmp_path: Path) -> None:
    spec, prior = good_around_a_fifth(tmp_path)
    folder = Simulation(tmp_path, spec).folder
    log, files = event_file(folder), [Path("plan.json")]
    SweepRecord(folder, spec).begin({}, files, prior)
    lines = log.read_bytes().splitlines(keepends=True)
    for num_whole, rest in [(1, 0), (1, 9), (7, 9), (len(prior), 0)]:
        log.write_bytes(b"".join(lines[:num_whole]) + lines[num_whole][:rest])
        for _ in range(2):  # also after a kill right after the resume
            record = SweepRecord(folder, spec)
            record.begin({}, files, earlier_trials(spec, tmp_path, folder))
            assert seen(list(record.earlier)) == seen(prior)


def test_configurations_that_the_spec_refuses_are_found_before_anything_starts() -> None:
    """Each value alone is accepted: a pair of a grid, or an integer between the bounds, is not."""
    grid = {EPOCHS: {"grid": [5, 20]}, "train.warmup_epochs": {"grid": [1, 10]}}
    told = r"got \{'train.epochs': 5, 'train.warmup_epochs': 10\}: .*warmup_epochs must be below"
    with pytest.raises(SpecError, match=told):
        first_configurations(spec_of(grid, sampler="grid"))

    def sizes(**dimension: Any) -> RunSpec:
        sizes = spec_of({"train.batch_size": dimension}, sampler="random", num_trials=5)
        return with_values(sizes, {"resources.workers": 2, "train.batch_size": 64})

    told = r"divisible by every number of resources.workers, got .*give a range a `step`"
    with pytest.raises(SpecError, match=told):
        first_configurations(sizes(int=[16, 64]))
    assert len(first_configurations(sizes(int=[16, 64], step=2))) == 5
