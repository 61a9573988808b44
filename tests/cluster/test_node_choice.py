"""Choice of the node type for waiting trials by the demand scheduler of the installed Ray."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.ray
CLUSTER = Path(__file__).parents[2] / "cluster"
CLOUDS = ["aws.yaml", "gcp.yaml"]
TRIAL = {"CPU": 4.0, "GPU": 1.0}


def read(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((CLUSTER / name).read_text(encoding="utf-8"))
    return raw


def launched(config: dict[str, Any], trials: int) -> Counter[str]:
    """Returns nodes by type that autoscaler v2 (the one of `ray up`) adds for waiting trials."""
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    if version("ray").startswith("2.55."):
        pytest.skip("the autoscaler of Ray 2.55 knows no priorities of node types")

    settings = AutoscalingConfig(config, skip_content_hash=True)
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=settings.get_node_type_configs(),
        max_num_nodes=config["max_workers"],
        resource_requests=ResourceRequestUtil.group_by_count(
            [ResourceRequestUtil.make(TRIAL) for _ in range(trials)]
        ),
    )
    reply = ResourceDemandScheduler().schedule(request)
    return Counter({launch.instance_type: launch.count for launch in reply.to_launch})


@pytest.mark.parametrize("name", CLOUDS)
def test_spot_comes_first_and_never_more_nodes_than_the_file_allows(name: str) -> None:
    config = read(name)
    assert launched(config, 3) == {"gpu-spot": 3}
    added = launched(config, 30)
    assert added["gpu-spot"] == config["available_node_types"]["gpu-spot"]["max_workers"]
    assert added.total() == config["max_workers"]
