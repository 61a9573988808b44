"""Tune's record of an ended trial is small and still answers Tune's queries."""

import pickle

import pytest
from ray.tune.experiment import Trial

from mtcon_ray.sweep.forget import Forget


@pytest.mark.parametrize("hook", ["on_trial_complete", "on_trial_error"])
def test_statistics_and_the_last_report_go(hook: str) -> None:
    trial = Trial("none", stub=True, trial_id="a")
    report = {f"metric-{i}": 0.5 * i for i in range(20)}
    trial.update_last_result({"training_iteration": 1, "metrics": report})
    before = trial.get_json_state()
    getattr(Forget(), hook)(iteration=1, trials=[trial], trial=trial)
    assert "metric-3" in "".join(before)
    assert "metric-3" not in "".join(trial.get_json_state())
    assert (trial.metric_analysis, trial.metric_n_steps) == ({}, {})
    assert trial.last_result == {"done": True, "trial_id": "a"}


def test_tune_can_write_it_down() -> None:
    assert isinstance(pickle.loads(pickle.dumps(Forget())), Forget)
