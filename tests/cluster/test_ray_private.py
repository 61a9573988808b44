"""The uses of Ray's private interfaces that no test of their users covers."""

import os
import time
from pathlib import Path
from socket import socket
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import services

from mtcon_ray.cluster.connection import await_port
from mtcon_ray.cluster.environment import restored_environment
from mtcon_ray.cluster.ray_private import (
    AGENT_FILES,
    AGENT_PORTS,
    AGENT_VARIABLE,
    LISTEN_PORT,
    patient_start,
)
from mtcon_ray.cluster.ray_start import free_ports


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
    with restored_environment(), patient_start(time.monotonic() + limit, iter(()), {}):
        if registers:
            assert services.get_node("here", "node") == {"address": "here"}
            assert asked == ["here"] * 3
        else:
            with pytest.raises(TimeoutError, match="raylet timed out"):
                services.get_node("here", "node")
    assert services.get_node is get_node


def test_the_raylet_is_told_the_ports_of_its_agents_and_does_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it waits 15 s for each agent, and then ends."""
    given: dict[str, int] = {}
    process: Any = SimpleNamespace(poll=lambda: None)
    started: dict[str, Any] = {}

    def start_raylet(session_dir: str, node_id: str, **ports: int) -> SimpleNamespace:
        given.update(ports)
        for name in AGENT_FILES:
            Path(session_dir, f"{name}_{node_id}").touch()
        return SimpleNamespace(process=process)

    with monkeypatch.context() as patch:
        patch.setattr(services, "start_raylet", start_raylet)
        patch.delenv(AGENT_VARIABLE, raising=False)
        start = patient_start(time.monotonic() + 60, free_ports(), started)
        with restored_environment(), start:
            assert services.get_node_ip_address() == "127.0.0.1"
            services.start_raylet(str(tmp_path), "n1", metrics_agent_port=0)  # type: ignore[call-arg]
            assert os.environ[AGENT_VARIABLE] == "60000"
    assert started == {"raylet": process}
    assert given.keys() == set(AGENT_PORTS)
    assert len(set(given.values())) == len(given)
    assert all(20_000 <= port < 32_768 for port in given.values())
    assert (tmp_path / f"{LISTEN_PORT}_n1").read_text() == str(given[LISTEN_PORT])
    assert services.get_node_ip_address() != "127.0.0.1"


def test_a_cluster_s_port_is_awaited_before_ray_s_client_asks() -> None:
    """The client prints lines of its log while nothing listens. Others are its own."""
    await_port("auto", 0)
    with socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionRefusedError):
            await_port(address, 0)
        begin, opening = time.monotonic(), Timer(1, server.listen)
        opening.start()
        await_port(address, 60)
        assert time.monotonic() - begin >= 0.9
