"""The method SupCon, which trains on one task and ignores the others."""

import pytest
import torch

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import supcon
from mtcon_ray.methods.supcon import SupCon
from tests.problems import problem

TASKS = ("shape", "colour")


def test_loss_is_that_of_its_task_alone() -> None:
    method = SupCon(SupCon.Spec(task="colour", temperature=0.3), problem(*TASKS))
    z_BVD = torch.nn.functional.normalize(
        torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0)), dim=2
    )
    labels = {"shape": torch.tensor([0, 0, 1, 1]), "colour": torch.tensor([0, 1, 0, -1])}
    losses = method({"colour": z_BVD}, Batch(labels, 4)).losses
    assert method.heads == ("colour",)
    assert losses == {"colour": supcon(z_BVD, labels["colour"], temperature=0.3)}


def test_its_task_must_be_one_of_the_tasks() -> None:
    with pytest.raises(ValueError, match=r"data.tasks .* got 'color'; did you mean 'colour'"):
        SupCon.Spec(task="color").check(problem(*TASKS))
