"""A link for filled forms: one write, and an answer in time."""

import socket
from itertools import count

import pytest

from pyromq.errors import CallTimeout
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.blocking_link import LinkOptions
from pyromq.remoting.form_link import FormLink


def test_an_answer_that_comes_in_bits_has_the_time_of_the_callers_clock() -> None:
    seconds = count(0, 100)
    options = LinkOptions(monotonic=lambda: float(next(seconds)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = FormLink(f"127.0.0.1:{server.getsockname()[1]}", options)
        peer, _ = server.accept()
        peer.sendall(b"\0\0")
        with peer, pytest.raises(CallTimeout, match="no answer in 60 s"):
            link.call_frame(b"request", 1, 60.0, SendMessageV2, lambda data, _: (0, 0))
        link.close()
