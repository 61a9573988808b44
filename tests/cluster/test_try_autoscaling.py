"""Ports that stay free until a head opens them seconds later."""

import socket
from pathlib import Path

import pytest

from cluster import try_autoscaling
from cluster.try_autoscaling import free_ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_none_that_another_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_ports(1)[0]
    monkeypatch.setattr(try_autoscaling, "PORTS", range(first, first + 4))
    for address in ("", "127.0.0.1"):
        with socket.socket() as held:
            held.bind((address, first))
            held.listen()
            assert set(free_ports(3)) <= {first + 1, first + 2, first + 3}


@pytest.mark.skipif(not RANGE.exists(), reason="the system does not say which ports it gives")
def test_ports_are_none_that_the_system_gives_to_a_connection() -> None:
    least, most = map(int, RANGE.read_text().split())
    found = free_ports(200)
    assert len(set(found)) == 200
    assert not [port for port in found if least <= port <= most]
