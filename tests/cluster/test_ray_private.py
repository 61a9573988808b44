"""The uses of Ray's private interfaces that no test of their users covers."""

import pytest
from ray._private import services

from mtcon_ray.cluster.ray_private import patient_start


@pytest.mark.parametrize(("limit", "registers"), [(20.0, True), (0.0, False)])
def test_a_node_that_registers_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, limit: float, registers: bool
) -> None:
    asked: list[str] = []

    def get_node(address: str, _: str) -> dict[str, str]:
        asked.append(address)
        if len(asked) < 3:
            raise RuntimeError("no such node")
        return {"address": address}

    monkeypatch.setattr(services, "get_node", get_node)
    with patient_start(limit):
        if registers:
            assert services.get_node("here", "node") == {"address": "here"}
            assert asked == ["here"] * 3
        else:
            with pytest.raises(RuntimeError, match="no such node"):
                services.get_node("here", "node")
    assert services.get_node is get_node
