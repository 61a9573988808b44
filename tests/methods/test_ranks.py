"""Two workers agree with one: heads with batch norm, teachers, queues, and chunks of a batch."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.step import update
from tests.problems import problem
from tests.training.ranks import LABELS, in_ranks, learner_on

NUM_ITEMS = 8
VIT = {"name": "vit", "patch": 4, "width": 16, "depth": 3, "heads": 2}
SMALL = {"name": "small", "width": 4}
PROJECTOR = {"dim": 4, "hidden": 8}
PREDICTOR = {**PROJECTOR, "predictor_hidden": 5}
AMCL = {"name": "amcl", "queue_size": 16, "tau_min": 0.05, **PREDICTOR}
WHOLE: dict[str, dict[str, Any]] = {
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


def two_updates(case: str, ranks: Ranks) -> dict[str, Tensor]:
    """Returns the state of all modules after two updates, and the losses."""
    method, encoder, batch_norm = {**WHOLE, **CHUNKED}[case], SMALL, "global"
    if case in CHUNKED:
        encoder, batch_norm = VIT, "local"
    known = problem(*LABELS, batch_size=NUM_ITEMS, encoder=encoder["name"])
    learner = learner_on(ranks, method, known, encoder, batch_norm)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 2 * NUM_ITEMS, 3, 16, 16, generator=generator, dtype=torch.float64)
    batch, kept = Batch({t: torch.tensor(y) for t, y in LABELS.items()}, NUM_ITEMS), {}
    for step in range(2):
        views: Any = x[step, ranks.share(2 * NUM_ITEMS)]
        if case in CHUNKED and ranks != ALONE:
            views = [partial(torch.clone, part) for part in views.split(2 * 3)]
        done = update(learner, views, batch, lr=0.05, step=step + 2, num_steps=9)
        kept[f"loss {step}"] = done.objective
    modules = {"network": learner.network, "method": learner.method, "teacher": learner.teacher}
    for part, module in modules.items():
        if module is not None:
            kept |= {f"{part} {name}": value for name, value in module.state_dict().items()}
    return kept


def all_updates(ranks: Ranks) -> dict[str, dict[str, Tensor]]:
    return {case: two_updates(case, ranks) for case in (*WHOLE, *CHUNKED)}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """Returns the results of two processes, which start once."""
    return in_ranks(all_updates, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("case", [*WHOLE, *CHUNKED])
def test_two_workers_agree_with_one_and_with_each_other(
    case: str, pair: list[dict[str, dict[str, Tensor]]]
) -> None:
    expected = two_updates(case, ALONE)
    first, second = (found[case] for found in pair)
    assert first.keys() == expected.keys()
    less = 0.1 if case in CHUNKED else 1.0
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=less * 1e-7, atol=less * 1e-9, msg=name)
