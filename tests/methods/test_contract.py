"""What every registered method must do; a new file in methods/ is tested here by itself."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods import METHODS, Method, MethodSpec

TASKS = ("type", "heel.height", "colour")
# Values for the fields that a method requires beyond its name.
REQUIRED = {"task": "heel.height"}

pytestmark = pytest.mark.parametrize("name", list(METHODS))


def make_spec(name: str) -> MethodSpec:
    fields = METHODS[name].Spec.model_fields.items()
    required = {key: REQUIRED[key] for key, field in fields if field.is_required()}
    return METHODS[name].Spec.model_validate({**required, "name": name})


def make_method(name: str) -> Method:
    return METHODS[name](make_spec(name), TASKS)


def make_rows(method: Method) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = {head: torch.randn(6, 2, 4, generator=generator) for head in method.heads}
    return {h: torch.nn.functional.normalize(z, dim=2).requires_grad_() for h, z in rows.items()}


def make_batch(missing: str | None = None) -> Batch:
    """Six items, labels here and there unknown, or those of one task all unknown."""
    labels = {
        "type": torch.tensor([0, 1, 0, 1, -1, 2]),
        "heel.height": torch.tensor([1, 1, -1, 0, 0, 1]),
        "colour": torch.tensor([2, -1, 2, 0, 0, 2]),
    }
    if missing is not None:
        labels[missing] = torch.full((6,), -1)
    return Batch(labels, num_items=6)


def test_names_its_heads_once(name: str) -> None:
    heads = make_method(name).heads
    assert heads
    assert len(set(heads)) == len(heads)


def test_spec_survives_a_round_trip_and_is_closed(name: str) -> None:
    spec = make_spec(name)
    assert spec.name == name
    assert METHODS[name].Spec.model_validate(spec.model_dump()) == spec
    assert METHODS[name].Spec.model_validate_json(spec.model_dump_json()) == spec
    with pytest.raises(ValidationError, match="tempertaure"):
        METHODS[name].Spec.model_validate({**spec.model_dump(), "tempertaure": 0.1})
    spec.check_tasks(TASKS)


def test_every_field_is_described(name: str) -> None:
    fields = {k: f for k, f in METHODS[name].Spec.model_fields.items() if k != "name"}
    assert [k for k, field in fields.items() if not field.description] == []


@pytest.mark.parametrize("missing", [None, *TASKS])
def test_losses_and_gradients_are_finite(name: str, missing: str | None) -> None:
    method = make_method(name)
    z_by_head = make_rows(method)
    loss_by_head = method(z_by_head, make_batch(missing))
    assert tuple(loss_by_head) == method.heads
    assert all(loss.shape == () for loss in loss_by_head.values())
    objective, weight_by_task = method.weighting(loss_by_head)
    objective.backward()
    assert objective.isfinite()
    assert tuple(weight_by_task) == method.heads
    assert set(method.weighting.sigma_by_task()) <= set(method.heads)
    learned = [*z_by_head.values(), *method.parameters()]
    assert all(x.grad is not None and x.grad.isfinite().all() for x in learned)
    assert any((z.grad != 0).any() for z in z_by_head.values() if z.grad is not None) or (
        missing is not None and len(method.heads) == 1
    )


def test_the_order_of_items_changes_nothing(name: str) -> None:
    method, batch = make_method(name), make_batch()
    z_by_head, order = make_rows(method), torch.tensor([3, 5, 0, 1, 4, 2])
    moved = Batch({task: labels[order] for task, labels in batch.labels.items()}, 6)
    losses = method(z_by_head, batch)
    moved_losses = method({head: z[order] for head, z in z_by_head.items()}, moved)
    for head in method.heads:
        torch.testing.assert_close(moved_losses[head], losses[head])


def test_temperature_divides_the_similarities(name: str) -> None:
    """Halving it is as good as doubling every similarity."""
    spec, batch = make_spec(name), make_batch()
    halved = type(spec).model_validate({**spec.model_dump(), "temperature": spec.temperature / 2})
    method, sharper = METHODS[name](spec, TASKS), METHODS[name](halved, TASKS)
    z_by_head = make_rows(method)
    longer = {head: z * 2**0.5 for head, z in z_by_head.items()}
    for head in method.heads:
        expected = method(longer, batch)[head]
        torch.testing.assert_close(sharper(z_by_head, batch)[head], expected)


def test_state_is_restored(name: str) -> None:
    method, other = make_method(name), make_method(name)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.5)
    other.load_state_dict(method.state_dict())
    batch = make_batch()
    losses = method(make_rows(method), batch)
    assert method.weighting(losses).objective.equal(other.weighting(losses).objective)
