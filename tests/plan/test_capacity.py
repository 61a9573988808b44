"""Tests of the number of trials that fit on a cluster's nodes."""

from typing import Any

import pytest

from mtcon_ray.plan.capacity import ClusterView, NodeKind, check_cluster
from mtcon_ray.spec.run_spec import parse_spec
from tests import specs

CONCURRENCY = [
    ({"cpus": 1}, [(2, 0, 1)], 2),
    ({"cpus": 2}, [(3, 0, 2), (8, 0, 1)], 6),
    ({"gpus": 1}, [(8, 4, 2)], 8),
    ({"gpus": 0.25}, [(8, 1, 1)], 4),
    # As Ray places them: of 0.16667 it counts 1,666 ten-thousandths, and six of these fit.
    *(({"gpus": g}, [(16, 1, 1)], n) for g, n in ((1 / 6, 6), (0.16667, 6), (1 / 7, 7))),
    *(({"gpus": g}, [(16, 1, 1)], n) for g, n in ((0.33334, 3), (1 / 15, 15), (0.29, 3))),
    ({"workers": 2}, [(3, 0, 1)], 1),
    ({"workers": 4, "gpus": 1}, [(8, 2, 3)], 1),
    # An elastic trial takes as many workers as there are, up to its maximum.
    *(({"workers": [1, 4]}, [(n, 0, 1)], trials) for n, trials in ((2, 1), (8, 2), (9, 3))),
    ({"workers": [2, 4]}, [(5, 0, 1)], 1),
    ({"gpus": 1}, [(8, 4, None)], None),
]


@pytest.mark.parametrize(("resources", "kinds", "expected"), CONCURRENCY)
def test_concurrency_follows_from_the_nodes(resources: Any, kinds: Any, expected: Any) -> None:
    nodes = tuple(NodeKind(f"kind-{i}", *k) for i, k in enumerate(kinds))
    train = {"batch_size": 12}
    spec = parse_spec({**specs.SHORT, "name": "x", "train": train, "resources": resources})
    assert check_cluster(spec, ClusterView("c", nodes)) == expected


def test_no_more_workers_are_counted_than_a_cluster_or_a_sweep_may_have() -> None:
    """The largest nodes count first."""
    kinds = NodeKind("small", 2, 0, 3), NodeKind("large", 8, 0, 1)
    spec = parse_spec({"name": "x"})
    assert check_cluster(spec, ClusterView("c", kinds)) == 14
    assert check_cluster(spec, ClusterView("c", kinds, 2)) == 10
    limited = parse_spec({"name": "x", "search": {"max_concurrent": 3}})
    assert check_cluster(limited, ClusterView("c", kinds)) == 3
