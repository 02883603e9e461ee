"""The connections of Spark's tasks: encrypted and signed if asked to."""

import socket
import threading
from pathlib import Path

import pytest
from tests.support.certificates import Authority

from pyromq.errors import ConnectFailed, PyroError
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.remoting.blocking_link import Link
from pyromq.security.signature import Credentials, signing_fields
from pyromq.spark.links import link_options
from pyromq.spark.options import Access
from pyromq.testing import RunningCluster, cluster

QUESTION = GetMaxOffset(topic="TBW102", queue_id=0)


def reach(running: RunningCluster, access: Access) -> int:
    link = Link(running.broker_address, link_options(access))
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
        address = f"127.0.0.1:{port}"
        link = Link(address, link_options(Access((address,), "me", "hidden", "token")))
        link.send(QUESTION, oneway=True)
        link.close()
        server.join()
    [frame] = FrameReader(1 << 20).feed(bytes(received))
    bare = {k: v for k, v in frame.ext.items() if k not in ("AccessKey", "Signature", "SecurityToken")}
    assert frame.ext == bare | signing_fields(bare, frame.body, credentials)
    assert "hidden" not in received.decode("latin-1")
