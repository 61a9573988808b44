"""The public loss functions: reference values, options, other libraries, invalid input."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import mtcon, multisupcon, nt_xent, small_batch, supcon
from tests.losses.cases import VALUES, case_a, random_rows


@pytest.mark.parametrize("tau", ["0.1", "0.5", "1.0"])
def test_values_of_case_a(tau: str) -> None:
    z_by_task, labels_by_task = case_a("1", "2")
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


def test_none_gives_each_anchor_and_the_temperatures_of_tasks_may_differ() -> None:
    z_by_task, labels_by_task = case_a("1", "2")
    total = mtcon(z_by_task, labels_by_task, temperature={"1": 0.1, "2": 0.5})
    means = []
    for task, tau in (("1", "0.1"), ("2", "0.5")):
        known = VALUES[f"A_tau{tau}"][f"per_anchor_t{task}"]
        of_task = z_by_task[task], labels_by_task[task]
        each = supcon(*of_task, temperature=float(tau), reduction="none")
        assert each.T.flatten().tolist() == pytest.approx(known, rel=1e-6)
        means.append(VALUES[f"A_tau{tau}"][f"supcon_t{task}_mean"])
    assert total.item() == pytest.approx(sum(means), rel=1e-6)


@pytest.mark.parametrize("most_pairs", [0, 2**20])
@pytest.mark.parametrize("weighted", [False, True])
def test_tasks_of_any_shape_and_type_with_labels_missing_are_the_sum_of_each(
    weighted: bool, most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks a and b share one computation; unknown labels leave anchors without positives."""
    monkeypatch.setattr(small_batch, "MOST_PAIRS", most_pairs)
    shapes = dict.fromkeys("ab", (6, 2, 4))
    shapes |= {"wide": (6, 2, 8), "many": (9, 2, 4), "fine": (6, 2, 4)}
    z: dict[str, Tensor] = {}
    labels: dict[str, Tensor] = {}
    s: dict[str, Tensor] = {}
    for seed, (task, shape) in enumerate(shapes.items()):
        rows = random_rows(*shape, seed=seed)
        z[task] = (rows if task == "fine" else rows.float()).requires_grad_()
        labels[task] = torch.arange(shape[0]) % 3
        labels[task][2] = -1
        s[task] = torch.tensor(0.3 * seed)
    together = mtcon(z, labels, temperature=0.2, log_variance=s if weighted else None)
    assert together.shape == ()
    each = [supcon(z[t], labels[t], temperature=0.2).double() for t in z]
    if weighted:
        each = [loss * torch.exp(-s[t]) + s[t] for loss, t in zip(each, z, strict=True)]
    alone = torch.stack(each).sum()
    assert together.item() == pytest.approx(alone.item(), rel=1e-6)
    ours, theirs = (torch.autograd.grad(loss, list(z.values())) for loss in (together, alone))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_labels_may_be_of_any_type_of_whole_numbers(dtype: torch.dtype) -> None:
    """The largest value of a dtype is a label, also 255 in uint8, which is -1 there."""
    z = random_rows(4, 2, 3, seed=0)
    most = torch.iinfo(dtype).max
    labels = torch.tensor([most, most, 3, 3], dtype=dtype)
    plain = supcon(z, torch.tensor([1, 1, 3, 3]), temperature=0.5)
    assert supcon(z, labels, temperature=0.5).item() == plain.item()


