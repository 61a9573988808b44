"""The resources that a cluster has or may scale to, and the variables of a driver."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import boto3
import pytest

from mtcon_ray.cluster import connection as connect
from mtcon_ray.cluster.ray_private import GCS_VARIABLE
from mtcon_ray.data import objects
from mtcon_ray.errors import MtconError, ResourceError, UserError
from mtcon_ray.plan.capacity import ClusterView, NodeKind, check_cluster
from mtcon_ray.spec.run_spec import parse_spec

AUTOSCALING = """
cluster_name: c
max_workers: 6
available_node_types:
  head: {resources: {CPU: 4}, node_config: {}}
  gpu: {resources: {CPU: 8, GPU: 2}, node_config: {}, max_workers: 3}
  spot: {resources: {CPU: 8}, node_config: {}}
head_node_type: head
"""


TYPES = "available_node_types: "
View = Callable[[str], ClusterView]


@pytest.fixture
def view(tmp_path: Path) -> View:
    """Returns a function that reads a cluster from a file with this text."""

    def read(text: str) -> ClusterView:
        (tmp_path / "cluster.yaml").write_text(text)
        return connect.view_of(str(tmp_path / "cluster.yaml"))

    return read


def test_a_node_type_without_resources_may_have_any_size(view: View) -> None:
    """On AWS Ray fills them in. A type of which no node may be added fits nothing."""
    trial = parse_spec({"name": "t", "resources": {"gpus": 1, "cpus": 4}})
    assert check_cluster(trial, view(TYPES + "{big: {node_config: {}, max_workers: 2}}")) is None
    with pytest.raises(ResourceError, match="at most 0 fit"):
        check_cluster(trial, view(TYPES + "{big: {resources: {}, max_workers: 0}}"))
    big = view(TYPES + "{big: {resources: {GPU: 2}, max_workers: 2}}")
    assert check_cluster(trial, big) is None
    with pytest.raises(ResourceError, match="2 GPUs"):
        check_cluster(parse_spec({"name": "t", "resources": {"gpus": 4}}), big)


@pytest.mark.parametrize("given", ["locall.yaml", "cluster/locall", "head:6379"])
def test_no_file_is_no_address(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = f"cannot read a cluster from {given} .* RAY_ADDRESS names a running cluster"
    with pytest.raises(ResourceError, match=message):
        connect.view_of(given)


RAY_CLUSTER = """
kind: RayCluster
spec:
  headGroupSpec:
    rayStartParams: {num-cpus: "0"}
    template: {spec: {containers: [{resources: {limits: {cpu: 2}}}]}}
  workerGroupSpecs:
    - groupName: gpu
      minReplicas: 0
      maxReplicas: 3
      rayStartParams: {}
      template: {spec: {containers: [{resources: {limits: {cpu: 8, nvidia.com/gpu: 2}}}]}}
