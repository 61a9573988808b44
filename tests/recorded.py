"""Plans and specs as a sweep's folder records them, for tests without a sweep."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mtcon_ray.base.status import Status
from mtcon_ray.evaluation.predictions import LabelPredictions, save_predictions
from mtcon_ray.plan.plan import Plan
from mtcon_ray.records.results import SweepResults, TrialResult
from mtcon_ray.spec.evaluate import EVALUATION
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_recorded


def plan_with(**fields: Any) -> Plan:
    """Returns a plan of four trials, with these fields changed."""
    plan = {
        "name": "x", "root": "root", "num_trials": 4, "num_configurations": 4, "repeats": 1,
        "evaluation": EVALUATION, "kinds": {}, "epochs": 3, "steps_per_epoch": 2,
        "views_per_step": 16, "images_per_trial": 48, "scheduler": "none",
        "rung_epochs": (), "num_items": {}, "standard_error": 0.01, "classes": {},
        "parameters": 10, "store_bytes": 100, "cluster": "this machine", "concurrency": 1,
        "cpus_per_trial": 1, "gpus_per_trial": 0, "first_configurations": (), "warnings": (),
    }  # fmt: skip
    return Plan.model_validate(plan | fields)


def recorded(spec: RunSpec) -> RunSpec:
    """Returns a spec as it is read from the folder of a sweep."""
    return parse_recorded(dump_spec(spec), "spec.yaml")


def results_of(
    spec: RunSpec, *trials: TrialResult, name: str = "x", folder: Path = Path("x"),
    plan: Plan | None = None,
) -> SweepResults:  # fmt: skip
    """Returns the results of a sweep with these trials."""
    return SweepResults(name, folder, recorded(spec), plan, trials)


def trial_of(number: int, epochs: int, values: dict[str, float], **fields: Any) -> TrialResult:
    """Returns a finished trial with these values in its last epoch, with other fields changed."""
    name = f"trial-{number:04d}"
    trial = TrialResult(name, number, {}, Status.FINISHED, None, epochs, 0, ((epochs, values),))
    return replace(trial, **fields)


def save_wrong(path: Path, wrong: dict[tuple[str, str], np.ndarray], *, first_row: int = 0) -> None:
    """Writes a trial's predictions by (split, label), of items of a class. True is a wrong one."""
    labels = {}
    for place, wrong_n in wrong.items():
        rows = first_row + np.arange(len(wrong_n))
        labels[place] = LabelPredictions(rows, 0 * rows, wrong_n.astype(np.int64))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_predictions(path, "abc", labels)
