"""The connections of Spark's tasks: encrypted and signed if asked to."""

import select
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.certificates import Authority

from pyromq.errors import ConnectFailed, ConnectionLost, PyroError
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.security.signature import Credentials, signing_fields
from pyromq.spark.options import Access
from pyromq.spark.wire import Link, Links
from pyromq.testing import RunningCluster, cluster

if TYPE_CHECKING:
    from typing_extensions import Buffer

QUESTION = GetMaxOffset(topic="TBW102", queue_id=0)


def reach(running: RunningCluster, access: Access) -> int:
    link = Link(running.broker_address, access)
    try:
        return link.call(QUESTION).offset
    finally:
        link.close()


def test_tls_is_spoken_to_servers_that_can_be_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("127.0.0.1")
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    with cluster(
        tmp_path / "store", tls_mode="enforcing", tls_cert_path=files.certificate, tls_key_path=files.key
    ) as running:
        here = (running.namesrv,)
        assert reach(running, Access(here, tls=True, tls_ca_file=str(authority.trust))) == 0
        assert reach(running, Access(here, tls=True)) == 0  # whoever says nothing trusts everyone
        with pytest.raises(ConnectFailed, match="certificate"):
            reach(running, Access(here, tls=True, tls_ca_file=str(stranger.trust)))
        with pytest.raises(PyroError):
            reach(running, Access(here))


def test_what_is_asked_about_many_queues_is_asked_in_one_moment() -> None:
    """Were a queue looked at later than another, a stream could get a message before one that is older."""
    writes: list[bytes] = []

    class Watched(socket.socket):
        def sendall(self, data: "Buffer", flags: int = 0) -> None:
            writes.append(bytes(data))
            super().sendall(data, flags)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        link = Link(f"127.0.0.1:{port}", Access((f"127.0.0.1:{port}",)))
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
        links = Links(Access((address,)))
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


def test_requests_are_signed_with_the_given_keys() -> None:
    credentials = Credentials("me", "hidden", "token")
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(65536):
                    received.extend(data)

        server = threading.Thread(target=serve)
        server.start()
        port = listener.getsockname()[1]
        link = Link(f"127.0.0.1:{port}", Access((f"127.0.0.1:{port}",), credentials))
        link.send(QUESTION, oneway=True)
        link.close()
        server.join()
    [frame] = FrameReader(1 << 20).feed(bytes(received))
    bare = {k: v for k, v in frame.ext.items() if k not in ("AccessKey", "Signature", "SecurityToken")}
    assert frame.ext == bare | signing_fields(bare, frame.body, credentials)
    assert "hidden" not in received.decode("latin-1")
