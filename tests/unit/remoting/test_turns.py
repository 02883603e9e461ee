"""One connection does not keep the others waiting, however much it sends in one read."""

import asyncio

from tests.support.echo_service import Echo, EchoAnswer, EchoService
from tests.support.fake_transport import FakeTransport

from pyromq.clock import ManualClock
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import encode_frame
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup, ConnectionTerms
from pyromq.remoting.routing import Caller, handles

SLOW_S = 0.003
"""What handling one request takes; two of them are a turn."""


class SlowService(EchoService):
    def __init__(self, clock: ManualClock, request_s: float) -> None:
        super().__init__()
        self.handled: list[str] = []
        self._clock = clock
        self._request_s = request_s

    @handles(Echo)
    def echo(self, request: Echo, caller: Caller) -> EchoAnswer:
        self.handled.append(request.text)
        self._clock.advance(self._request_s)
        return super().echo(request, caller)


class Port:
    """Several connections to one service, whose clock moves with every request that is handled."""

    def __init__(self, *, request_s: float = SLOW_S) -> None:
        self.clock = ManualClock()
        service = SlowService(self.clock, request_s)
        group = ConnectionGroup(ConnectionTerms(clock=self.clock), routes=service.routes())
        self.handled = service.handled
        self.crowd = Connection(group)
        self.bystander = Connection(group)
        self.to_crowd, self.to_bystander = FakeTransport(self.crowd), FakeTransport(self.bystander)
        self.crowd.connection_made(self.to_crowd)
        self.bystander.connection_made(self.to_bystander)

    async def idle(self) -> None:
        """Until nothing is waiting for a turn."""
        count = -1
        while count != len(self.handled):
            count = len(self.handled)
            await asyncio.sleep(0)


def echoes(*texts: str) -> bytes:
    return b"".join(encode_frame(encode_request(Echo(text=text), n)) for n, text in enumerate(texts))


async def test_a_bystander_is_answered_while_a_crowd_of_slow_requests_is_handled() -> None:
    port = Port()
    port.crowd.data_received(echoes("1", "2", "3", "4", "5"))
    port.bystander.data_received(echoes("me"))
    await port.idle()
    assert port.handled == ["1", "2", "me", "3", "4", "5"]
    assert [frame.opaque for frame in port.to_crowd.frames()] == [0, 1, 2, 3, 4]


async def test_nothing_more_is_read_from_a_crowd_until_what_it_sent_is_handled() -> None:
    port = Port()
    port.crowd.data_received(echoes("1", "2", "3"))
    assert not port.to_crowd.is_reading()
    await port.idle()
    assert port.to_crowd.is_reading()
    assert port.handled == ["1", "2", "3"]


async def test_thousands_of_tiny_frames_of_one_read_are_read_in_parts_and_all_answered() -> None:
    port = Port(request_s=0.0)
    texts = [str(number) for number in range(5000)]
    port.crowd.data_received(echoes(*texts))
    in_the_first_turn = len(port.handled)
    port.bystander.data_received(echoes("me"))
    await port.idle()
    assert in_the_first_turn < 5000
    assert port.handled.index("me") == in_the_first_turn
    assert [text for text in port.handled if text != "me"] == texts
    assert port.to_crowd.is_reading()


async def test_what_was_whole_is_answered_before_damage_ends_the_connection() -> None:
    port = Port()
    port.crowd.data_received(echoes("1", "2", "3", "4") + b"\xff" * 8)
    assert not port.to_crowd.is_closing()
    port.crowd.data_received(b"more of that")
    await port.idle()
    assert port.handled == ["1", "2", "3", "4"]
    assert [frame.opaque for frame in port.to_crowd.frames()] == [0, 1, 2, 3]
    assert port.to_crowd.is_closing()


async def test_a_crowd_that_does_not_read_its_answers_is_handled_when_it_does() -> None:
    port = Port()
    port.crowd.data_received(echoes("1", "2", "3"))
    port.crowd.pause_writing()
    await port.idle()
    assert port.handled == ["1", "2"]
    port.crowd.resume_writing()
    await port.idle()
    assert port.handled == ["1", "2", "3"]
    assert port.to_crowd.is_reading()