"""


HEAD = RAY_CLUSTER.partition("  workerGroupSpecs")[0]
UNLIMITED = RAY_CLUSTER.replace("minReplicas: 0\n      maxReplicas: 3", "replicas: 1")
# The autoscaler counts a group's own sizes, and each host of a group.
SIZED = "numOfHosts: 2\n      resources: {CPU: 7.5}"
OF_TWO_HOSTS = RAY_CLUSTER.replace("rayStartParams: {}", SIZED)
OTHER = "\n---\napiVersion: v1\nkind: ConfigMap\n"
KINDS = NodeKind("headgroup", 0, 0, 1), NodeKind("gpu", 8, 2, 3)
NODE_TYPES = NodeKind("head", 4, 0, 1), KINDS[1], NodeKind("spot", 8, 0, 6)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (AUTOSCALING, NODE_TYPES),
        (RAY_CLUSTER, KINDS),
        (f"---{OTHER}---{RAY_CLUSTER}---\n", KINDS),
        (HEAD, KINDS[:1]),
        (f"{HEAD}  workerGroupSpecs:\n", KINDS[:1]),
        (UNLIMITED, (KINDS[0], NodeKind("gpu", 8, 2, 2**31 - 1))),
        (OF_TWO_HOSTS, (KINDS[0], NodeKind("gpu", 8, 2, 6))),
    ],
)
def test_sizes_are_of_the_only_cluster(text: str, kinds: tuple[NodeKind, ...], view: View) -> None:
    """In a file of KubeRay, beside other documents and in others' fields, without defaults."""
    assert view(text).kinds == kinds
    trial = parse_spec({"name": "t", "resources": {"gpus": 1, "cpus": 1}})
    if len(kinds) > 1:
        assert check_cluster(trial, view(text)) == 2 * (kinds[1].count or 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{RAY_CLUSTER}---{RAY_CLUSTER}", "2 clusters in 2 documents"),
        (f"a: 1{OTHER}", "0 clusters in 2 documents"),
        ("", "0 clusters in 0 documents"),
        (HEAD.partition("template")[0] + "template: {spec: {containers: []}}", "IndexError"),
        ("a: 1", ""),
        (TYPES + "{} #" + "#" * 1_000_000, ""),
        ("{", ""),
    ],
)
def test_a_file_without_exactly_one_cluster_is_refused(text: str, found: str, view: View) -> None:
    refusal = f"cannot read a cluster from .*{found}.*give a Ray cluster YAML"
    with pytest.raises(ResourceError, match=refusal) as told:
        view(text)
    assert not re.search(r"object at 0x|\n", str(told.value))


def test_a_scaling_cluster_is_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file only the nodes of now are known, and the error says what to do."""
    (tmp_path / "cluster.yaml").write_text(AUTOSCALING)
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0}}, {"Alive": False, "Resources": {}}]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr(connect, "BOOTSTRAP", tmp_path / "none.yaml")
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    trial = parse_spec({"name": "t", "resources": {"gpus": 1}})
    hint = f"; if the cluster adds nodes, name .* {connect.FILE_VARIABLE}"
    with pytest.raises(ResourceError, match=hint):
        check_cluster(trial, connect.connected_view())
    monkeypatch.setenv(connect.FILE_VARIABLE, str(tmp_path / "cluster.yaml"))
    assert check_cluster(trial, connect.connected_view()) == 6
    monkeypatch.setenv(connect.FILE_VARIABLE, "~no-such-user/cluster.yaml")
    with pytest.raises(UserError, match="is unknown on this machine"):
        connect.connected_view()


def test_a_silent_cluster_is_told_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def no_answer(**options: object) -> None:
        tries.append(os.environ[GCS_VARIABLE])
        raise ConnectionError("Failed to connect to Ray cluster at 192.0.2.1:6399")

    await_port, phases = Mock(), list[str]()
    monkeypatch.setattr("ray.init", no_answer)
    monkeypatch.setattr(connect, "await_port", await_port)
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6399")
    for given in ("7", None):
        monkeypatch.setenv(GCS_VARIABLE, given) if given else monkeypatch.delenv(GCS_VARIABLE)
        with pytest.raises(MtconError, match=r"reached at 192\.0\.2\.1:6399: .*unset RAY_ADDRESS"):
            connect.view_of(None, phases.append)
    assert phases == ["connecting to Ray at 192.0.2.1:6399"] * 2
    assert tries == ["7", "1"], "one try, unless the user wants more"
    assert await_port.call_args_list == [call("192.0.2.1:6399", seconds) for seconds in (280, 40)]


NO_SOCKET = RuntimeError("no socket at /tmp/token-401/x")
READ_ONLY = OSError(errno.EROFS, "Read-only file system", "/tmp/auth_token")
TOO_LONG = OSError(
    "validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /job-401/x"
)


@pytest.mark.parametrize(
    ("address", "error", "told"),
    [
        ("head:6379", RuntimeError("Invalid authentication token"), "wants its token"),
        ("ray://head:10001", None, "must be a head's HOST:6379 or `auto`, got 'ray://head"),
        ("", NO_SOCKET, "started on this machine: no socket .*; its logs"),
        ("local", NO_SOCKET, "started on this machine: no socket"),
        (None, READ_ONLY, "Read-only file system: '/tmp/auth_token'; set RAY_TMPDIR to a"),
        (None, TOO_LONG, "AF_UNIX path length .*; set RAY_TMPDIR to a short path"),
    ],
)
def test_a_token_is_missed_by_a_cluster_alone_and_unusable_folders_have_their_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str | None, error: Any, told: str
) -> None:
    """A folder is not mistaken for a token that a cluster wants; the paths look like it."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr("ray.init", Mock(side_effect=error))
    monkeypatch.setattr(connect, "await_port", Mock())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(MtconError, match=told), connect.connected(tmp_path / "ray.log", {}):
        pass


