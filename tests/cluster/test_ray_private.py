"""The uses of Ray's private interfaces that no test of their users covers."""

import time
from socket import socket
from threading import Timer

import pytest
from ray._private import services

from mtcon_ray.cluster.ray_private import (
    patient_start,
    wait_for_dashboard,
)


@pytest.mark.parametrize("runs", [True, False])
def test_the_dashboard_of_a_head_that_has_just_started_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: "127.0.0.1:6379")
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:6379"} if runs else {})
    with socket() as server:
        server.bind(("127.0.0.1", 0))
        starts = Timer(0.7, server.listen)
        starts.start()
        begin = time.monotonic()
        wait_for_dashboard(f"http://127.0.0.1:{server.getsockname()[1]}", 60)
        waited = time.monotonic() - begin
        starts.join()
    assert (waited > 0.6) == runs
    assert waited < 30


def test_a_dashboard_that_does_not_come_is_waited_for_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: "127.0.0.1:6379")
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:6379"})
    wait_for_dashboard("http://127.0.0.1:9", 0)
    wait_for_dashboard("http://elsewhere:8265", 1e9)


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
