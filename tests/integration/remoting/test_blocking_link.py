"""Connections for programs without an event loop."""

import select
import socket
from typing import TYPE_CHECKING

import pytest

from pyromq.errors import ConnectFailed, ConnectionLost
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.remoting.blocking_link import Link, LinkOptions, Links

if TYPE_CHECKING:
    from typing_extensions import Buffer


def test_what_is_asked_about_many_queues_is_asked_in_one_moment() -> None:
    """Were a queue looked at later than another, a stream could get a message before one that is older."""
    writes: list[bytes] = []

    class Watched(socket.socket):
        def sendall(self, data: "Buffer", flags: int = 0) -> None:
            writes.append(bytes(data))
            super().sendall(data, flags)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        link = Link(f"127.0.0.1:{port}", LinkOptions())
        link._socket = Watched(fileno=link._socket.detach())
        there, _ = listener.accept()
        there.close()
        with pytest.raises(ConnectionLost):
            link.call_all([GetMaxOffset(topic="Orders", queue_id=number) for number in range(9)])
        link.close()
    [whole] = writes
    assert len(FrameReader(1 << 20).feed(whole)) == 9


def test_a_connection_that_was_closed_meanwhile_is_opened_anew() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        links = Links(LinkOptions())
        link = links.take(address)
        there, _ = listener.accept()
        links.give_back(link)
        assert links.take(address) is link
        links.give_back(link)
        there.close()
        assert select.select([link._socket], [], [], 60)[0]  # the news of it takes its time
        again = links.take(address)
        assert again is not link
        again.close()


@pytest.mark.parametrize("address", ["", "here", ":::", "here:70000", "here:-1", "a..b:1", "1.2.3.4:five"])
def test_what_is_no_address_cannot_be_connected_to(address: str) -> None:
    """It may come from a stranger's registration."""
    with pytest.raises(ConnectFailed):
        Link(address, LinkOptions())


def test_a_connection_that_failed_while_it_was_lent_is_not_lent_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        links = Links(LinkOptions())
        with pytest.raises(ConnectionLost, match="the test"), links.borrow(address) as link:
            raise ConnectionLost("the test")
        with links.borrow(address) as another:
            assert another is not link
        with links.borrow(address) as again:
            assert again is another
        links.close()
