"""The versions on the nodes of a cluster, beside those of the driver."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError, TaskUnschedulableError

from mtcon_ray.cluster import nodes
from mtcon_ray.cluster.job_package import versions
from mtcon_ray.cluster.nodes import check_nodes, look
from mtcon_ray.errors import ResourceError


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns what the nodes answer, by address, of a cluster that the test fills."""
    answers: dict[str, Any] = {}

    class Remote:
        def options(self, scheduling_strategy: Any) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda _: answers[scheduling_strategy.node_id])

    def alive() -> list[dict[str, Any]]:
        return [{"Alive": True, "NodeID": a, "NodeManagerAddress": a} for a in answers]

    def get(answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake = SimpleNamespace(nodes=alive, get=get, remote=lambda **_: lambda function: Remote())
    monkeypatch.setattr(nodes, "ray", fake)
    place = lambda node_id, soft: SimpleNamespace(node_id=node_id)  # noqa: E731
    monkeypatch.setattr(nodes, "NodeAffinitySchedulingStrategy", place)
    return answers


def test_other_versions_of_libraries_are_named(tmp_path: Path, cluster: dict[str, Any]) -> None:
    here = versions()
    cluster["10.0.0.1"] = True, {**here, "torch": "1.0"}
    assert check_nodes(tmp_path) == [], "the only node is this one"
    cluster["10.0.0.2"] = True, here
    assert check_nodes(tmp_path) == [f"10.0.0.1 has torch 1.0 (here {here['torch']})"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["python", "ray", "mtcon-ray"])
def test_a_node_that_cannot_train_is_named_before_the_start(
    name: str, tmp_path: Path, cluster: dict[str, Any]
) -> None:
    here = versions()
    cluster["10.0.0.1"] = True, here
    cluster["10.0.0.2"] = True, {**here, name: "0.7"}
    told = rf"mtcon-ray: 10\.0\.0\.2 has {name} 0\.7 \(here {here[name]}\); install one"
    with pytest.raises(ResourceError, match=told):
        check_nodes(tmp_path)


def test_a_node_without_this_package_or_without_the_root_is_named(
    tmp_path: Path, cluster: dict[str, Any]
) -> None:
    cluster["10.0.0.1"] = True, versions()
    lost = ModuleNotFoundError("No module named 'mtcon_ray'")
    cluster["10.0.0.2"] = RayTaskError("look", f"Traceback\nModuleNotFoundError: {lost}", lost)
    with pytest.raises(ResourceError, match=r"10\.0\.0\.2 has mtcon-ray that .*: No module named"):
        check_nodes(tmp_path)
    cluster["10.0.0.2"] = TaskUnschedulableError("the node doesn't exist any more")
    assert check_nodes(tmp_path) == [], "the node was lost during the check"
    cluster["10.0.0.2"] = False, versions()
    with pytest.raises(ResourceError, match=r"all nodes share, got .* seen by 10\.0\.0\.2; name"):
        check_nodes(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert look(str(tmp_path)) == (True, versions())
    assert look(str(tmp_path / "none"))[0] is False
