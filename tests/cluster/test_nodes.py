"""The versions on the nodes of a cluster, beside those of the driver."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import RayTaskError, TaskUnschedulableError

from mtcon_ray.cluster import nodes
from mtcon_ray.cluster.jobs import versions
from mtcon_ray.cluster.nodes import check_nodes, look
from mtcon_ray.errors import ResourceError
from tests.data.folder_store import folder_store


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns what the nodes answer, by address, of a cluster that the test fills."""
    answers: dict[str, Any] = {}

    def alive() -> list[dict[str, Any]]:
        return [{"Alive": True, "NodeID": a, "NodeManagerAddress": a} for a in answers]

    ray = Mock(nodes=alive, get=lambda address: Mock(side_effect=[answers[address]])())
    remote = lambda scheduling_strategy: Mock(remote=lambda _: scheduling_strategy)  # noqa: E731
    ray.remote.return_value.return_value.options = remote
    monkeypatch.setattr(nodes, "ray", ray)
    monkeypatch.setattr(nodes, "NodeAffinitySchedulingStrategy", lambda node_id, soft: node_id)
    return answers


@pytest.mark.parametrize("name", ["torch", "python", "ray", "mtcon-ray"])
def test_other_versions_are_named_first(name: str, tmp_path: Path, cluster: dict[str, Any]) -> None:
    here = versions()
    cluster["10.0.0.1"] = "", {**here, name: "0.7"}
    assert check_nodes(tmp_path / "sweeps" / "a") == [], "the only node is this one"
    cluster["10.0.0.2"] = "", here
    told = f"10.0.0.1 has {name} 0.7 (here {here[name]})"
    if name == "torch":
        assert check_nodes(tmp_path / "sweeps" / "a") == [told]
    else:
        with pytest.raises(ResourceError, match=re.escape(f"mtcon-ray: {told}; install one")):
            check_nodes(tmp_path / "sweeps" / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_node_without_package_or_root_is_named(tmp_path: Path, cluster: dict[str, Any]) -> None:
    cluster["10.0.0.1"] = "", versions()
    lost = ModuleNotFoundError("No module named 'mtcon_ray'")
    cluster["10.0.0.2"] = RayTaskError("look", f"Traceback\nModuleNotFoundError: {lost}", lost)
    with pytest.raises(ResourceError, match=r"10\.0\.0\.2 has mtcon-ray that .*: No module named"):
        check_nodes(tmp_path / "sweeps" / "a")
    cluster["10.0.0.2"] = TaskUnschedulableError("the node doesn't exist any more")
    assert check_nodes(tmp_path / "sweeps" / "a") == [], "the node was lost during the check"
    cluster["10.0.0.2"] = "no", versions()
    with pytest.raises(ResourceError, match=r"got .* fails on 10\.0\.0\.2 \(no\); name a folder"):
        check_nodes(tmp_path / "sweeps" / "a")
    assert list(tmp_path.iterdir()) == []
    assert look(str(tmp_path)) == ("", versions())
    assert look(str(tmp_path / "none"))[0] == "it is not there"


def test_each_node_must_write_to_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, url = folder_store(tmp_path / "store", monkeypatch), "s3://bucket/lab/sweeps/a"
    assert look(url) == ("", versions())
    assert store.names() == set()
    store.refuse("PUT")
    assert "503 Slow Down" in look(url)[0]
