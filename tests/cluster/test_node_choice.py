"""Choice of the node type for waiting trials by the demand schedulers of the installed Ray."""

from collections import Counter
from functools import partial
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


def launched(config: dict[str, Any], trials: int, monitor: Any = None) -> Counter[str]:
    """Returns nodes by type that autoscaler v2 (the one of `ray up`) adds for waiting trials."""
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    settings = AutoscalingConfig(config, skip_content_hash=True)
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=settings.get_node_type_configs(),
        max_num_nodes=config["max_workers"],
        resource_requests=ResourceRequestUtil.group_by_count(
            [ResourceRequestUtil.make(TRIAL) for _ in range(trials)]
        ),
    )
    if monitor:
        request.cloud_resource_availabilities = monitor.get_resource_availabilities()
        request.recoverable_resource_availabilities = (
            monitor.get_recoverable_resource_availabilities()
        )
    reply = ResourceDemandScheduler().schedule(request)
    return Counter({launch.instance_type: launch.count for launch in reply.to_launch})


def told(status: str) -> Any:
    """Returns Ray's record of unavailable node types after a spot node reached `status`."""
    from ray.autoscaler.v2.instance_manager.subscribers.cloud_resource_monitor import (
        CloudResourceMonitor,
    )
    from ray.core.generated.instance_manager_pb2 import (  # type: ignore[attr-defined]
        Instance,
        InstanceUpdateEvent,
    )

    monitor = CloudResourceMonitor()
    monitor.notify(
        [
            InstanceUpdateEvent(
                instance_type="gpu-spot",
                new_instance_status=Instance.InstanceStatus.Value(status),
            )
        ]
    )
    return monitor


@pytest.mark.parametrize("name", CLOUDS)
def test_spot_comes_first(name: str) -> None:
    assert launched(read(name), 3) == {"gpu-spot": 3}


@pytest.mark.parametrize("name", CLOUDS)
def test_the_priority_decides_and_neither_order_nor_name(name: str) -> None:
    config = read(name)
    config["available_node_types"]["gpu-on-demand"]["priority"] = 20
    assert launched(config, 3) == {"gpu-on-demand": 3}


@pytest.mark.parametrize("name", CLOUDS)
def test_never_more_nodes_than_the_file_allows(name: str) -> None:
    assert sum(launched(read(name), 30).values()) == read(name)["max_workers"]


@pytest.mark.parametrize("name", CLOUDS)
def test_on_demand_follows_when_spot_nodes_do_not_come_up(name: str) -> None:
    """A promised machine did not arrive in time; its type recovers over ten minutes."""
    assert launched(read(name), 3, told("ALLOCATION_TIMEOUT")) == {"gpu-on-demand": 3}


@pytest.mark.parametrize("name", CLOUDS)
def test_a_refused_launch_is_tried_again_as_spot(name: str) -> None:
    """This is a limit of Ray, named in cluster/README.md; if this fails, Ray has got a fallback."""
    assert launched(read(name), 3, told("ALLOCATION_FAILED")) == {"gpu-spot": 3}


@pytest.mark.parametrize("name", CLOUDS)
def test_the_first_autoscaler_has_the_same_order(name: str) -> None:
    """Autoscaler v1 has no priorities: of equal types it takes the one whose name sorts last."""
    from ray.autoscaler._private.node_provider_availability_tracker import NodeAvailabilitySummary
    from ray.autoscaler._private.resource_demand_scheduler import (
        _default_utilization_scorer,
        get_nodes_for,
    )
    from ray.autoscaler._private.util import prepare_config

    config = prepare_config(read(name))
    score = partial(
        _default_utilization_scorer, node_availability_summary=NodeAvailabilitySummary({})
    )
    nodes, left = get_nodes_for(
        config["available_node_types"],
        {},
        "head",
        8,
        [TRIAL] * 3,  # type: ignore[list-item]
        utilization_scorer=score,
    )
    assert (dict(nodes), left) == ({"gpu-spot": 3}, [])
