"""The sizes of a RayCluster's groups, beside those of the reader in Ray's autoscaler."""

from typing import Any

import pytest
from ray.autoscaler._private.kuberay import autoscaling_config

from mtcon_ray.cluster.cluster_file import _of_kuberay

CARD = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("container", "fields"),
    [
        ({"limits": {"cpu": 3}, "requests": {"cpu": 2, CARD: "1"}}, {}),
        ({"limits": {"cpu": "1500m", CARD: 0, "amd.com/gpu": 2}}, {}),
        ({"limits": {"cpu": 4}}, {"rayStartParams": {"num-cpus": "2", "num-gpus": "1"}}),
        ({"limits": {"cpu": 4}}, {"resources": {"CPU": "5", "GPU": "2"}, "numOfHosts": 2}),
    ],
)
def test_a_group_has_the_size_that_the_autoscaler_counts(
    container: dict[str, Any], fields: dict[str, Any]
) -> None:
    template = {"spec": {"containers": [{"resources": container}]}}
    most = {"groupName": "g", "minReplicas": 0, "maxReplicas": 3}
    group = {**most, "rayStartParams": {}, "template": template, **fields}
    spec = {"headGroupSpec": group, "workerGroupSpecs": [group]}
    known = autoscaling_config._generate_available_node_types_from_ray_cr_spec(spec)["g"]
    found = _of_kuberay(spec)["available_node_types"]["g"]
    assert found["max_workers"] == known["max_workers"]
    assert found["resources"] == {n: known["resources"].get(n, 0) for n in ("CPU", "GPU")}
