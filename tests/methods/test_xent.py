"""The method cross-entropy: one task or all, equal or Kendall's weights, classifiers."""

from typing import Any

import pytest
import torch

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.weighting import LearnedVariance
from mtcon_ray.methods.xent import XEnt
from mtcon_ray.models.encoders.small import Small
from tests.losses.cases import TASKS, VALUES
from tests.problems import problem

# Inputs of case G, whose values are in unit_values.json.
LOGITS = {
    "shape": [[2, 0, -1], [0.5, 0.5, 0.5], [0, 3, 1], [1, 1, 2]],
    "colour": [[1, -1], [0, 0], [-2, 1], [0.3, 0.1]],
}
LABELS = {"shape": [0, 1, 1, 2], "colour": [0, 1, 1, 1]}


def method_of(**fields: Any) -> XEnt:
    return XEnt(XEnt.Spec.model_validate(fields), problem(*TASKS, sizes={"shape": 3, "colour": 2}))


def test_values_of_case_g() -> None:
    z_by_head = {task: torch.tensor(rows).double()[:, None] for task, rows in LOGITS.items()}
    batch = Batch({task: torch.tensor(labels) for task, labels in LABELS.items()}, 4)
    plain, kendall = method_of(), method_of(weighting="kendall").double()
    losses = plain(z_by_head, batch).losses
    known = {"shape": VALUES["G"]["ce1"], "colour": VALUES["G"]["ce2"]}
    assert {t: loss.item() for t, loss in losses.items()} == pytest.approx(known, rel=1e-6)
    objective = plain.weighting(losses).objective.item()
    assert objective == pytest.approx(VALUES["G"]["unweighted"], rel=1e-6)
    assert isinstance(kendall.weighting, LearnedVariance)
    with torch.no_grad():
        kendall.weighting.log_variance.copy_(torch.tensor([0.5, -0.25]))
    objective = kendall.weighting(kendall(z_by_head, batch).losses).objective.item()
    assert objective == pytest.approx(VALUES["G"]["kendall_s"], rel=1e-6)


def test_classifiers_have_an_output_per_class_and_no_norm() -> None:
    network = method_of().make_network(Small(Small.Spec(width=4)))
    assert network.probed is None
    assert all(type(head) is torch.nn.Linear for head in network.heads)
    rows = network.apply_heads(torch.ones(2, 32))
    assert {t: tuple(z.shape) for t, z in rows.items()} == {"shape": (2, 3), "colour": (2, 2)}


def test_label_sets_are_left_out() -> None:
    mixed = problem("shape", "tags", kinds={"tags": "set", "shape": "classes"})
    XEnt.Spec().check(mixed)
    assert XEnt(XEnt.Spec(), mixed).heads == ("shape",)


def test_tasks_that_it_cannot_train_on_are_refused() -> None:
    for spec, message in ((XEnt.Spec(task="tags"), "tags"), (XEnt.Spec(), "data.tasks")):
        with pytest.raises(ValueError, match=message):
            spec.check(problem("tags", kinds={"tags": "set"}))


def test_a_hidden_layer_ends_in_an_embedding_as_wide_as_a_projection_head() -> None:
    method = method_of(head="hidden")
    head = method.make_head("shape", 16)
    assert head[0](torch.ones(4, 16)).shape == (4, method.problem.head_dim)  # type: ignore[index]
    assert head(torch.ones(4, 16)).shape == (4, 3)
