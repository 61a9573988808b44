"""The functions for people with their own training loop."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import mtcon, nt_xent, supcon

VALUES = json.loads((Path(__file__).parents[1] / "unit_values.json").read_text())


def case_a() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rows [B, V, 2] and labels of tasks "1" and "2"."""
    z_by_task, labels_by_task = {}, {}
    for i, degrees_VB in enumerate(VALUES["A"]["angles_by_head"]):
        angle_BV = torch.tensor(degrees_VB, dtype=torch.float64).T.deg2rad()
        z_by_task[str(i + 1)] = torch.stack([angle_BV.cos(), angle_BV.sin()], dim=2)
        labels_by_task[str(i + 1)] = torch.tensor(VALUES["A"]["labels_by_task"][i])
    return z_by_task, labels_by_task


@pytest.mark.parametrize("tau", ["0.1", "0.5", "1.0"])
def test_values_of_case_a(tau: str) -> None:
    z_by_task, labels_by_task = case_a()
    known, temperature = VALUES[f"A_tau{tau}"], float(tau)
    total = mtcon(z_by_task, labels_by_task, temperature=temperature)
    assert total.item() == pytest.approx(known["mtcon_s_mean"], rel=1e-6)
    sums = 0.0
    for task, z in z_by_task.items():
        loss = nt_xent(z, temperature=temperature)
        assert loss.item() == pytest.approx(known[f"ntxent_head{task}_mean"], rel=1e-6)
        loss = supcon(z, labels_by_task[task], temperature=temperature)
        assert loss.item() == pytest.approx(known[f"supcon_t{task}_mean"], rel=1e-6)
        sums += supcon(z, labels_by_task[task], temperature=temperature, reduction="sum").item()
    assert sums == pytest.approx(known["mtcon_s_sum"], rel=1e-6)


@pytest.mark.parametrize("key", ["(0.0, 0.0)", "(0.5, -0.25)", "(1.656676, 2.523566)"])
def test_weighted_values_of_case_a(key: str) -> None:
    z_by_task, labels_by_task = case_a()
    s = [torch.tensor(float(x), dtype=torch.float64) for x in key.strip("()").split(",")]
    total = mtcon(z_by_task, labels_by_task, temperature=0.1, log_variance={"1": s[0], "2": s[1]})
    assert total.item() == pytest.approx(VALUES[f"A_weighted_s={key}"]["mtcon"], rel=1e-6)


def test_values_of_case_b() -> None:
    angle_BV = torch.tensor(VALUES["B"]["angles"], dtype=torch.float64).T.deg2rad()
    z = torch.stack([angle_BV.cos(), angle_BV.sin()], dim=2)
    labels = torch.tensor(VALUES["B"]["labels"])
    assert supcon(z, labels, temperature=0.1).item() == pytest.approx(
        VALUES["B"]["mean_valid"], 1e-6
    )
    over_all = supcon(z, labels, temperature=0.1, average_over="all")
    assert over_all.item() == pytest.approx(VALUES["B"]["mean_all"], rel=1e-6)
    per_anchor = supcon(z, labels, temperature=0.1, reduction="none")
    assert per_anchor.flatten().tolist() == pytest.approx(VALUES["B"]["per_anchor"], rel=1e-6)


def test_missing_label_is_skipped_or_keeps_its_own_views() -> None:
    z_by_task, labels_by_task = case_a()
    z, labels = z_by_task["1"], labels_by_task["1"].clone()
    labels[0] = -1
    skipped = supcon(z, labels, temperature=0.5, reduction="none")
    kept = supcon(z, labels, temperature=0.5, reduction="none", missing="self_only")
    own = nt_xent(z, temperature=0.5, reduction="none")
    assert skipped[0].tolist() == [0, 0]
    torch.testing.assert_close(kept[0], own[0])
    assert torch.equal(kept[1:], skipped[1:])


def test_bad_arguments_raise() -> None:
    z = torch.ones(2, 2, 2)
    with pytest.raises(ValueError, match=r"labels must have shape \[2\], got \[4\]"):
        supcon(z, torch.zeros(4, dtype=torch.long), temperature=0.1)
    with pytest.raises(ValueError, match="missing must be 'skip' or 'self_only', got 'drop'"):
        supcon(z, torch.zeros(2, dtype=torch.long), temperature=0.1, missing="drop")
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        nt_xent(z, temperature=0)
