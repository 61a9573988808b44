"""Each benchmark once, as small as it goes: that it measures, not what."""

import pytest

from benchmarks import idle_trial, tracking
from benchmarks.machine import describe_machine
from mtcon_ray.spec import load_spec

TINY_JOB = (
    "data.num_items=300",
    "views.size=16",
    "model.encoder.width=8",
    "train.epochs=2",
    "evaluate.bootstrap=100",
    "search.space.method.temperature={grid: [0.1, 0.5]}",
    "search.scheduler={name: none}",
)


@pytest.mark.ray
@pytest.mark.mlflow
def test_idle_trials_are_timed() -> None:
    ours, function = idle_trial.measure_sweep(3), idle_trial.measure_functions(3)
    for clock in (ours, function):
        assert len(clock.ends) == 3
        assert 0 < clock.per_trial < clock.total
    table = idle_trial.table({"ours": ours}, {"function": function}).splitlines()
    assert f"| ours | {ours.per_trial:.2f} | 1.0 |" in table[2]
    assert f"| function | {function.per_trial:.2f} |" in table[3]


@pytest.mark.ray
@pytest.mark.mlflow
def test_tracking_is_timed() -> None:
    costs = tracking.measure_sweep(load_spec(tracking.DEFAULT_JOB, TINY_JOB))
    assert costs.num_trials == 2
    assert costs.num_reports == 4
    assert 0 < costs.on_training_thread < costs.training
    assert costs.sender > 0
    assert costs.share == (costs.on_training_thread + costs.sender) / costs.training


def test_a_number_comes_with_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "tracking"])
    when, commit, machine, versions = describe_machine().splitlines()
    assert when.endswith("`python -m benchmarks tracking`")
    assert commit.startswith("- commit ")
    assert "usable cores" in machine
    assert "optuna" in versions
