"""The search benchmark over recorded trainings: by whole sweeps, and by learning curves alone."""

from pathlib import Path

import pytest

from benchmarks import search, search_curves
from mtcon_ray.search.schedulers import ASHA, Halving
from mtcon_ray.spec import with_values


@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.soak
def test_searches_are_compared_over_recorded_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("3 at random", "halving")
    monkeypatch.setattr(search, "SETTINGS", {name: search.SETTINGS[name] for name in kept})
    rising = {str(t): [t * e / 9 for e in range(1, 10)] for t in search.TEMPERATURES}
    # Halving finds the best of each set of curves, which is the worst of the other.
    falling = {
        str(t): [e / 9 - v for e, v in enumerate(rising[str(t)], 1)] for t in search.TEMPERATURES
    }
    spec = search.grid_spec(photos=False, epochs=9, seeds=1)
    table = search.compare(spec, [rising, falling], range(1))
    assert "| halving | 24.1% | 0.00 | 0.00 | 98.00 | 98.00 |" in table
    for curves, best in ((rising, "1.0"), (falling, "0.02")):
        assert search_curves.halve(curves, Halving.Spec()) == (26, best)


@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.soak
def test_a_training_that_is_recorded_is_repeated_bit_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TEMPERATURES", (0.1, 0.5))
    spec = with_values(search.grid_spec(photos=False, epochs=2, seeds=1), {"data.num_items": 300})
    (curves,) = search.train_grid(spec, tmp_path)
    assert {t: len(values) for t, values in curves.items()} == {"0.1": 2, "0.5": 2}


def test_halving_is_told_by_recorded_curves() -> None:
    """The better half continues at each rung: 4 x 1 + 2 x 1 + 1 x 2 = 8 of 16 epochs."""
    curves = {
        "late": [0.1, 0.2, 0.8, 0.9],
        "second": [0.5, 0.6, 0.7, 0.7],
        "first": [0.6, 0.5, 0.9, 0.95],
        "low": [0.0, 0.0, 0.0, 0.0],
    }
    assert search_curves.halve(curves, Halving.Spec(reduction=2)) == (8, "second")
    assert search_curves.by_chance({k: curves[k] for k in ("late", "second", "low")}) == 0.0
    table = search_curves.measure()
    assert "| halving | 24.1% | " in table
    num_settings = len(search_curves.HALVINGS) + len(search_curves.ASHAS) + 1
    assert table.count(" of 12 |") == num_settings


def test_asha_stops_recorded_trainings_as_in_a_sweep() -> None:
    """A rung at 1 of 4 epochs and at 2: the low one stops there unless it comes first."""
    curves = {"high": [0.5, 0.6, 0.7, 0.8], "low": [0.1, 0.2, 0.3, 0.9]}
    spec = ASHA.Spec(grace=0.25, reduction=2)
    found = {search_curves.asha(curves, spec, seed) for seed in range(10)}
    assert found == {(8, "low"), (5, "high")}


def test_agreement_counts_pairs_of_training_seeds() -> None:
    peak = {0: "0.1", 1: "0.2", 2: "0.2"}
    sets = [{t: [float(t == best)] for t in ("0.1", "0.2", "0.4")} for best in peak.values()]
    table = search_curves.agreement({"photographs": sets})
    assert "| photographs | 3 | 1 | 3 | 0.1 (1), 0.2 (2) |" in table
