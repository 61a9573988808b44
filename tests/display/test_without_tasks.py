"""The report page of a sweep on images without labels."""

import dataclasses

import pytest

from mtcon_ray.base import metrics
from mtcon_ray.spec.run_spec import dump_spec, parse_recorded
from tests.display.built_page import built
from tests.display.conftest import MakeSweep

pytestmark = pytest.mark.slow


def test_trials_without_tasks_are_compared_by_rank(sweep: MakeSweep) -> None:
    results = sweep(tasks=["kind"])
    raw = dump_spec(results.spec)
    raw |= {"method": {"name": "simclr"}, "data": {**raw["data"], "tasks": [], "held_out": []}}
    trials = tuple(
        dataclasses.replace(
            t, reports=tuple((e, {metrics.RANK: v[metrics.MEAN_ACCURACY]}) for e, v in t.reports)
        )
        for t in results.trials
    )
    stored = parse_recorded(raw)
    page = built(dataclasses.replace(results, spec=stored, trials=trials))
    assert "won with val/rankme 0." in page.text
    assert "Without bootstrap deviations nothing can be said" in page.text
    assert "A trial's value is RankMe of its network" in page.text
    assert "±" not in page.text
