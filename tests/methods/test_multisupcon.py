"""The method MultiSupCon: one head, trained on one label set."""

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.multisupcon import MultiSupCon
from mtcon_ray.spec.problem import Problem
from tests.losses.cases import VALUES, case_c
from tests.losses.test_soft_positives import SETS
from tests.problems import problem


def sets_problem(*tasks: str) -> Problem:
    """Returns a problem with a task of classes and the given label sets."""
    return problem("shape", *tasks, kinds={"shape": "classes"} | dict.fromkeys(tasks, "set"))


def rows_and_batch() -> tuple[dict[str, Tensor], Batch]:
    return {"looks": case_c()}, Batch({}, num_items=4, label_sets={"looks": SETS.to(torch.uint8)})


def test_has_the_values_of_case_c() -> None:
    spec = MultiSupCon.Spec(temperature=0.5, threshold=0.3)
    losses = MultiSupCon(spec, sets_problem("looks"))(*rows_and_batch()).losses
    assert losses["looks"].item() == pytest.approx(VALUES["C_tau0.5_c0.3"]["mean"], rel=1e-6)


def test_its_head_is_the_only_set_or_the_one_it_names() -> None:
    assert MultiSupCon(MultiSupCon.Spec(), sets_problem("looks")).heads == ("looks",)
    both = sets_problem("looks", "tags")
    assert MultiSupCon(MultiSupCon.Spec(task="tags"), both).heads == ("tags",)


def test_the_classes_of_all_tasks_may_be_the_set() -> None:
    """Equal classes in one of two tasks are an overlap of 1/3; a missing class is left out."""
    classes = problem("shape", "colour", sizes={"shape": 2, "colour": 3})
    labels = {"shape": torch.tensor([0, 0, 1, 0]), "colour": torch.tensor([2, 1, 1, -1])}
    sets = [[1, 0, 0, 0, 1], [1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [1, 0, 255, 255, 255]]
    z_by_head, as_sets = rows_and_batch()
    as_sets.label_sets["looks"][:, :5], as_sets.label_sets["looks"][:, 5] = torch.tensor(sets), 0
    method = MultiSupCon(MultiSupCon.Spec(sets_from="classes", threshold=0.3), classes)
    assert method.heads == ("classes",)
    found = method({"classes": z_by_head["looks"]}, Batch(labels, num_items=4)).losses["classes"]
    plain = MultiSupCon(MultiSupCon.Spec(threshold=0.3), sets_problem("looks"))
    expected = plain(z_by_head, as_sets).losses["looks"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
