"""Rungs in epochs, and how many trials train how long, known before anything starts."""

import pytest

from mtcon_ray.search.schedulers import ASHA, Halving, NoScheduler


def halving(**fields: object) -> Halving.Spec:
    return Halving.Spec.model_validate(fields)


def test_a_third_of_the_trials_goes_on_at_a_ninth_and_a_third_of_the_epochs() -> None:
    spec = halving()
    assert spec.survivors(12) == (12, 4, 1)
    assert spec.rung_epochs(18, every=1) == (2, 6)
    assert spec.epochs_known(12, 18, every=1) == 12 * 2 + 4 * 4 + 1 * 12


@pytest.mark.parametrize(
    ("reduction", "num_rungs", "survivors"),
    [(2, 4, (12, 6, 3, 1, 1)), (4, 2, (12, 3, 1)), (12, 1, (12, 1)), (1.5, 2, (12, 8, 5))],
)
def test_one_trial_at_least_trains_to_its_end(
    reduction: float, num_rungs: int, survivors: tuple[int, ...]
) -> None:
    assert halving(reduction=reduction, num_rungs=num_rungs).survivors(12) == survivors


def test_a_rung_is_where_a_probe_is() -> None:
    assert halving(reduction=2, num_rungs=3).rung_epochs(20, every=4) == (4, 8, 12)
    assert halving(reduction=4, num_rungs=2).rung_epochs(3, every=2) == (2, 2)
    assert ASHA.Spec(grace=0.25, reduction=2).rung_epochs(10, every=2) == (4, 6)


def test_what_depends_on_values_is_not_known_beforehand() -> None:
    assert NoScheduler.Spec().epochs_known(12, 18, every=1) == 216
    assert ASHA.Spec().epochs_known(12, 18, every=1) is None