WRONG = [
    ({"labels": torch.zeros(4).long()}, r"labels must have shape \[2\], got \[4\]"),
    ({"labels": torch.zeros(2)}, r"integer dtype, got torch.float32; use labels.long"),
    ({"labels": torch.ones(2) > 0}, r"integer dtype, got torch.bool; use labels.long"),
    ({"labels": torch.tensor([0, -2])}, r"labels must be at least -1 .* got -2 at item 1"),
    ({"temperature": 0}, "temperature must be positive, got 0"),
    ({"temperature": math.inf}, "temperature must be positive, got inf"),
    ({"z": torch.ones(2, 2, 2).long()}, "z must be of a floating-point dtype, got torch.int64"),
    ({"z": torch.ones(2, 2)}, r"z must have shape \[B, V, D\], got \[2, 2\]"),
    ({"z": torch.ones(1, 1, 2), "labels": torch.tensor([0])}, "z must hold at least two rows"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_wrong_is_named_with_its_value(arguments: dict[str, Any], message: str) -> None:
    good = {"z": torch.ones(2, 2, 2), "labels": torch.zeros(2).long(), "temperature": 0.1}
    with pytest.raises(ValueError, match=message):
        supcon(**{**good, **arguments})


LABELS, SETS = torch.tensor([0, 0, 1, -1]), torch.tensor([[1, 0], [1, 1], [0, 1], [0, 0]])
Z_BVD = case_a("1", "2")[0]["1"]


def of_two_tasks(z: Tensor, temperature: Any) -> Any:
    z_by_task, labels = {"1": torch.ones_like(z), "2": z}, {"1": LABELS, "2": LABELS}
    return mtcon(z_by_task, labels, temperature=temperature)


CALLS: dict[str, Callable[[Tensor, Any], Any]] = {
    "nt_xent": lambda z, t: nt_xent(z, temperature=t),
    "supcon": lambda z, t: supcon(z, LABELS, temperature=t),
    "mtcon": of_two_tasks,
    "mtcon of tasks": lambda z, t: of_two_tasks(z, {"1": 0.1, "2": t}),
    "multisupcon": lambda z, t: multisupcon(z, SETS, temperature=t, threshold=0.3),
    "anchors": lambda z, t: supcon(z, LABELS, temperature=t, reduction="none").sum(),
}


@pytest.mark.parametrize("most_pairs", [0, 2**20])
@pytest.mark.parametrize("bad_entry", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", CALLS)
def test_one_entry_that_is_not_finite_is_found(
    name: str, bad_entry: float, most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batch, "MOST_PAIRS", most_pairs)
    z = torch.ones(4, 2, 3)
    CALLS[name](z, 0.1)
    z[2, 1, 1] = bad_entry
    with pytest.raises(ValueError, match=r"z must be finite, got 1 of (24|48) entries nan or inf"):
        CALLS[name](z, 0.1)


def test_a_log_variance_has_one_element_with_or_without_a_dimension() -> None:
    """[T, 1] would broadcast against the losses [T]."""
    given, s = case_a("1", "2"), torch.tensor(0.5)
    both = [{"1": s, "2": each} for each in (s, s[None])]
    losses = [mtcon(*given, temperature=0.1, log_variance=each) for each in both]
    assert losses[0] == losses[1]
    message = r"log_variance\['2'\] must be a number or have one element, got shape \[2\]"
    with pytest.raises(ValueError, match=message):
        mtcon(*given, temperature=0.1, log_variance={"1": s, "2": torch.zeros(2)})


def test_a_task_without_labels_adds_no_log_variance() -> None:
    z, labels = case_a("1", "2")
    labels["2"] = torch.full_like(labels["2"], -1)
    s = {task: torch.tensor(0.5).double().requires_grad_() for task in z}
    loss = mtcon(z, labels, temperature=0.1, log_variance=s)
    alone = supcon(z["1"], labels["1"], temperature=0.1)
    assert loss.item() == pytest.approx(alone.item() * math.exp(-0.5) + 0.5)
    of_task_1, of_task_2 = torch.autograd.grad(loss, list(s.values()))
    assert of_task_1 != 0
    assert of_task_2 == 0


@pytest.mark.parametrize("name", CALLS)
def test_temperatures_that_are_tensors_are_checked_too(name: str) -> None:
    where = r"temperature\['2'\]" if name == "mtcon of tasks" else "temperature"
    for wrong in (-0.5, 0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"^{where} must be positive, got {wrong}$"):
            CALLS[name](Z_BVD, torch.tensor(wrong))
    with pytest.raises(ValueError, match=rf"^{where} must be a number or .*, got shape \[2\]$"):
        CALLS[name](Z_BVD, torch.ones(2))


@pytest.mark.parametrize("name", CALLS)
def test_a_temperature_may_be_a_tensor_with_one_element_and_a_gradient(name: str) -> None:
    t = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    loss = CALLS[name](Z_BVD, t)
    assert loss.shape == ()
    assert loss == CALLS[name](Z_BVD, torch.tensor(0.5, dtype=torch.float64))
    assert torch.autograd.grad(loss, t)[0] != 0


def test_tasks_must_agree() -> None:
    z, labels = {"a": torch.ones(2, 2, 2)}, {"b": torch.zeros(2).long()}
    with pytest.raises(ValueError, match=r"labels_by_task must have the tasks .*'a'.* got \['b'\]"):
        mtcon(z, labels, temperature=0.1)
    with pytest.raises(ValueError, match=r"temperature must have the tasks .* got \[\]"):
        mtcon(z, {"a": labels["b"]}, temperature={})
    with pytest.raises(ValueError, match="at least one task, got none"):
        mtcon({}, {}, temperature=0.1)
