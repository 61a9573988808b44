"""The uses of Ray's private interfaces that no test of their users covers."""

import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from socket import socket
from threading import Timer
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from ray._private import services

from mtcon_ray.cluster import ray_private
from mtcon_ray.cluster.connection import await_port
from mtcon_ray.cluster.environment import restored_environment
from mtcon_ray.cluster.ray_private import patient_start
from mtcon_ray.cluster.ray_start import free_ports


@pytest.mark.parametrize(
    ("limit", "tries", "told"),
    [(20, 3, nullcontext()), (0, 1, pytest.raises(TimeoutError, match="raylet timed out"))],
)
def test_a_node_that_registers_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, limit: float, tries: int, told: AbstractContextManager[object]
) -> None:
    unknown, node = RuntimeError("no such node"), {"address": "here"}
    get_node = Mock(side_effect=[unknown, unknown, node])
    monkeypatch.setattr(services, "get_node", get_node)
    with restored_environment(), patient_start(time.monotonic() + limit, iter(()), {}), told:
        assert services.get_node("here", "node") == node
    assert get_node.call_args_list == [call("here", "node")] * tries
    assert services.get_node is get_node


def test_the_raylet_is_told_agents_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it waits 15 s for each agent, and then ends."""
    given: dict[str, int] = {}
    process: Any = SimpleNamespace(poll=lambda: None)
    started: dict[str, Any] = {}

    def start_raylet(session_dir: str, node_id: str, **ports: int) -> SimpleNamespace:
        given.update(ports)
        for name in ray_private.AGENT_FILES:
            Path(session_dir, f"{name}_{node_id}").touch()
        return SimpleNamespace(process=process)

    with monkeypatch.context() as patch:
        patch.setattr(services, "start_raylet", start_raylet)
        patch.delenv(ray_private.AGENT_VARIABLE, raising=False)
        with restored_environment(), patient_start(time.monotonic() + 60, free_ports(), started):
            assert services.get_node_ip_address() == "127.0.0.1"
            services.start_raylet(str(tmp_path), "n1", metrics_agent_port=0)  # type: ignore[call-arg]
            assert os.environ[ray_private.AGENT_VARIABLE] == "60000"
    assert started == {"raylet": process}
    assert given.keys() == set(ray_private.AGENT_PORTS)
    assert len(set(given.values())) == len(given)
    assert all(20_000 <= port < 32_768 for port in given.values())
    listen = ray_private.LISTEN_PORT
    assert (tmp_path / f"{listen}_n1").read_text() == str(given[listen])
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
