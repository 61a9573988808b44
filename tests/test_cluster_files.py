"""Tests of the cluster files against Ray's schema, preparation and demand scheduler.

aws.yaml and gcp.yaml are not checked beyond Ray's own preparation, since the provider's (images,
networks, keys) needs credentials of the cloud.
"""

import re
import tomllib
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.plan.capacity import check_cluster
from mtcon_ray.spec.run_spec import parse_spec

pytestmark = pytest.mark.ray
REPOSITORY = Path(__file__).parent.parent
CLUSTER = REPOSITORY / "cluster"
CLOUDS = ["aws.yaml", "gcp.yaml"]
REMOTE = [*CLOUDS, "on-prem.yaml"]
clouds = pytest.mark.parametrize("config", CLOUDS, indirect=True)
remote = pytest.mark.parametrize("config", REMOTE, indirect=True)


def read(name: str) -> Any:
    """Returns a cluster file as plain data."""
    return yaml.safe_load((CLUSTER / name).read_text(encoding="utf-8"))


@pytest.fixture
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Returns a cluster file. Skips a file with priorities on a Ray that refuses them."""
    found: dict[str, Any] = read(request.param)
    if version("ray").startswith("2.55.") and "priority" in str(found):
        pytest.skip("Ray 2.55 knows no priorities of node types")
    return found


@remote
def test_ray_up_prepares_and_accepts_the_cluster_file(config: dict[str, Any]) -> None:
    """Ray's own check includes its schema."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(config)
    validate_config(config)
    kinds = config["available_node_types"]
    assert config["head_node_type"] in kinds
    assert sum(kind["max_workers"] for kind in kinds.values()) >= 1


def test_a_head_accepts_the_local_file() -> None:
    """The file is valid as it is, since `ray start --autoscaling-config` completes nothing."""
    from ray.autoscaler._private.util import fill_node_type_min_max_workers, validate_config

    config = read("local.yaml")
    validate_config(config)
    fill_node_type_min_max_workers(config)
    assert config["available_node_types"]["worker"]["max_workers"] == config["max_workers"]
    assert {path.name for path in CLUSTER.glob("*.yaml")} == {*REMOTE, "local.yaml"}


@pytest.mark.parametrize(("name", "most"), [("aws.yaml", 8), ("gcp.yaml", 8), ("on-prem.yaml", 3)])
def test_plan_reads_the_cluster_file(name: str, most: int) -> None:
    from mtcon_ray.cluster.connection import view_of

    trial = parse_spec({"name": "trial", "resources": {"gpus": 1, "cpus": 4}})
    assert check_cluster(trial, view_of(str(CLUSTER / name))) == most


@clouds
def test_workers_scale_from_none_and_leave_when_idle(config: dict[str, Any]) -> None:
    workers = {k: v for k, v in config["available_node_types"].items() if k != "head"}
    assert {kind["min_workers"] for kind in workers.values()} == {0}
    assert all(kind["resources"]["GPU"] for kind in workers.values())
    assert 0 < config["idle_timeout_minutes"] <= 10
    # Ray's default is an hour, which is longer than a sweep waits for its first trial.
    limit = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S=600"
    assert limit in config["head_start_ray_commands"][1]
    assert config["available_node_types"]["head"]["resources"] == {"CPU": 0}


@remote
def test_nothing_is_open_without_the_token(config: dict[str, Any]) -> None:
    starts = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    for command in (c for c in starts if "ray start" in c):
        assert "RAY_AUTH_MODE=token" in command
        assert "--disable-usage-stats" in command
    (head,) = (c for c in config["head_start_ray_commands"] if "ray start" in c)
    assert "--dashboard-host=127.0.0.1" in head
    assert "--num-cpus=0" in head
    assert "RAY_JOB_STOP_WAIT_TIME_S=60" in head
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert config["setup_commands"][0] == "chmod 600 ~/.ray/auth_token"


@clouds
def test_the_root_is_a_bucket_that_each_worker_may_use(config: dict[str, Any]) -> None:
    """A worker has no rights in its cloud unless its node type names an identity."""
    (start,) = (c for c in config["head_start_ray_commands"] if "ray start" in c)
    assert re.search(r" MTCON_RAY_ROOT=(s3|gs)://BUCKET-EDIT/mtcon-ray ", start)
    assert not [c for c in config["setup_commands"] if "mount" in c]
    for kind, each in config["available_node_types"].items():
        found = each["node_config"].keys() & {"IamInstanceProfile", "serviceAccounts"}
        assert found or kind == config["head_node_type"]


def test_ray_makes_no_open_security_group_on_aws() -> None:
    """Each node names a security group. Ray would otherwise create one with ssh open to all."""
    for kind in read("aws.yaml")["available_node_types"].values():
        assert kind["node_config"]["SecurityGroupIds"]
        assert kind["node_config"]["MetadataOptions"] == {"HttpTokens": "required"}


def test_no_gcp_node_is_in_the_open_default_network() -> None:
    """Only the head has a public address, for ssh."""
    for name, kind in read("gcp.yaml")["available_node_types"].items():
        (interface,) = kind["node_config"]["networkInterfaces"]
        assert interface["subnetwork"].endswith("/mtcon-ray")
        assert ("accessConfigs" in interface) == (name == "head")


@remote
def test_what_an_installation_reads_is_copied_and_nothing_else(config: dict[str, Any]) -> None:
    mounts = config["file_mounts"]
    source = "~/mtcon-ray-source/"
    copied = {r.removeprefix(source): here for r, here in mounts.items() if r.startswith(source)}
    assert all(place == here and (REPOSITORY / here).exists() for place, here in copied.items())
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project, hatch = pyproject["project"], pyproject["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    # The nodes install the copy itself, `-e`: the example files are read for a wheel alone.
    assert "-e ." in (CLUSTER / "node_setup.sh").read_text(encoding="utf-8")
    packages = [name for name in wheel["only-include"] if name not in wheel["sources"]]
    built = [project["readme"], *project["license-files"], *packages]
    assert Path(hatch["version"]["path"]).parts[0] in built
    assert set(copied) == {*built, "pyproject.toml", "constraints.txt", "cluster/node_setup.sh"}
    assert len(mounts) == len(copied) + len(["the token"])


def launched(config: dict[str, Any], trials: int) -> Counter[str]:
    """Returns nodes by type that autoscaler v2 (the one of `ray up`) adds for waiting trials."""
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=AutoscalingConfig(config, skip_content_hash=True).get_node_type_configs(),
        max_num_nodes=config["max_workers"],
        resource_requests=ResourceRequestUtil.group_by_count(
            [ResourceRequestUtil.make({"CPU": 4.0, "GPU": 1.0}) for _ in range(trials)]
        ),
    )
    reply = ResourceDemandScheduler().schedule(request)
    return Counter({launch.instance_type: launch.count for launch in reply.to_launch})


@clouds
def test_spot_comes_first_and_never_more_nodes_than_the_file_allows(config: dict[str, Any]) -> None:
    assert launched(config, 3) == {"gpu-spot": 3}
    added = launched(config, 30)
    assert added["gpu-spot"] == config["available_node_types"]["gpu-spot"]["max_workers"]
    assert added.total() == config["max_workers"]