def test_variables_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent home, and workers of a local trial connect through this machine alone."""
    for name in ("RAY_ADDRESS", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    found = connect.sweep_environment(2)
    assert (found["RAY_USAGE_STATS_ENABLED"], found["MLFLOW_DISABLE_TELEMETRY"]) == ("0", "true")
    assert (found["OMP_NUM_THREADS"], found["GLOO_SOCKET_IFNAME"]) == ("2", "lo")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    assert connect.sweep_environment(2)["GLOO_SOCKET_IFNAME"] == "eth7"
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert "GLOO_SOCKET_IFNAME" not in connect.sweep_environment(2)


@pytest.mark.parametrize("own", [None, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_a_user_s_allocator_setting_holds(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    if own is not None:
        monkeypatch.setenv(own, "max_split_size_mb:128")
    expected = None if own else "expandable_segments:True"
    environment = connect.sweep_environment(2)
    assert environment.get("PYTORCH_ALLOC_CONF") == expected
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert connect.sweep_environment(2) == environment, "the same for the next sweep"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in connect.sweep_environment(2)


def test_keys_leave_the_environment_and_stay_with_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow sends artifacts by boto3, in a thread of the driver."""
    from ray.tune.execution import class_cache

    propagated = {n for n in class_cache.ENV_VARS_TO_PROPAGATE if n.startswith("AWS_")}
    assert propagated <= connect.AWS_KEYS.keys()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name in connect.AWS_KEYS:
        monkeypatch.setenv(name, f"value of {name}")
    with connect.hidden_aws_keys():
        with connect.hidden_aws_keys():  # a session within a session
            assert not connect.AWS_KEYS.keys() & os.environ.keys()
        assert objects._keys["access_key"] == "value of AWS_ACCESS_KEY_ID"
        found = boto3.DEFAULT_SESSION.get_credentials()
        assert found.secret_key == "value of AWS_SECRET_ACCESS_KEY"
        assert found.token in ("value of AWS_SESSION_TOKEN", "value of AWS_SECURITY_TOKEN")
    assert objects._keys == {}  # other keys may follow
    assert os.environ["AWS_ACCESS_KEY_ID"] == "value of AWS_ACCESS_KEY_ID"


def test_variables_of_a_submitted_job_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises an error if a driver sets a variable of its job again."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(connect, "ray", Mock(is_initialized=lambda: False))
    for start in ("start_local_ray", "_connect"):
        monkeypatch.setattr(connect, start, given.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for address in ("", "head:6379"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with connect.connected(tmp_path / "ray.log", {"OMP_NUM_THREADS": "1", "OWN": "2"}):
            assert os.environ["OWN"] == "2"
    found = [each["runtime_env"]["env_vars"] for each in given]
    assert found == [{"OMP_NUM_THREADS": "1", "OWN": "2"}, {"OWN": "2"}]


def test_a_visit_uses_and_keeps_a_held_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it connects, and Ray's messages about lost nodes do not reach the terminal."""
    ray, calls = Mock(**{"is_initialized.side_effect": [True, False]}), [Mock(), Mock()]
    for name, each in zip(("ray", "_connect", "log_errors_of_nodes"), (ray, *calls), strict=True):
        monkeypatch.setattr(connect, name, each)
    for is_held in (True, False):
        with connect.visiting(Mock()):
            assert not ray.shutdown.called
        assert {each.called for each in (*calls, ray.shutdown)} == {not is_held}
