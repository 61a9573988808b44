"""Two workers agree with one: heads with batch norm, teachers, queues, and chunks of a batch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.training.distributed import ALONE, Ranks
from tests.training.ranks import in_ranks, two_updates

VIT = {"name": "vit", "patch": 4, "width": 16, "depth": 3, "heads": 2}
RESNET = {"name": "resnet18", "stem": "small"}
PROJECTOR = {"dim": 4, "hidden": 8}
PREDICTOR = {**PROJECTOR, "predictor_hidden": 5}
AMCL = {"name": "amcl", "queue_size": 16, "tau_min": 0.05, **PREDICTOR}
WHOLE: dict[str, dict[str, Any]] = {
    "resnet": {"name": "mtcon", "temperature": 0.2},
    "barlow": {"name": "barlow", **PROJECTOR},
    **{f"amcl-{form}": {**AMCL, "form": form} for form in ("moco", "simsiam", "barlow")},
}
# Each worker has a chunk of three items and a chunk of one item.
CHUNKED: dict[str, dict[str, Any]] = {
    "mtcon": {"name": "mtcon"},
    "supcon": {"name": "supcon", "task": "shape"},
    "simclr": {"name": "simclr"},
    "lgp": {"name": "lgp", "masked_share": 0.1},  # the phase without masks and their randomness
}


def updated(case: str, ranks: Ranks) -> dict[str, Tensor]:
    if case in WHOLE:
        encoder = RESNET if case == "resnet" else {"name": "small", "width": 4}
        return two_updates(ranks, WHOLE[case], encoder)
    return two_updates(ranks, CHUNKED[case], VIT, "local", None if ranks == ALONE else 3)


def all_updates(ranks: Ranks) -> dict[str, dict[str, Tensor]]:
    return {case: updated(case, ranks) for case in (*WHOLE, *CHUNKED)}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """Returns the results of two processes, which start once."""
    return in_ranks(all_updates, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("case", [*WHOLE, *CHUNKED])
def test_two_workers_agree_with_one(case: str, pair: list[dict[str, dict[str, Tensor]]]) -> None:
    """And with each other."""
    expected = updated(case, ALONE)
    first, second = (found[case] for found in pair)
    assert first.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-8, atol=1e-10, msg=name)
