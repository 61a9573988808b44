"""Soft positives against pairs compared one by one, and the reference values of case C."""

import math

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from mtcon_ray.losses import multisupcon
from mtcon_ray.losses.positives import LabelSets
from tests.losses.cases import VALUES, case_c, contrastive, random_rows, reference, weight_of_sets

SETS = torch.tensor([[*map(int, row)] for row in ("111000", "110100", "000011", "111010")])
bits = st.lists(st.sampled_from([-1, 0, 0, 1, 1]), min_size=3, max_size=3)
percents = st.sampled_from([0, 10, 30, 50, 67, 100])
exhaustively = settings(deadline=None, derandomize=True, max_examples=80)


@pytest.mark.parametrize("c", ["0.0", "0.1", "0.3", "0.5", "1.0"])
@pytest.mark.parametrize("tau", ["0.1", "0.5", "0.07"])
def test_case_c(tau: str, c: str) -> None:
    known = VALUES[f"C_tau{tau}_c{c}"]
    z_BVD = case_c()
    mean, total, none = (
        multisupcon(z_BVD, SETS, reduction=reduction, temperature=float(tau), threshold=float(c))
        for reduction in ("mean", "sum", "none")
    )
    assert mean.item() == pytest.approx(known["mean"], rel=1e-6)
    assert total.item() == pytest.approx(known["sum"], rel=1e-6)
    assert none.shape == (4, 2)
    assert none.sum().item() == pytest.approx(known["sum"], rel=1e-6)


@exhaustively
@given(sets=st.lists(bits, min_size=1, max_size=6), V=st.integers(1, 3), percent=percents)
def test_sets_lose_what_the_equation_says(sets: list[list[int]], V: int, percent: int) -> None:
    assume(len(sets) * V > 1)
    z_BVD = random_rows(len(sets), V, 3, seed=0)

    def weight_of(h: int, i: int, j: int) -> float | None:
        return weight_of_sets(sets[i], sets[j], percent)

    expected_1N, _ = reference(z_BVD[None], weight_of, z_BVD.new_tensor([0.2]))
    for coded in (torch.tensor(sets), torch.tensor(sets).to(torch.uint8)):  # -1 becomes 255
        relation = LabelSets(coded, threshold=percent / 100)
        found_BV = contrastive(z_BVD, relation, temperature=0.2, reduction="none")
        torch.testing.assert_close(found_BV.flatten(), expected_1N[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("L", [3, 50, 1000])
def test_every_fraction_of_a_union_is_compared_as_whole_numbers(L: int) -> None:
    whole = torch.ones(1, L, dtype=torch.uint8)
    for size in {1, L // 3, 2 * L // 3, L - 1}:
        part = (torch.arange(L) < size).to(torch.uint8)[None]
        relation = LabelSets(torch.cat([whole, part]), threshold=size / L)
        assert relation.degrees(random_rows(2, 1, 3, seed=0)[None]).count_HB.tolist() == [[1, 1]]


BAD = [
    ({"threshold": 1.5}, r"threshold must lie in \[0, 1\], got 1.5"),
    ({"label_sets": SETS[0]}, r"label_sets must have shape \[4, L\], got \[6\]"),
    ({"label_sets": SETS * 2}, "label_sets must hold 0, 1 or what is unknown, got 2"),
    ({"label_sets": SETS * math.nan}, "label_sets must hold .* got nan"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_input_is_named(changes: dict[str, object], message: str) -> None:
    good = {"label_sets": SETS, "temperature": 0.1, "threshold": 0.5}
    with pytest.raises(ValueError, match=message):
        multisupcon(case_c(), **{**good, **changes})  # type: ignore[arg-type]
