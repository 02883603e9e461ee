"""Ports that are ours while nobody listens at them."""

import errno
import socket
import sys
from pathlib import Path

import pytest

from pyromq.remoting.ports import Ports
from pyromq.testing import cluster
from pyromq.testing.held_ports import held_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports cannot be held")


def is_free(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def test_a_held_port_is_refused_to_others() -> None:
    with held_port((0, -2, 10)) as port:
        assert not any(is_free(port + distance) for distance in (0, -2, 10))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_servers_come_and_go_at_a_held_port() -> None:
    with held_port() as port:
        for _ in range(3):
            with Ports().listen("127.0.0.1", port), socket.create_connection(("127.0.0.1", port)):
                pass
            assert not is_free(port)


def test_two_holders_never_have_the_same_port() -> None:
    with held_port((0, 1)) as first, held_port((0, 1)) as second:
        assert len({first, first + 1, second, second + 1}) == 4


def test_ports_side_by_side_are_found_while_closed_connections_keep_those_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.socket.bind
    clients_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    def bind(holder: socket.socket, address: tuple[str, int]) -> None:
        if address[1] >= clients_from:
            raise OSError(errno.EADDRINUSE, "a closed connection has it")
        real(holder, address)

    monkeypatch.setattr(socket.socket, "bind", bind)
    with held_port((0, 10, -2, 8, 1, 11)) as port:
        assert port + 11 < clients_from


def test_a_cluster_keeps_its_ports_while_a_broker_is_down() -> None:
    with cluster(brokers=2) as running:
        addresses = running.broker_addresses
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        running.kill_broker(0)
        running.stop_broker(1)
        assert not any(is_free(port) or is_free(port - 2) for port in ports)
        running.start_broker(1)
        running.start_broker(0)
        assert running.broker_addresses == addresses
