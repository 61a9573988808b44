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

from mtcon_ray.errors import ResourceError
from mtcon_ray.plan.capacity import check_cluster
from mtcon_ray.spec.run_spec import parse_spec

pytestmark = pytest.mark.ray
REPOSITORY = Path(__file__).parent.parent
CLUSTER = REPOSITORY / "cluster"
CLOUDS = [CLUSTER / "aws.yaml", CLUSTER / "gcp.yaml"]
REMOTE = [*CLOUDS, CLUSTER / "on-prem.yaml"]
GPU_TRIAL = {"name": "trial", "resources": {"gpus": 1, "cpus": 4}}


def name(path: Path) -> str:
    return path.name


def read(path: Path) -> dict[str, Any]:
    """Returns a cluster file as plain data."""
    raw: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return raw


@pytest.fixture
def path(request: pytest.FixtureRequest) -> Path:
    """Returns a cluster file. Skips a file with priorities on a Ray that refuses them."""
    found: Path = request.param
    if version("ray").startswith("2.55.") and "priority:" in found.read_text(encoding="utf-8"):
        pytest.skip("Ray 2.55 knows no priorities of node types")
    return found


@pytest.mark.parametrize("path", REMOTE, ids=name, indirect=True)
def test_ray_up_prepares_and_accepts_the_cluster_file(path: Path) -> None:
    """Ray's own check includes its schema."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(read(path))
    validate_config(config)
    kinds = config["available_node_types"]
    assert config["head_node_type"] in kinds
    assert sum(kind["max_workers"] for kind in kinds.values()) >= 1


def test_a_head_accepts_the_local_file() -> None:
    """The file is valid as it is, since `ray start --autoscaling-config` completes nothing."""
    from ray.autoscaler._private.util import fill_node_type_min_max_workers, validate_config

    config = read(CLUSTER / "local.yaml")
    validate_config(config)
    fill_node_type_min_max_workers(config)
    assert config["available_node_types"]["worker"]["max_workers"] == config["max_workers"]
    assert {*CLUSTER.glob("*.yaml")} == {*REMOTE, CLUSTER / "local.yaml"}


@pytest.mark.parametrize(("path", "most"), [(CLOUDS[0], 8), (CLOUDS[1], 8), (REMOTE[2], 3)])
def test_plan_reads_the_cluster_file(path: Path, most: int) -> None:
    from mtcon_ray.cluster.connection import view_of

    view = view_of(str(path))
    assert check_cluster(parse_spec(GPU_TRIAL), view) == most
    with pytest.raises(ResourceError, match="must fit some node"):
        check_cluster(parse_spec({"name": "huge", "resources": {"gpus": 4}}), view)


@pytest.mark.parametrize("path", CLOUDS, ids=name)
def test_workers_scale_from_none_and_leave_when_idle(path: Path) -> None:
    config = read(path)
    workers = {k: v for k, v in config["available_node_types"].items() if k != "head"}
    assert {kind["min_workers"] for kind in workers.values()} == {0}
    assert all(kind["resources"]["GPU"] for kind in workers.values())
    assert 0 < config["idle_timeout_minutes"] <= 10
    # Ray's default is an hour, which is longer than a sweep waits for its first trial.
    limit = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S=600"
    assert limit in config["head_start_ray_commands"][1]
    assert config["available_node_types"]["head"]["resources"] == {"CPU": 0}


@pytest.mark.parametrize("path", REMOTE, ids=name)
def test_nothing_is_open_without_the_token(path: Path) -> None:
    config = read(path)
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


@pytest.mark.parametrize("path", CLOUDS, ids=name)
def test_the_root_is_a_bucket_that_each_worker_may_use(path: Path) -> None:
    """A worker has no rights in its cloud unless its node type names an identity."""
    config = read(path)
    (start,) = (c for c in config["head_start_ray_commands"] if "ray start" in c)
    assert re.search(r" MTCON_RAY_ROOT=(s3|gs)://BUCKET-EDIT/mtcon-ray ", start)
    assert not [c for c in config["setup_commands"] if "mount" in c]
    for kind, each in config["available_node_types"].items():
        found = each["node_config"].keys() & {"IamInstanceProfile", "serviceAccounts"}
        assert found or kind == config["head_node_type"]


def test_ray_makes_no_open_security_group_on_aws() -> None:
    """Each node names a security group. Ray would otherwise create one with ssh open to all."""
    for kind in read(CLUSTER / "aws.yaml")["available_node_types"].values():
        assert kind["node_config"]["SecurityGroupIds"]
        assert kind["node_config"]["MetadataOptions"] == {"HttpTokens": "required"}


def test_no_gcp_node_is_in_the_open_default_network() -> None:
    """Only the head has a public address, for ssh."""
    for name, kind in read(CLUSTER / "gcp.yaml")["available_node_types"].items():
        (interface,) = kind["node_config"]["networkInterfaces"]
        assert interface["subnetwork"].endswith("/mtcon-ray")
        assert ("accessConfigs" in interface) == (name == "head")


@pytest.mark.parametrize("path", REMOTE, ids=name)
def test_what_an_installation_reads_is_copied_and_nothing_else(path: Path) -> None:
    mounts = read(path)["file_mounts"]
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


@pytest.mark.parametrize("path", CLOUDS, ids=name, indirect=True)
def test_spot_comes_first_and_never_more_nodes_than_the_file_allows(path: Path) -> None:
    config = read(path)
    assert launched(config, 3) == {"gpu-spot": 3}
    added = launched(config, 30)
    assert added["gpu-spot"] == config["available_node_types"]["gpu-spot"]["max_workers"]
    assert added.total() == config["max_workers"]
