"""All waiting connections are accepted at once, and a shortage of descriptors passes."""

import asyncio
import errno
import resource
import socket
from contextlib import ExitStack
from math import inf

import pytest
from tests.conftest import ErrorLogs

from pyromq.remoting import acceptor as acceptor_module
from pyromq.remoting.acceptor import Acceptor
from pyromq.remoting.ports import Ports


class Accepted:
    def __init__(self) -> None:
        self.made = 0
        self.changed = asyncio.Event()

    def protocol(self) -> asyncio.Protocol:
        accepted = self

        class Counting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.made += 1
                accepted.changed.set()
                transport.close()

        return Counting()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.made < count:
                self.changed.clear()
                await self.changed.wait()


class Short(socket.socket):
    """Has no descriptors left for a while."""

    shortages = 1

    def accept(self) -> tuple[socket.socket, object]:
        if self.shortages:
            self.shortages -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


async def test_all_waiting_connections_are_accepted_in_one_turn() -> None:
    accepted = Accepted()
    listening = Ports().listen("127.0.0.1", 0)
    acceptor = Acceptor(listening, 100, accepted.protocol)
    with ExitStack() as clients:
        for _ in range(50):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        acceptor._accept()
        assert "connecting=50" in repr(acceptor)
        await accepted.wait_for(50)
    await acceptor.close()
    await acceptor.close()


async def test_a_shortage_of_descriptors_passes(
    monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    monkeypatch.setattr(acceptor_module, "_PAUSE_S", 0.01)
    accepted = Accepted()
    taken = Ports().listen("127.0.0.1", 0)
    short = Short(taken.family, taken.type, taken.proto, taken.detach())
    acceptor = Acceptor(short, 10, accepted.protocol)
    with socket.create_connection(short.getsockname()):
        await accepted.wait_for(1)
    await acceptor.close()
    error_logs.expect("too many open files")


async def test_connections_do_not_get_the_last_descriptors(
    monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    monkeypatch.setattr(acceptor_module, "_PAUSE_S", 0.01)
    accepted = Accepted()
    listening = Ports().listen("127.0.0.1", 0)
    with monkeypatch.context() as patch:
        # No more than those that every process has from the start.
        patch.setattr(resource, "getrlimit", lambda _: (4, 4))
        acceptor = Acceptor(listening, 10, accepted.protocol)
    with socket.create_connection(listening.getsockname()) as rejected:
        assert await asyncio.to_thread(rejected.recv, 1) == b""
    assert accepted.made == 0
    error_logs.expect("the last descriptors are reserved for files")
    acceptor._descriptors = inf
    with socket.create_connection(listening.getsockname()):
        await accepted.wait_for(1)
    await acceptor.close()


@pytest.mark.parametrize(("limit", "for_connections"), [(1024, 960), (40, 30), (resource.RLIM_INFINITY, inf)])
def test_some_descriptors_are_kept_for_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, for_connections: float
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert acceptor_module._descriptors_for_connections() == for_connections
    # Probes find some when clients have taken all of theirs.
    assert limit == resource.RLIM_INFINITY or (
        for_connections < acceptor_module._descriptors_for_connections(32) < limit
    )


async def test_closing_in_the_middle_of_a_shortage_ends_the_pause(error_logs: ErrorLogs) -> None:
    accepted = Accepted()
    taken = Ports().listen("127.0.0.1", 0)
    short = Short(taken.family, taken.type, taken.proto, taken.detach())
    acceptor = Acceptor(short, 10, accepted.protocol)
    with socket.create_connection(short.getsockname()):
        acceptor._accept()
        error_logs.expect("too many open files")
        assert "pausing" in repr(acceptor)
        await acceptor.close()
    assert short.fileno() == -1
    assert accepted.made == 0
