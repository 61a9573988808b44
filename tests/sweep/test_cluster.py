"""What a cluster has or may scale to."""

import json
from pathlib import Path

import pytest

from mtcon_ray.errors import ResourceError
from mtcon_ray.plan import NodeKind
from mtcon_ray.sweep.cluster import beside_the_job, local_view, sweep_environment, view_of

AUTOSCALING = """
cluster_name: c
max_workers: 6
available_node_types:
  head: {resources: {CPU: 4}, node_config: {}}
  gpu: {resources: {CPU: 8, GPU: 2}, node_config: {}, max_workers: 3}
  spot: {resources: {CPU: 8}, node_config: {}}
head_node_type: head
"""


def test_a_cluster_yaml_gives_node_types_and_their_most(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(AUTOSCALING)
    assert view_of(str(path)).kinds == (
        NodeKind("head", 4, 0, 1),
        NodeKind("gpu", 8, 2, 3),
        NodeKind("spot", 8, 0, 6),
    )


@pytest.mark.parametrize("text", ["a: 1", "- 1", "available_node_types: {x: 3}", "{"])
def test_a_file_that_is_no_cluster_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ResourceError, match="must be a Ray cluster YAML"):
        view_of(str(path))


def test_this_machine_is_one_node() -> None:
    (node,) = local_view().kinds
    assert node.count == 1
    assert node.cpus >= 1
    assert view_of("local") == local_view()


def test_nothing_is_sent_home() -> None:
    environment = sweep_environment(2)
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert environment["OMP_NUM_THREADS"] == "2"


def test_what_a_job_was_submitted_with_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses a driver that sets a variable of its job again, to whatever value."""
    environment = {"OMP_NUM_THREADS": "1", "RAY_AIR_NEW_OUTPUT": "0"}
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert beside_the_job(environment) == environment
    job = {"runtime_env": {"env_vars": {"OMP_NUM_THREADS": "7"}}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    assert beside_the_job(environment) == {"RAY_AIR_NEW_OUTPUT": "0"}
