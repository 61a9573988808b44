"""The exchange of a step in the plan, compared with real steps of two ranks."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from mtcon_ray.display.plan_text import plan_lines
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.plan import networks
from mtcon_ray.plan.local import this_machine
from mtcon_ray.plan.planning import Rates, exchange_times
from mtcon_ray.plan.traffic import step_exchange
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.testing import start
from mtcon_ray.training.distributed import Ranks
from tests.methods import cases
from tests.plans import plan_of
from tests.training.ranks import in_ranks

# Global batch norm exchanges moments, which the plan does not count.
TWO = {"model.batch_norm": "local", "train.precision": "bfloat16", "resources.workers": [1, 2]}
# Learned weights, a teacher, errors of patches, parameters without a gradient, triplets.
METHODS = ("mtcon", "amcl-moco", "can", "lgp", "simsiam", "csn")


def spec_of(name: str) -> RunSpec:
    return with_values(cases.make_spec(name, steps=1), TWO)


def exchanged(folder: Path, ranks: Ranks) -> list[list[int]]:
    """Returns the mean bytes of floats that the steps of each method gather and reduce."""
    means = []
    for name in METHODS:
        run: Any = start(spec_of(name), folder / f"{ranks.rank}", folder / name, ranks=ranks)
        run.learner.forward.register_comm_hook(None, allreduce_hook)
        kinds = "all_gather_into_tensor", "all_reduce"
        with patch.multiple(dist, **{k: Mock(wraps=getattr(dist, k)) for k in kinds}):
            list(run)
            of = [[call.args[0] for call in getattr(dist, k).call_args_list] for k in kinds]
        means.append([sum(x.nbytes for x in xs if x.is_floating_point()) // run.step for xs in of])
    return means


@pytest.mark.slow
def test_a_step_exchanges_the_bytes_of_the_plan(tmp_path: Path) -> None:
    plans = [plan_of(spec_of(name), tmp_path, this_machine()).exchange for name in METHODS]
    expected = [[plan["gathered"], plan["reduced"]] for plan in plans]
    assert in_ranks(partial(exchanged, tmp_path), 2, tmp_path) == [expected, expected]


def test_a_ring_sends_each_part_to_all_but_one_worker() -> None:
    """Of 4 workers: 3/4 of the 400 gathered bytes and twice 3/4 of the 80 reduced bytes."""
    assert step_exchange(4, 100, 20) == {"gathered": 400, "reduced": 80, "sent": 420}
    spec = spec_of("mtcon")
    plan = plan_of(spec, Path("/root-of-test"), this_machine(), rates=Rates(100.0, 1.0, 1.0))
    seconds, step = plan.exchange["sent"] / 1e3, spec.train.batch_size / 2 / 100
    times = exchange_times(spec, plan, bandwidth=1e-6)
    assert times == pytest.approx({"seconds": seconds, "share": seconds / (seconds + step)})
    plan.exchange.update(seconds=0.0125, share=0.254)
    text = f"2 workers sends {plan.exchange['sent']:,} in rings, in 0.0125 s, at most 25% of a step"
    assert text in "\n".join(plan_lines(spec, plan))


def test_a_frozen_network_reduces_the_parameters_of_its_method(tmp_path: Path) -> None:
    """These are the weights of two tasks."""

    def frozen(*given: Any, **store: Any) -> Network:
        return build_network(*given, **store).requires_grad_(False)

    with patch.object(networks, "build_network", frozen):
        plan = plan_of(spec_of("mtcon"), tmp_path, this_machine())
    assert plan.exchange["reduced"] == 2 * 4
