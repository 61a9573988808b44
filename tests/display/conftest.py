"""Results of sweeps with made-up but plausible curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from mtcon_ray.base import metrics
from mtcon_ray.base.status import Status
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import parse_spec
from tests.recorded import plan_with, recorded, trial_of

TEMPERATURES = (0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0)
POINTS = tuple({"method.temperature": t} for t in TEMPERATURES)
MakeSweep = Callable[..., SweepResults]


def reports(
    peak: Mapping[str, float], *, last: int, epochs: int, held_out: Sequence[str], with_std: bool
) -> tuple[tuple[int, dict[str, float]], ...]:
    """Returns an epoch's metrics as probing reports them; `peak` is by task."""
    found = []
    slugs = {label: metrics.slug(label) for label in (*peak, *held_out)}
    for epoch in range(1, last + 1):
        scores = {task: top * (1 - math.exp(-4 * epoch / epochs)) for task, top in peak.items()}
        values = {metrics.MEAN_ACCURACY: fmean(scores.values())}
        for task, value in scores.items():
            values[metrics.score("classes", "val", slugs[task])] = value
            if with_std:
                values[metrics.score_std("classes", "val", slugs[task])] = 0.02
        for label in slugs if epoch == epochs else ():
            split = "test" if label in peak else "heldout"
            values[metrics.score("classes", split, slugs[label])] = peak.get(label, 0.31) - 0.01
            values[metrics.score_std("classes", split, slugs[label])] = 0.0104
        found.append((epoch, values))
    return tuple(found)


def make_sweep(
    folder: Path, *, points: Sequence[Mapping[str, Any]] = POINTS,
    search: Mapping[str, Any] | None = None, statuses: Mapping[int, str] | None = None,
    reason: str = "gradient is not finite at step 12; loss 41.7",
    tasks: Sequence[str] = ("category", "gender", "colour"), held_out: Sequence[str] = ("brand",),
    epochs: int = 20, repeats: int = 1, with_std: bool = True,
) -> SweepResults:  # fmt: skip
    """Returns a sweep with one trial per point and seed; `statuses` default to FINISHED."""
    space = {"method.temperature": {"grid": list(TEMPERATURES)}} if search is None else search
    files = {"kind": "table", "csv": "labels.csv", "images": "images", "image_column": "image"}
    data = {**files, "tasks": list(tasks), "held_out": list(held_out)}
    sections = {"data": data, "search": {"space": space, "repeats": repeats}}
    spec = parse_spec({"name": "shoes-temperature", **sections, "method": "mtcon"})
    tops = dict(zip(tasks, (0.76, 0.87, 0.66, 0.7, 0.6, 0.5, 0.8), strict=False))
    trials = []
    for number in range(len(points) * repeats):
        params = dict(points[number // repeats])
        off = math.log(float(params.get("method.temperature", 0.1)) / 0.13)
        peak = {task: top - 0.022 * off**2 + 0.001 * number for task, top in tops.items()}
        status = Status((statuses or {}).get(number, "FINISHED"))
        lasts = {"FINISHED": epochs, "PRUNED": epochs // 4 * (1 + number % 2), "FAILED": 2}
        last, why = lasts.get(status, epochs // 2), reason if status == "FAILED" else None
        seen = reports(peak, last=last, epochs=epochs, held_out=held_out, with_std=with_std)
        trial = trial_of(number, epochs, {}, params=params, status=status, reason=why)
        trials.append(replace(trial, seed=number % repeats, reports=seen))
    classes = {**{t: 4 + 3 * i for i, t in enumerate(tasks)}, **dict.fromkeys(held_out, 43)}
    majority = {**{t: 0.3 + 0.05 * i for i, t in enumerate(tasks)}, **dict.fromkeys(held_out, 0.12)}
    num_items = {"train": 4000, "val": 1000, "test": 1500}
    sizes = {"classes": classes, "num_items": num_items, "repeats": repeats}
    plan = plan_with(majority=majority, kinds=dict.fromkeys(classes, "classes"), **sizes)
    return SweepResults("shoes-temperature-1", folder, recorded(spec), plan, tuple(trials))


@pytest.fixture
def sweep(tmp_path: Path) -> MakeSweep:
    """Returns a function that makes the results of a sweep in a temporary folder."""
    return partial(make_sweep, tmp_path / "sweeps" / "shoes-temperature-1")
